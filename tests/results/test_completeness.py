"""A file in `results/` is a complete run; anything else lacks something, which is named."""

import pytest

from deepbench.results.completeness import lacks_of
from deepbench.results.file import read_results
from deepbench.results.summary import summarize
from tests.conftest import ROOT, run_command
from tests.help import samples

PUBLISHED = sorted((ROOT / "results").glob("*.jsonl*"))
GEMM = "gemm m=2 n=3 k=4 a_t=0 b_t=0 forward {} openblas threads=1"
MACHINE = {
    **{"cpu": "A CPU", "cores_allowed": 2, "memory_bytes": 2**34, "caches": [{"level": 1, "bytes": 2**15}]},
    **{"system": "Linux", "kernel": "6.1", "python": "3.11", "load_1min": 0.1},
}


def file_of(tmp_path, rounds=3, precisions=("f32", "bf16"), planned=(), library="openblas", **machine):
    texts = [GEMM.format(p) for p in precisions]
    header = samples.header([*texts, *planned])
    header["machine"] = {**MACHINE, **machine}
    facts = {"name": library, "version": "1", "path": None}
    header["libraries"] = {library: {"library": facts}}
    lines = [samples.measured("openblas", 1e-3, n, text=text) for text in texts for n in range(1, rounds + 1)]
    return samples.write(tmp_path / "mine.jsonl", lines, header)


def lacks(*arguments, **more):
    return lacks_in(file_of(*arguments, **more))


def lacks_in(path):
    file = read_results(path)
    return lacks_of(file, summarize(file.records, file.order))


def test_a_complete_run_lacks_nothing(tmp_path):
    assert [] == lacks(tmp_path)


@pytest.mark.parametrize(
    ("what", "word"),
    [
        ({"rounds": 2}, "2 cases have fewer than 3 rounds: gemm m=2"),
        ({"planned": [GEMM.format("f32").replace("m=2", "m=9")]}, "1 of 3 planned cases are not measured: gemm m=9"),
        ({"library": "onednn"}, "no case in i8, which oneDNN has"),
        ({"load_1min": 1.9}, "a load of 1.90 on 2 cores"),
        ({"load_1min": None}, "the machine's load_1min is unknown"),
        ({"cpu": None}, "the machine's cpu is unknown"),
    ],
)
def test_what_is_missing_is_named(tmp_path, what, word):
    assert any(word in text for text in lacks(tmp_path, **what)), lacks(tmp_path, **what)


def test_many_disturbed_times_are_not_good_enough(tmp_path):
    text = GEMM.format("f32")
    quiet = [text.replace("m=2", f"m={m}") for m in range(3, 12)]
    for others, found in ((quiet, False), (quiet[1:], True)):
        path = file_of(tmp_path, planned=[text, *others])
        lines = [samples.measured("openblas", 1e-3, n, text=t) for t in others for n in (1, 2, 3)]
        lines += [samples.disturbed("openblas", 1e-3, n, text=text) for n in (1, 2, 3)]
        samples.write(path, lines, read_results(path).header)
        assert found is any("disturbed 1 of 9 times: gemm m=2" in lack for lack in lacks_in(path))


def test_the_command_lists_what_a_file_lacks(tmp_path):
    path = file_of(tmp_path)
    done = run_command(tmp_path, "show", str(path), "--complete")
    assert (0, True) == (done.returncode, ": good enough to publish: every planned case" in done.stdout)

    path = file_of(tmp_path, rounds=1)
    done = run_command(tmp_path, "show", str(path), "--complete")
    assert 1 == done.returncode
    assert ": not good enough to publish\n" in done.stdout
    assert "- 2 cases have fewer than 3 rounds" in done.stdout


def test_every_published_file_is_complete():
    assert {} == {path.name: found for path in PUBLISHED if (found := lacks_in(path))}


def test_a_variable_that_changes_a_library_is_shown_and_does_not_stand_for_the_machine(tmp_path):
    record = samples.measured(text="gemm m=4 n=4 k=4 a_t=0 b_t=0 forward f32 openblas threads=1")
    record["process"]["environment"] = {
        **{"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "1", "MKL_DYNAMIC": "FALSE", "OMP_DYNAMIC": "false"},
    }
    path = samples.write(tmp_path / "set.jsonl", [record])

    assert {"OPENBLAS_CORETYPE": "Haswell"} == read_results(path).chosen_variables  # the others are set by DeepBench
    assert "OPENBLAS_CORETYPE=Haswell: set outside DeepBench" in run_command(tmp_path, "show", str(path)).stdout
    assert [s for s in lacks_in(path) if "environment variables changed" in s and "OPENBLAS_CORETYPE" in s]
