"""`make gpu` on the fake GPU with little time: every section ends, and leaves what it has."""

import json
import os
import subprocess
import sys
import zipfile

import pytest

from benchmarks import gpu as script
from deepbench.core.case import parse_case
from deepbench.plan.suites import read_suite
from deepbench.results.file import read_results
from tests.conftest import ROOT

SCRIPT = str(ROOT / "benchmarks/gpu.py")


def run(*words, flags=(), **environment):
    variables = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, *flags, SCRIPT, *map(str, words)], env=variables, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def ended(text):
    """How each section ended."""
    return {line.split()[0]: line for line in text.splitlines() if line.split()[0] in script.SECTIONS}


@pytest.mark.programs
@pytest.mark.costly
def test_every_section_ends_in_time_and_writes_what_it_has(gpu, tmp_path):
    (tmp_path / "pytest.py").write_text("raise ImportError('only NumPy is here')")  # as in a plain checkout
    small = ("--size", "32", "--sample", "gemm m=16 n=16 k=16 a_t=1 bf16 result=narrow")
    text = run(tmp_path / "out", "--share", "0.03", *small, PYTHONPATH=str(tmp_path), FAKE_GPU_MEMORY=str(80 * 2**20))
    found = ended(text)

    assert list(script.SECTIONS) == list(found), text
    for name, limit_s in script.SECTIONS.items():
        assert float(found[name].split()[1]) < 0.03 * limit_s + 12, found[name]
        assert (tmp_path / "out" / f"{name}.log").exists() != ("left out" in found[name])
    lines = [json.loads(line) for line in (tmp_path / "out/peaks.jsonl").read_text().splitlines()]
    assert {"ok"} == {line["status"] for line in lines}
    assert script.peaks("cuda", 32)[: len(lines)] == [line["asked"] for line in lines]
    assert len(lines) >= 3
    right = [json.loads(line) for line in (tmp_path / "out/right.jsonl").read_text().splitlines()]
    assert right
    # The first small problems are those of different precisions, without settings.
    kinds = [(line["case"].split()[0], parse_case(line["case"]).precision.name) for line in right]
    assert len(set(kinds)) == len(kinds) or len(kinds) > 6
    records = read_results(tmp_path / "out/sample.jsonl").records
    assert ["ok"] == [r["status"] for r in records]


@pytest.mark.programs
@pytest.mark.costly
def test_after_a_crash_a_section_goes_on_with_the_next_case(gpu, tmp_path):
    text = run(tmp_path, "peaks", "--size", "32", "--share", "0.2", FAKE_GPU_CRASH="1")
    lines = [json.loads(line) for line in (tmp_path / "peaks.jsonl").read_text().splitlines()]

    assert script.peaks("cuda", 32) == [line["asked"] for line in lines], text
    assert {("f8e4m3", "crashed")} == {
        (parse_case(line["asked"]).precision.name, line["status"]) for line in lines if line["status"] != "ok"
    }
    assert not list(tmp_path.glob("*.current"))


@pytest.mark.programs
def test_without_packages_it_says_what_is_missing_and_takes_wheels(tmp_path):
    bare = ("-S",)  # no installed packages
    text = run(tmp_path / "out", flags=bare)
    assert f"missing: {', '.join(script.PACKAGES)}. Install them" in text
    assert "add --wheels FOLDER" in text
    found = ended(text)
    assert all("left out" in line for name, line in found.items() if name != "torch")
    assert "left out" not in found["torch"]

    (tmp_path / "wheels").mkdir()
    for name in script.PACKAGES:
        with zipfile.ZipFile(tmp_path / f"wheels/{name}-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.py", "")
    text = run(tmp_path / "again", "torch", "--wheels", tmp_path / "wheels", flags=bare)
    assert "missing" not in text
    assert (tmp_path / "again/packages/orjson.py").exists()


def test_the_suite_of_gpus_is_what_people_run():
    patterns = [entry.pattern for entry in read_suite("gpu")]
    words = {p.op: dict(p.settings) for p in patterns}

    for p in patterns:
        settings = dict(p.settings)
        if p.op == "gemm":
            assert p.problem.a_t == 1
            assert "0" == settings["beta"]
            assert p.precision in ("i8", "tf32") or "narrow" == settings["result"]
        if p.op == "conv":
            assert "nhwc" == settings["layout"]
    assert {"gemm", "conv", "recurrent", "sparse_gemm", "memory"} == set(words)
    cold = [p for p in patterns if dict(p.settings).get("cache") == "cold"]
    assert len(cold) >= 5
    for p in cold:  # the same with hot caches stands next to it
        hot = tuple(s for s in p.settings if s[0] != "cache")
        assert any(o.settings == hot and (o.problem, o.precision) == (p.problem, p.precision) for o in patterns)
