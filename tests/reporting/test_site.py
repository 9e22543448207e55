"""A results site: what it contains, what a build writes again, and that hostile files do no harm."""

import json
import os
import re
from pathlib import Path

import pytest

import deepbench
from deepbench import formats
from deepbench.core.errors import BadInput
from deepbench.judge import change_points
from deepbench.reporting import plot, site
from deepbench.results import published
from deepbench.results.file import ResultFile
from deepbench.results.summary import summarize
from tests.conftest import ROOT, run_command
from tests.help import over_time, samples

pytest.importorskip("jinja2", reason="a page needs Jinja2: pip install jinja2")
TEXT = "gemm m=4 n={} k=4 a_t=0 b_t=0 forward f32 mkl threads=1"


def write(folder, name, seconds=1e-3, sizes=(1, 2), cpu="A CPU"):
    header = samples.header()
    header["machine"]["cpu"] = cpu
    records = [samples.measured(seconds=seconds * n, text=TEXT.format(n)) for n in sizes]
    samples.write(folder / name, records, header)


def test_each_machine_and_family_has_a_page_and_only_changes_are_written(tmp_path):
    folder, out = tmp_path / "results", tmp_path / "public"
    write(folder, "one.jsonl")
    write(folder, "lab/two.jsonl", 2e-3)
    first = site.build(folder, out, with_published=False)
    again = site.build(folder, out, with_published=False)
    write(folder, "three.jsonl", 3e-3, sizes=(1, 2, 4))
    more = site.build(folder, out, with_published=False)

    assert (2, 2, 1) == (first.machines, len(first.fresh), first.families)
    assert ([], 0) == (again.fresh, again.written)
    assert (["three"], 1) == (more.fresh, more.written)
    index = json.loads((out / "index.json").read_text())
    assert ["lab/two", "one", "three"] == sorted(m["title"] for m in index["machines"])
    for machine in index["machines"]:
        assert (out / machine["page"]).is_file()
        assert (out / machine["data"]).is_file()
    family = next((out / "families").glob("gemm-*.html")).read_text()
    rows = json.loads(re.search(r'id="content">(.*?)</script>', family, re.S)[1])["rows"]
    assert 7 == len(rows)
    (folder / "one.jsonl").unlink()
    assert ["one"] == site.build(folder, out, with_published=False).removed
    assert not (out / "machines" / "one.html").exists()


def test_a_changed_file_is_read_again(tmp_path):
    folder, out = tmp_path / "results", tmp_path / "public"
    write(folder, "one.jsonl")
    site.build(folder, out, with_published=False)
    write(folder, "one.jsonl", 5e-3, sizes=(1, 2, 3))

    assert ["one"] == site.build(folder, out, with_published=False).fresh


def test_problems_removed_from_a_file_leave_the_families(tmp_path):
    folder, out = tmp_path / "results", tmp_path / "public"
    write(folder, "one.jsonl")
    write(folder, "two.jsonl", sizes=(1, 2))
    site.build(folder, out, with_published=False)
    samples.write(
        folder / "one.jsonl", [samples.measured(text="gemm m=9 n=1 k=9 a_t=0 b_t=0 forward f32 mkl threads=1")]
    )
    site.build(folder, out, with_published=False)

    pages = {p.name: p.read_text() for p in (out / "families").glob("gemm-*.html")}
    assert 2 == len(pages)
    (first,) = [p for p in pages.values() if "m=4 k=4" in p]
    assert '"one"' not in first


