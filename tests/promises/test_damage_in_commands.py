"""Commands refuse files with damaged lines, and read the other lines with --skip-damaged."""

import pytest

from deepbench import load
from deepbench.fleets import file as fleet
from deepbench.results.file import Store
from tests.conftest import lines_of, records_of
from tests.help import samples

TEXTS = [f"gemm m={m} n=3 k=4 a_t=0 b_t=0 forward f32 mkl threads=1" for m in (2, 3, 4)]
LEFT_OUT = "left out 1 damaged line (3)"


@pytest.fixture
def files(tmp_path):
    """`good.jsonl` has three cases; in `bad.jsonl` the second of them, line 3, is damaged."""
    (tmp_path / "results").mkdir()
    path = tmp_path / "good.jsonl"
    store = Store.create(path, samples.header(TEXTS))
    for text in TEXTS:
        store.append(samples.measured(text=text))
    store.close()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"0.001", b"0.002", 1)
    (tmp_path / "bad.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "results" / "bad.jsonl").write_bytes(b"".join(lines))


COMMANDS = [
    ("show", "bad.jsonl"),
    ("show", "bad.jsonl", "--csv"),
    ("compare", "good.jsonl", "bad.jsonl"),
    ("gate", "bad.jsonl", "good.jsonl"),
    ("report", "bad.jsonl", "-o", "out.html"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_damaged_file_is_refused_and_read_on_request(deepbench, files, words):
    if words[0] == "report":
        pytest.importorskip("jinja2", reason="a page needs Jinja2: pip install jinja2")
    refused, done = deepbench(*words), deepbench(*words, "--skip-damaged")

    assert (64, "") == (refused.returncode, refused.stdout)
    assert "bad.jsonl, line 3: its checksum does not match" in refused.stderr
    assert 1 == len(refused.stderr.strip().splitlines())
    assert (2 if words[0] == "gate" else 0) == done.returncode, done.stderr
    assert f"bad.jsonl: {LEFT_OUT}" in done.stderr


def test_the_head_of_the_table_and_the_comparison_say_what_was_left_out(deepbench, files):
    assert "left out   1 damaged line (3)" in deepbench("show", "bad.jsonl", "--skip-damaged").stdout
    compared = deepbench("compare", "good.jsonl", "bad.jsonl", "--skip-damaged").stdout
    assert "differs: left out: nothing → 1 damaged line (3)" in compared
    assert f"{TEXTS[1]}: not in bad.jsonl" in compared


def test_a_site_leaves_out_a_damaged_file_or_its_damaged_lines(deepbench, files):
    pytest.importorskip("jinja2", reason="a page needs Jinja2: pip install jinja2")
    words = "site", "results", "-o", "public", "--no-published"
    first, skipped, again = deepbench(*words), deepbench(*words, "--skip-damaged"), deepbench(*words)

    assert [1, 0, 1] == [done.returncode for done in (first, skipped, again)]
    assert "line 3: its checksum does not match" in first.stderr
    assert LEFT_OUT in skipped.stderr
    assert "1 machines (1 rebuilt" in skipped.stdout
    assert "0 machines" in again.stdout


def test_python_reads_the_other_lines_on_request(files, tmp_path):
    results = load(tmp_path / "bad.jsonl", skip_damaged=True)

    assert ([TEXTS[0], TEXTS[2]], [3]) == ([s.record["case"] for s in results], results.file.damaged)
    assert "2 with a time; 1 damaged line (3) left out" in repr(results)


def test_a_damaged_fleet_file_is_refused_and_read_on_request(deepbench, tmp_path):
    store = Store.create(tmp_path / "fleet.jsonl", {"schema": fleet.SCHEMA, "expected": ["a"]})
    for run in (1, 2):
        store.append(vars(fleet.HostRun("a", run, "ok", None, [samples.header(TEXTS[:1]), samples.measured()])))
    store.close()
    text = (tmp_path / "fleet.jsonl").read_text()
    (tmp_path / "fleet.jsonl").write_text(text.replace('"run":2', '"run":4'))

    for words in (("show", "fleet.jsonl"), ("show", "fleet.jsonl", "--host", "a")):
        refused, done = deepbench(*words), deepbench(*words, "--skip-damaged")
        assert 64 == refused.returncode
        assert "fleet.jsonl, line 3: not a line of a fleet file" in refused.stderr
        assert 0 == done.returncode, done.stderr
        assert LEFT_OUT in done.stderr


def test_a_damaged_file_is_not_continued(deepbench, null_file, tmp_path):
    content = null_file.read_text()
    null_file.write_text(content.replace('"round":1', '"round":2', 1))
    done = deepbench("run", "--resume", "-o", "out.jsonl")

    assert 64 == done.returncode
    assert "its checksum does not match" in done.stderr


def test_a_run_without_checksums_is_continued(deepbench, null_file):
    header, *rest = lines_of(null_file)
    samples.write(null_file, rest[:-1], header)
    done = deepbench("run", "--resume", "-o", "out.jsonl")

    assert 0 == done.returncode, done.stderr
    assert 2 == len(records_of(null_file))
    assert "crc32" not in null_file.read_text()
    assert 0 == deepbench("show", "out.jsonl").returncode
