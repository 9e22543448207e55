"""Searches for the fastest algorithm: once per card, library version and case; reused in rounds and later runs."""

import json

import pytest

from deepbench.core.case import parse_case
from deepbench.machine import remembered
from deepbench.measuring.heat import Rival, measure_heat
from deepbench.results.file import read_results
from tests.native.gpu.conftest import QUICK

CASE = "gemm m=8 n=8 k=8 a_t=0 b_t=0 forward f16 cublaslt threads=1"
NO_PROBES = {"FAKE_GPU_MEMORY": str(80 * 2**20)}  # too little for the probes of limits


@pytest.fixture
def run(gpu, deepbench, tmp_path):
    """Run the command with the fake; returns the records of the file. The machine remembers nothing at first."""
    state = {"DEEPBENCH_STATE": str(tmp_path / "state"), **NO_PROBES}

    def run(*words, name="out.jsonl", **environment):
        done = deepbench("run", *words, "-o", name, **state, **environment)
        assert 0 == done.returncode, done.stderr
        return [r for r in read_results(tmp_path / name).records if r["case"] == CASE]

    return run


def searches(records):
    return [r["notes"]["search"] for r in records]


def algorithms(records):
    return {r["notes"]["algorithm"] for r in records}


def test_later_rounds_and_runs_use_the_choice_of_the_first_search(run):
    """The fake's second algorithm is the fastest; with FAKE_GPU_BEST another search would choose the first."""
    first = run(CASE, "--rounds", "2")
    second = run(CASE, "--rounds", "1", name="second.jsonl", FAKE_GPU_BEST="1")
    again = run(CASE, "--rounds", "2", "--search-again", name="again.jsonl", FAKE_GPU_BEST="1")

    assert ["now", "reused"] == searches(first)
    assert {"id=2 tile=7 split_k=7 stages=7"} == algorithms(first) == algorithms(second)
    assert ["reused"] == searches(second)
    assert ["now", "reused"] == searches(again)
    assert {"id=1 tile=7 split_k=7 stages=7"} == algorithms(again)


def test_another_library_version_or_variable_searches_again(run):
    run(CASE, "--rounds", "1")

    assert ["now"] == searches(run(CASE, "--rounds", "1", name="new.jsonl", FAKE_GPU_LT_VERSION="130200"))
    assert ["now"] == searches(run(CASE, "--rounds", "1", name="set.jsonl", CUBLASLT_HEURISTICS_CACHE_CAPACITY="0"))


def test_to_resume_a_file_uses_its_own_choice(run, deepbench, tmp_path):
    run(CASE, "--rounds", "2", name="out.jsonl")
    path = tmp_path / "out.jsonl"
    lines = path.read_text().splitlines()
    records = [n for n, line in enumerate(lines) if '"round":' in line]
    path.write_text("\n".join(lines[: records[0] + 1]) + "\n")  # stopped after the first round
    forgotten = {"DEEPBENCH_STATE": str(tmp_path / "other"), **NO_PROBES, "FAKE_GPU_BEST": "1"}
    done = deepbench("run", "--resume", "-o", "out.jsonl", **forgotten)

    assert 0 == done.returncode, done.stderr
    found = [r for r in read_results(path).records if r["case"] == CASE]
    assert ["now", "reused"] == searches(found)
    assert 1 == len(algorithms(found))


REST = "tile=7 split_k=7 stages=7 reduction=7 swizzling=7 option=7 inner_shape=7 cluster_shape=7"


@pytest.mark.parametrize("choice", ["none of these", "../../etc/passwd", f"id=3 {REST}"])
def test_a_choice_that_the_library_does_not_propose_or_run_is_searched_again(gpu, choice):
    """The fake refuses to run its third algorithm, which is the last choice."""
    (record,) = measure_heat([Rival(parse_case(CASE), choice=choice)], 1, QUICK, 60.0)

    assert ("ok", None) == (record["status"], record["reason"])
    assert record["notes"]["search"].startswith("again: ")
    assert f"id=2 {REST}" == record["notes"]["choice"]
    assert ("does not run" in record["notes"]["search"]) == choice.startswith("id=3")


