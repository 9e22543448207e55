"""The verb `history`, with ruptures and without."""

import csv
import gzip
import io
import json
import sys

import pytest

import deepbench as package
from deepbench.core.json_lines import to_line
from deepbench.judge import change_points
from tests.help import over_time, samples
from tests.help.command import run_here


@pytest.fixture
def nightly(tmp_path, monkeypatch):
    """30 files of a machine; its first case becomes 10 % slower on day 18, with another version of its library."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return over_time.write_step(tmp_path / "nightly")


@pytest.fixture
def ruptures(monkeypatch):
    """ruptures where it is installed; elsewhere what it would propose for `nightly`."""
    try:
        import ruptures  # noqa: F401
    except ImportError:
        monkeypatch.setattr(change_points, "require_proposals", lambda: None)
        monkeypatch.setattr(change_points, "propose", lambda logs: [18] if max(logs) - min(logs) > 0.08 else [])


@pytest.mark.usefixtures("ruptures")
def test_the_table_fits_a_terminal_and_says_when_what_changed_and_with_what(nightly):
    done = run_here(["history", "nightly"])

    assert 0 == done.code, done.errors
    assert "" == done.errors
    assert all(len(line) <= 80 for line in done.output.splitlines())
    words = " ".join(done.output.split())
    assert "here: A CPU, 2 CPUs: 30 files, 2026-01-01 to 2026-01-30" in words
    assert "From 2026-01-19 03:00: gemm 2 × 3 × 4 NN f32, MKL is" in words
    assert "slower; with it: MKL 3.1 → 3.2." in words
    assert "Slower than at first: 1 of 2 cases. Faster: 0." in words
    assert "2026-01-19" in words
    assert any(block in words for block in "▁█")


@pytest.mark.usefixtures("ruptures")
def test_programs_get_every_time_and_every_change_point(nightly):
    found = json.loads(run_here(["history", "nightly", "--json"]).output)
    (machine,) = found["machines"]
    changed, steady = machine["cases"]
    (point,) = changed["change_points"]

    assert ("here", "A CPU, 2 CPUs", 30) == (machine["host"], machine["machine"], len(machine["runs"]))
    assert "2026-01-19T03:00:00+00:00" == machine["runs"][point["after"]]["began"]
    assert 17 == point["before"]
    assert 1.1 == pytest.approx(point["ratio"], rel=0.01)
    assert ["MKL 3.1 → 3.2"] == point["with"]
    assert [] == steady["change_points"]
    assert [{"run": 18, "with": ["MKL 3.1 → 3.2"]}] == changed["recorded_changes"] == steady["recorded_changes"]
    assert 30 == len(steady["times"]["time_s"]) == len(steady["times"]["run"])
    rows = list(csv.DictReader(io.StringIO(run_here(["history", "nightly", "--csv"]).output)))
    assert ["1", "0"] == [row["change_points"] for row in rows]
    assert "2026-01-19T03:00:00+00:00" == rows[0]["last_change"]
    assert "| case |" in run_here(["history", "nightly", "--markdown"]).output


def test_without_ruptures_there_is_a_sentence_and_the_table(nightly, monkeypatch):
    monkeypatch.setitem(sys.modules, "ruptures", None)
    done = run_here(["history", "nightly"])

    assert 0 == done.code, done.errors
    words = " ".join(done.output.split())
    assert "No change points: change points need ruptures" in words
    assert "pip install ruptures." in words
    assert "gemm 2 × 3 × 4 NN" in words
    assert "change points" not in words.partition("No change points")[0]
    assert "pip install ruptures" in json.loads(run_here(["history", "nightly", "--json"]).output)["not_searched"]


@pytest.mark.parametrize(
    ("words", "cases", "runs"),
    [
        (["--op", "gemm"], 2, 30),
        (["--backend", "mkl", "--precision", "f32", "--direction", "forward", "--threads", "2"], 2, 30),
        (["--host", "her*"], 2, 30),
        (["--since", "2026-01-25"], 2, 6),
        (["--since", "2026-01-25T05:00+02:00"], 2, 6),
        (["--device", "cpu"], 2, 30),
        (["--full"], 2, 30),
    ],
)
def test_filters(nightly, words, cases, runs):
    done = run_here(["history", "nightly", *words, "--json"])

    assert 0 == done.code, done.errors
    (machine,) = json.loads(done.output)["machines"]
    assert (cases, runs) == (len(machine["cases"]), len(machine["runs"]))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "nowhere does not exist; wanted a folder of result files"),
        (["empty"], "there are no result files (.jsonl, .jsonl.gz) in empty"),
        (["nightly", "--op", "conv"], "no case has the op conv; there are gemm"),
        (["nightly", "--backend", "onednn"], "no case has the backend onednn; there are mkl"),
        (["nightly", "--set", "beta=0"], "no case of 30 files passes the filters; leave one of them out"),
        (["nightly", "--set", "beta"], "--set wants NAME=VALUE, found 'beta'"),
        (["nightly", "--host", "there"], "no file is of the host there; there are results of here"),
        (["nightly", "--since", "soon"], "--since wants a date such as 2026-03-01, found 'soon'"),
        (["nightly", "--since", "2999-01-01"], "--since 2999-01-01 is in the future"),
        (["nightly", "--since", "2026-02-15"], "no run began at that date or later: 30 began before"),
        (["nightly", "--margin", "200%"], "--margin must be a share"),
        (["nightly", "--threads", "x"], "threads must be a whole number"),
        (["nightly", "--page", "page.txt"], "the page needs a name that ends in .html"),
    ],
)
def test_bad_words_are_one_sentence(nightly, tmp_path, words, sentence):
    (tmp_path / "empty").mkdir()
    done = run_here(["history", *words])

    assert 64 == done.code
    assert sentence in done.errors
    assert 1 == len(done.errors.splitlines())
    assert "" == done.output


def test_files_that_cannot_be_read_are_named_and_left_out(nightly):
    (nightly / "day000.jsonl").write_text("{")
    (nightly / "day001.jsonl").write_bytes(b"")
    damaged = nightly / "day002.jsonl"
    damaged.write_bytes(damaged.read_bytes().replace(b'"status":"ok"', b'"status":"okay"', 1))
    done = run_here(["history", "nightly"])

    assert 1 == done.code
    assert 3 == len(done.errors.splitlines())
    assert all(line.startswith("deepbench: left out: nightly/day00") for line in done.errors.splitlines())
    assert "27 files" in done.output
    assert "Left out: 3 files." in done.output
    assert "28 files" in run_here(["history", "nightly", "--skip-damaged"]).output


def test_files_of_other_kinds_are_left_out_and_no_error(nightly):
    header = over_time.header(40)
    header["plan"]["mode"] = "training"
    header["plan"]["training"] = []
    samples.write(nightly / "trained.jsonl", [], header)
    done = run_here(["history", "nightly"])

    assert 0 == done.code, done.errors
    assert "trained.jsonl has trained applications; a history is of kernels" in done.errors


def test_compressed_files_and_subfolders_count_and_hidden_folders_do_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = over_time.write(tmp_path / "all", "a.jsonl", {2: 1e-3}, 1)
    over_time.write(tmp_path / "all" / "more", "b.jsonl", {2: 1e-3}, 2)
    over_time.write(tmp_path / "all" / ".state", "c.jsonl", {2: 1e-3}, 3)
    other = over_time.write(tmp_path, "d.jsonl", {2: 1e-3}, 4)
    (tmp_path / "all" / "d.jsonl.gz").write_bytes(gzip.compress(other.read_bytes()))
    other.unlink()
    (tmp_path / "all" / "again.jsonl").symlink_to(plain)
    (tmp_path / "all" / "circle").symlink_to(tmp_path / "all")

    found = json.loads(run_here(["history", "all", "--json"]).output)
    assert ["all/a.jsonl", "all/more/b.jsonl", "all/d.jsonl.gz"] == [
        run["file"] for run in found["machines"][0]["runs"]
    ]


@pytest.mark.usefixtures("ruptures")
def test_a_host_of_fleet_files_that_becomes_slower_is_named(tmp_path, monkeypatch):
    """Weekly fleet files, of which each has three runs of two hosts."""
    monkeypatch.chdir(tmp_path)
    first = {"schema": "deepbench-fleet/1", "expected": ["n1", "n2"], "words": [], "links": None, "one_by_one": False}
    for week in range(30):
        lines = [first]
        for run in (1, 2, 3):
            for host in ("n1", "n2"):
                slower = 1.1 if host == "n2" and week >= 18 else 1.0
                times = {2: over_time.noisy(1e-3, week + run) * slower}
                of_host = [over_time.header(7 * week, host="same"), *over_time.records(times, rounds=1)]
                lines.append({"host": host, "run": run, "status": "ok", "reason": None, "lines": of_host})
        lines.append({"host": "n3", "run": 1, "status": "missing", "reason": "no answer", "lines": []})
        (tmp_path / f"week{week:02}.jsonl").write_text("".join(map(to_line, lines)))

    found = package.history(tmp_path)
    assert ["n1", "n2"] == [machine.host for machine in found.machines]
    assert [[], [18]] == [
        [machine.runs.index(change.after) for case in machine.cases for change in case.changes]
        for machine in found.machines
    ]
    assert "n2: A CPU, 2 CPUs" in run_here(["history", ".", "--host", "n2"]).output


@pytest.mark.usefixtures("ruptures")
def test_many_cases_are_counted_and_those_that_changed_are_listed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    over_time.write_step(tmp_path / "many", count=30, cases=tuple(range(2, 27)))
    short, full = (run_here(["history", "many", "--markdown", *more]).output for more in ([], ["--full"]))

    assert "24 cases more: --full lists them." in short.replace("\\", "")
    assert 1 == short.count("| gemm 2 ×") == short.count("| gemm")
    assert 25 == full.count("| gemm")


def test_the_page_is_written_and_a_result_file_is_not_replaced(nightly, tmp_path):
    pytest.importorskip("jinja2", reason="a page needs Jinja2")
    done = run_here(["history", "nightly", "-o", "out.html", "--title", "Ours <b>"])

    assert 0 == done.code, done.errors
    assert "wrote out.html" in done.output
    html = (tmp_path / "out.html").read_text()
    assert "<h1>Ours &lt;b&gt;</h1>" in html
    data = json.loads(html.partition('id="content">')[2].partition("</script>")[0])
    assert (2, 2, 30) == (len(data["rows"]), len(data["charts"]), len(data["charts"][0]["time_s"]))
    (nightly / "day000.jsonl").rename(tmp_path / "own.html")
    refused = run_here(["history", "nightly", "-o", "own.html"])
    assert 64 == refused.code
    assert "is a result file and would be replaced" in refused.errors


def test_the_site_has_the_page_and_a_link(nightly, tmp_path):
    pytest.importorskip("jinja2", reason="a page needs Jinja2")
    over_time.write(tmp_path / "results", "mine.jsonl", {2: 1e-3})
    words = ["site", "results", "-o", "public", "--no-published"]
    assert 0 == run_here(words).code
    assert "history.html" not in (tmp_path / "public" / "index.html").read_text()
    done = run_here([*words, "--history", "nightly"])

    assert 0 == done.code, done.errors
    assert '<a href="history.html">History</a>' in (tmp_path / "public" / "index.html").read_text()
    assert "day017.jsonl" in (tmp_path / "public" / "history.html").read_text()
    assert 0 == run_here(words).code  # without the option, the page stays
    assert "history.html" in (tmp_path / "public" / "index.html").read_text()
    (nightly / "day000.jsonl").write_text("{")
    assert 1 == run_here([*words, "--history", "nightly"]).code


def test_python_has_the_same(nightly):
    found = package.history(nightly, ops="gemm", since="2026-01-03", threads=2)

    assert 28 == len(found.machines[0].runs)
    assert "gemm 2 × 3 × 4 NN f32, MKL" in repr(found)
    assert [] == found.refused == found.left_out
    with pytest.raises(package.BadInput, match="the margin must be between 0 and 1, found 2"):
        package.history(nightly, margin=2)