def test_an_interrupted_build_can_be_continued(tmp_path, monkeypatch):
    folder, out = tmp_path / "results", tmp_path / "public"
    write(folder, "one.jsonl")
    monkeypatch.setattr(site, "_write_families", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        site.build(folder, out, with_published=False)
    monkeypatch.undo()

    assert (["one"], 1) == (
        site.build(folder, out, with_published=False).fresh,
        len(list((out / "families").glob("gemm*"))),
    )


def test_an_inconsistent_file_does_not_end_the_build(tmp_path, monkeypatch):
    folder, out = tmp_path / "results", tmp_path / "public"
    write(folder, "a.jsonl")
    write(folder, "b.jsonl")
    real = site.content.of_file
    monkeypatch.setattr(site.content, "of_file", lambda f, n: real(f, n) if n == "a" else {}["x"])
    built = site.build(folder, out, with_published=False)

    assert (1, 1) == (built.machines, len(built.refused))


def test_an_unreadable_file_is_reported_and_the_others_are_in_the_site(tmp_path):
    folder, out = tmp_path / "results", tmp_path / "public"
    write(folder, "good.jsonl")
    (folder / "bad.jsonl").write_text("<html>\n")
    built = site.build(folder, out, with_published=False)

    assert 1 == built.machines
    assert 1 == len(built.refused)
    assert "bad.jsonl" in built.refused[0]


def test_published_machines_are_in_the_site(tmp_path, monkeypatch):
    assert 14 == len(published.machines())
    monkeypatch.setattr(published, "machines", lambda: ["NVIDIA T4", "NVIDIA Tesla V100"])
    (tmp_path / "results").mkdir()
    built = site.build(tmp_path / "results", tmp_path / "public", with_published=True)

    assert 2 == built.machines
    assert "112 TFLOP/s" in (tmp_path / "public" / "machines" / "nvidia-tesla-v100.html").read_text()


def test_an_imported_file_is_in_the_site_and_has_no_date(tmp_path):
    folder, out = tmp_path / "results", tmp_path / "public"
    folder.mkdir()
    source = ROOT / "tests" / "data" / "imports" / "text_nvidia_gemm_train_float.txt"
    formats.import_file(source, folder / "card.jsonl", formats.ImportOptions())
    built = site.build(folder, out, with_published=False)
    (machine,) = json.loads((out / "index.json").read_text())["machines"]

    assert [] == built.refused
    assert ("imported", None, 4) == (machine["kind"], machine["date"], machine["cases"])
    assert "1 imported from other programs" in (out / "index.html").read_text()


def test_hostile_names_and_texts_do_no_harm(tmp_path):
    folder, out = tmp_path / "results", tmp_path / "public"
    write(folder, "<img src=x onerror=alert(1)>.jsonl", cpu="</script><script>alert(1)</script>")
    write(folder, "Ein Test.jsonl")
    write(folder, "ein-test.jsonl")
    site.build(folder, out, with_published=False)

    for path in out.rglob("*.html"):
        assert "<script>alert" not in path.read_text()
        assert "<img" not in path.read_text()
    for path in (out / "data").glob("*.js"):
        assert re.fullmatch(r"[a-z0-9-]+\.js", path.name)
        assert "</script" not in path.read_text()
    assert 3 == len(list((out / "machines").iterdir()))


def test_the_name_of_a_file_is_no_property_of_every_object(tmp_path):
    """`{}["constructor"]` is a function in JavaScript, so the page that compares keeps files in a Map."""
    folder, out = tmp_path / "results", tmp_path / "public"
    for name in ("constructor", "__proto__", "toString"):
        write(folder, f"{name}.jsonl")
    site.build(folder, out, with_published=False)

    assert "constructor.js" in [p.name for p in (out / "data").iterdir()]
    for path in (out / "data").glob("*.js"):
        assert path.read_text().startswith(f'(window.deepbench ??= new Map()).set("{path.stem}", {{')


def test_the_index_has_the_totals_of_applications(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "machines", lambda: ["NVIDIA T4"])  # one with both suites is enough
    folder, out = tmp_path / "results", tmp_path / "public"
    samples.write(folder / "one.jsonl", samples.ocr())
    site.build(folder, out, with_published=True)
    machines = {m["title"]: m["applications"] for m in json.loads((out / "index.json").read_text())["machines"]}
    (total,) = machines["one"]

    assert ("OCR", "i8", 1, 4, 4) == tuple(
        total[n] for n in ("application", "precision", "threads", "kernels", "measured")
    )
    assert pytest.approx(4e-3, rel=0.01) == total["time_s"]
    assert total["low_s"] < total["time_s"] < total["high_s"]
    assert (8, None) == (total["bits"], total["below_minimum"])
    assert {"train", "server"} <= {t["suite"].partition("/")[2] for totals in machines.values() for t in totals}
    again = site.build(folder, out, with_published=True)
    assert [] == again.fresh


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update(families={"gemm": {}}),
        lambda state: state.update(families={"gemm": {"sweep_field": "n", "rows": [[1]]}}),
        lambda state: state.update(families={"gemm": {"sweep_field": "n", "rows": [["f32", "MKL", None, 1.0, 1.0]]}}),
        lambda state: state.update(index={}),
        lambda state: state["index"].update(kind="splendid"),
        lambda state: state["index"].update(title=None),
        lambda state: state["index"].update(applications=[["deepbench/train", "OCR"]]),
        lambda state: state.update(name="../../other"),
        lambda state: state.pop("index"),
    ],
)
def test_a_damaged_state_is_built_again(tmp_path, change):
    folder, out = tmp_path / "results", tmp_path / "public"
    write(folder, "one.jsonl")
    site.build(folder, out, with_published=False)
    path = out / ".state" / "one.json"
    whole = path.read_text()
    state = json.loads(whole)
    change(state)
    path.write_text(json.dumps(state))

    assert ["one"] == site.build(folder, out, with_published=False).fresh
    assert whole == path.read_text()
    path.write_text(json.dumps(state))
    (folder / "one.jsonl").unlink()
    assert ["one"] == site.build(folder, out, with_published=False).removed


