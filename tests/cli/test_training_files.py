"""Commands that read files with trained applications."""

import csv
import io
import json

import pytest

from deepbench.api.results import load
from tests.help.trained import seeds, write


@pytest.fixture
def files(tmp_path):
    write(tmp_path / "a.jsonl", seeds(3))
    write(tmp_path / "b.jsonl", seeds(3, chunk_s=15.0))


@pytest.mark.usefixtures("files")
def test_show_prints_quality_time_and_parts(deepbench):
    done = deepbench("show", "a.jsonl")

    assert 0 == done.returncode, done.stderr
    assert all(words in done.stdout for words in ("runs       3", "3 of 3", "time to target", "whole run"))
    (row,) = json.loads(deepbench("show", "a.jsonl", "--json").stdout)
    assert row["application"] == "image"
    assert row["samples/s"] == pytest.approx(100, rel=0.01)


@pytest.mark.usefixtures("files")
def test_spreadsheets_have_intervals_and_marks(deepbench):
    (row,) = csv.DictReader(io.StringIO(deepbench("show", "a.jsonl", "--csv").stdout))
    (pair,) = csv.DictReader(io.StringIO(deepbench("compare", "a.jsonl", "b.jsonl", "--csv").stdout))

    assert ("3", "False") == (row["runs"], row["disturbed"])
    assert 0 < float(row["time to target ±"]) < 1
    assert {"samples to target ±", "samples/s ±"} <= row.keys()
    assert 0 <= float(pair["time to target ±"]) < 1
    assert {"rate ±", "samples to target ±"} <= pair.keys()


@pytest.mark.parametrize("form", ["csv", "json", "markdown"])
def test_every_form_has_what_was_served(deepbench, tmp_path, form):
    """A file that was trained, and whose model then answered queries."""
    seconds = [0.002 + 1e-6 * i for i in range(100)]
    answers = {"answers": 100, "equal": 100, "grade": 0.95, "plain_grade": 0.95}
    start = {"tests": 100, "metric": "accuracy", "is_share": True, "grade": 0.95}
    line = {
        "run": 0,
        "device": "cpu",
        "precision": "f32",
        "threads": 1,
        "batch": 1,
        "scenario": "single",
        "status": "ok",
    }
    line |= {"reason": None, "start": start, "answers": answers}
    line |= {"queries": {"samples": 1, "latency_s": seconds, "seconds": 0.3}}
    found = load(write(tmp_path / "c.jsonl", seeds(3)).path)
    found.file.serving.append(line)
    text = found.report().text(form)

    assert ("2.10 ms" if form == "markdown" else "0.0020") in text
    assert "single" in text
    assert "image" in text
    if form == "csv":
        trained_row, served_row = csv.DictReader(io.StringIO(text))
        assert ("", "single") == (trained_row["scenario"], served_row["scenario"])
        assert float(served_row["latency_s"]) == found.served[0].latency_s
        assert served_row["samples/s"] == ""


@pytest.mark.usefixtures("files")
def test_compare_and_gate_say_what_is_slower(deepbench, tmp_path):
    assert "slower" in deepbench("compare", "a.jsonl", "b.jsonl").stdout
    done = deepbench("gate", "a.jsonl", "b.jsonl", "--junit", "gate.xml", "--markdown", "gate.md")

    assert 1 == done.returncode
    assert "REGRESSION: 1 slower" in done.stdout
    assert ", the 90 % interval of a gate)" in done.stdout
    assert "<failure" in (tmp_path / "gate.xml").read_text()
    assert "train image --rung mini" in (tmp_path / "gate.md").read_text()
    assert 0 == deepbench("gate", "a.jsonl", "a.jsonl").returncode


@pytest.mark.usefixtures("files")
def test_logs_are_written(deepbench, tmp_path):
    assert "3 logs are in logs" in deepbench("show", "a.jsonl", "--mllog", "logs").stdout
    paths = sorted((tmp_path / "logs").iterdir())
    assert 3 == len(paths)
    (tmp_path / "victim").write_text("precious")
    paths[0].unlink()
    paths[0].symlink_to(tmp_path / "victim")  # by somebody who can write into this folder
    deepbench("show", "a.jsonl", "--mllog", "logs")
    assert "precious" == (tmp_path / "victim").read_text()
    assert paths[0].read_text().startswith(":::MLLOG")


@pytest.mark.usefixtures("files")
def test_pages_and_sites_are_written(deepbench, tmp_path):
    pytest.importorskip("jinja2")
    assert 0 == deepbench("report", "a.jsonl", "b.jsonl", "-o", "page.html").returncode
    (tmp_path / "in").mkdir()
    (tmp_path / "a.jsonl").rename(tmp_path / "in" / "a.jsonl")
    first, second = (deepbench("site", "in", "-o", "site", "--no-published") for _ in range(2))

    assert "(1 rebuilt" in first.stdout
    assert "(0 rebuilt" in second.stdout
    assert "Quality while training" in (tmp_path / "site" / "machines" / "a.html").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("show", "a.jsonl", "--plot"), "a.jsonl has trained applications; a roofline is drawn of kernels"),
        (("gate", "a.jsonl", "b.jsonl", "--rerun"), "train again"),
        (("compare", "a.jsonl", "kernels.jsonl"), "compare two files of one kind"),
        (("report", "a.jsonl", "kernels.jsonl", "-o", "x.html"), "write a page about files of one kind"),
        (("show", "kernels.jsonl", "--mllog", "logs"), "--mllog is for files of deepbench train"),
        (("run", "--resume", "-o", "a.jsonl"), "deepbench train --resume -o a.jsonl"),
    ],
)
@pytest.mark.usefixtures("files")
def test_what_does_not_fit_is_a_sentence(deepbench, tmp_path, words, sentence):
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    header = json.loads(lines[0])
    del header["plan"]["training"]
    (tmp_path / "kernels.jsonl").write_text(
        json.dumps({**header, "plan": {**header["plan"], "mode": "default"}}) + "\n"
    )
    done = deepbench(*words)

    assert 64 == done.returncode
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