def test_a_round_that_had_to_choose_another_algorithm_has_a_warning(run, deepbench, tmp_path):
    run(CASE, "--rounds", "2")
    path = tmp_path / "out.jsonl"
    lines = path.read_text().splitlines()
    records = [n for n, line in enumerate(lines) if '"round":' in line]
    path.write_text("\n".join(lines[: records[0] + 1]) + "\n")
    done = deepbench("run", "--resume", "-o", "out.jsonl", FAKE_GPU_REFUSED="2", **NO_PROBES)

    assert 0 == done.returncode, done.stderr
    found = [r for r in read_results(path).records if r["case"] == CASE]
    assert [False, True] == ["other_algorithm" in [w["code"] for w in r["warnings"]] for r in found]
    assert "different algorithms" in done.stdout


@pytest.mark.parametrize(
    "case",
    [
        "gemm m=8 n=8 k=8 forward f32 cublas threads=1",
        "gemm m=8 n=8 k=8 forward f16 hipblaslt threads=1",
        "conv n=1 c=4 h=5 w=5 k=4 r=3 s=3 forward f16 cudnn threads=1",
        "conv n=1 c=4 h=5 w=5 k=4 r=3 s=3 forward f16 miopen threads=1 result=narrow",
        "recurrent cell=lstm hidden=8 batch=2 timesteps=2 forward f16 cudnn threads=1",
        "attention batch=1 heads=2 kv_heads=1 queries=5 keys=7 head_size=8 backward f16 cudnn threads=1",
        "rms_norm rows=5 columns=8 forward f32 cudnn threads=1",
        "recurrent cell=lstm hidden=8 batch=2 timesteps=2 forward f16 miopen threads=1",
        "sparse_gemm m=8 n=3 k=8 sparsity=50 forward f32 cusparse threads=1",
        "sparse_gemm m=32 n=8 k=32 sparsity=50 structure=2_4 forward f16 cusparselt threads=1 result=narrow",
        "sparse_gemm m=32 n=8 k=32 sparsity=50 structure=2_4 forward f16 hipsparselt threads=1 result=narrow",
    ],
)
def test_every_search_can_be_left_out(gpu, case):
    (first,) = measure_heat([Rival(parse_case(case))], 1, QUICK, 60.0)
    assert ("ok", None) == (first["status"], first["reason"])
    (second,) = measure_heat([Rival(parse_case(case), choice=first["notes"]["choice"])], 2, QUICK, 60.0)

    assert ("ok", None) == (second["status"], second["reason"])
    assert ("now", "reused") == (first["notes"]["search"], second["notes"]["search"])
    assert first["notes"]["choice"] == second["notes"]["choice"]
    assert first["notes"].get("algorithm") == second["notes"].get("algorithm")
    assert "search_s" not in second["notes"]


def test_cuSPARSELt_searches_again_where_the_choice_is_refused(gpu):
    case = "sparse_gemm m=32 n=8 k=32 sparsity=50 structure=2_4 forward f16 cusparselt threads=1 result=narrow"
    for choice in ("id=99 split_k=1 split_k_mode=0 split_k_buffers=0", "id=7"):
        (record,) = measure_heat([Rival(parse_case(case), choice=choice)], 1, QUICK, 60.0)

        assert ("ok", None) == (record["status"], record["reason"])
        assert record["notes"]["search"].startswith("again: ")
        assert "id=7 split_k=1" == record["notes"]["algorithm"]


def test_two_sides_of_one_heat_run_the_same_algorithm(gpu):
    sides = [Rival(parse_case(CASE), {"SOME_VARIABLE": value}) for value in "12"]
    other = Rival(parse_case(CASE), {"CUBLASLT_LOG_LEVEL": "0"})
    records = measure_heat([*sides, other], 1, QUICK, 60.0)

    assert ["now", "reused"] == sorted(searches(records[:2]))
    assert ["now"] == searches(records[2:])


def test_damaged_memory_of_choices_is_not_used(run, tmp_path):
    run(CASE, "--rounds", "1")
    (path,) = (tmp_path / "state").glob("*/algorithms.jsonl")
    line = next(n for n in map(json.loads, path.read_text().splitlines()) if CASE in n["key"])
    bad = [{**line, "choice": 3}, {**line, "choice": "x" * 10**6}, {**line, "key": "text"}, {"key": line["key"]}]
    path.write_text("".join(json.dumps(b) + "\n" for b in bad) + "no JSON\n")

    assert ["now"] == searches(run(CASE, "--rounds", "1", name="second.jsonl"))
    assert remembered.MOST_BYTES > path.stat().st_size