def test_a_fifo_is_neither_a_result_nor_a_state(tmp_path):
    """In a process of its own, which is ended if it waits."""
    folder, out = tmp_path / "results", tmp_path / "public"
    write(folder, "one.jsonl")
    site.build(folder, out, with_published=False)
    os.mkfifo(folder / "two.jsonl")
    (out / ".state" / "one.json").unlink()
    os.mkfifo(out / ".state" / "one.json")
    done = run_command(tmp_path, "site", "results", "-o", "public", "--no-published", timeout=20)

    assert 1 == done.returncode, done.stderr
    assert "two.jsonl is not a regular file" in done.stderr
    assert "1 machines (1 rebuilt" in done.stdout
    assert (out / ".state" / "one.json").is_file()


def test_the_index_has_a_link_to_a_page_of_gpus_in_its_folder(tmp_path):
    (tmp_path / "results").mkdir()
    public = tmp_path / "public"
    site.build(tmp_path / "results", public, with_published=False)
    without = (public / "index.html").read_text()
    (public / "gpus.html").write_text("a page")
    site.build(tmp_path / "results", public, with_published=False)

    assert "gpus.html" not in without
    assert '<a href="gpus.html">GPUs for language models</a>' in (public / "index.html").read_text()
    assert "a page" == (public / "gpus.html").read_text()


def histories(out):
    """What pages of machines say of their history, by machine."""
    script = (out / "assets" / "histories.js").read_text()
    return json.loads(re.fullmatch(r"window\.deepbenchHistories = new Map\(Object\.entries\((.*)\)\);\n", script)[1])


def test_the_page_of_a_machine_leads_to_its_history(tmp_path, monkeypatch):
    monkeypatch.setattr(change_points, "require_proposals", lambda: None)
    monkeypatch.setattr(change_points, "propose", lambda logs: [18] if max(logs) - min(logs) > 0.08 else [])
    monkeypatch.setattr(published, "machines", lambda: ["NVIDIA T4"])
    folder, out, nightly = (tmp_path / name for name in ("results", "public", "nightly"))
    over_time.write(folder, "mine.jsonl", {2: 1e-3})
    site.build(folder, out, with_published=True)
    assert {} == histories(out)
    over_time.write_step(nightly)
    found = deepbench.history(nightly).found
    built = site.build(folder, out, with_published=True, history=found)

    (machine,) = found.machines
    assert [] == built.fresh  # a new history is no reason to write pages of machines again
    assert {machine.identity: "2 cases over 30 days, 1 changed"} == histories(out)
    page = (out / "machines" / "mine.html").read_text()
    assert f'data-machine="{machine.identity}"' in page
    assert page.index("assets/histories.js") < page.index("assets/page.js")
    assert 'data-machine=""' in (out / "machines" / "nvidia-t4.html").read_text()
    site.build(folder, out, with_published=True)  # without a history, that of the last build stays
    assert {machine.identity} == set(histories(out))
    (out / "history.html").unlink()
    site.build(folder, out, with_published=True)
    assert {} == histories(out)


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("dear")
    with pytest.raises(BadInput, match="not from a deepbench site"):
        site.build(tmp_path / "results", tmp_path / "mine", with_published=False)
    with pytest.raises(BadInput, match="not a folder"):
        site.build(tmp_path / "nothing", tmp_path / "public", with_published=False)


def test_a_roofline_in_the_terminal():
    from deepbench.judge.limits import Limits, of_file

    records = [samples.measured(seconds=1e-3 * n, text=TEXT.format(n * 64)) for n in (1, 2, 8)]
    summaries, file = summarize(records), ResultFile(Path(), samples.header())
    lines = plot.roofline(summaries, of_file(file, summaries), 80)

    assert sum(line.count("g") for line in lines[:22]) >= 2
    assert max(map(len, lines[:24])) <= 80
    assert [] == plot.roofline([], Limits(), 80)
