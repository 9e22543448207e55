"""Every way a library can fail ends in its status with a reason, and the run goes on."""

import time
from pathlib import Path

import pytest

from tests.conftest import NO_LIBRARIES, records_of, run_command

ENDINGS = {
    "honest": ("ok", None),
    "printer": ("ok", None),
    "lazy": ("wrong", "every element"),
    "firstonly": ("wrong", "after timing"),
    "stale": ("wrong", "after timing"),
    "everysecond": ("wrong", "does not compute in every call: after timing, call"),
    "everysixteenth": ("wrong", "does not compute in every call: after timing, call"),
    "rememberer": ("wrong", "keeps results of earlier calls: with other numbers in a and b, every element"),
    "remote": ("ok", None),
    "forgetful": ("wrong", "after timing"),
    "skipper": ("wrong", "every element"),
    "overwriter": ("wrong", "every element"),
    "vandal": ("wrong", "changed its input a"),
    "crasher": ("crashed", "SIGSEGV"),
    "illegal": ("crashed", "SIGILL"),
    "leaver": ("crashed", "exit code 0"),
    "buggy": ("crashed", "a bug in somebody's backend"),
    "failing": ("crashed", "foo_gemm returned 42 (internal error)"),
    "hungry": ("out_of_memory", "allocate"),
    "refuser": ("unsupported", "k must be divisible by 7"),
    "absent": ("unavailable", "pip install absent"),
    "crashatload": ("unavailable", "SIGSEGV"),
    "scribbler": ("ok", None),
    "daemon": ("ok", None),
    "realtime": ("crashed", "signal 35"),
    "misfit": ("unavailable", "version must be a text or None"),
}


@pytest.fixture(scope="module")
def runs(plugins, tmp_path_factory):
    """The same small case on all liars: one run for those whose results are wrong, one for the others."""

    def run(liars):
        folder = tmp_path_factory.mktemp("liars")
        words = ("run", "gemm m=33 n=17 k=9 i8", "--backend", ",".join(liars), "--quick", "--timeout", "20")
        done = run_command(folder, *words, "-o", "out.jsonl", DEEPBENCH_PLUGINS=str(plugins), **NO_LIBRARIES)
        return done, records_of(folder / "out.jsonl")

    return {wrong: run([k for k, v in ENDINGS.items() if (v[0] == "wrong") == wrong]) for wrong in (False, True)}


@pytest.mark.parametrize(("liar", "status", "reason"), [(k, *v) for k, v in ENDINGS.items()])
def test_a_liar_ends_in_its_status(runs, liar, status, reason):
    _, records = runs[status == "wrong"]
    (record,) = [r for r in records if r["backend"] == liar]

    assert status == record["status"], record["reason"]
    assert record["reason"] is None if reason is None else reason in record["reason"]


def test_a_run_continues_after_each_failure_and_fails_only_for_wrong_results(runs):
    for wrong, (done, records) in runs.items():
        expected = [k for k, v in ENDINGS.items() if (v[0] == "wrong") == wrong]
        assert sorted(expected) == sorted(r["backend"] for r in records)
        assert int(wrong) == done.returncode, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        assert "\x1b" not in done.stdout
    assert "crasher crashed" in runs[False][0].stdout


def test_what_a_library_loads_in_its_first_call_is_no_time_of_the_kernel(run_liar):
    _, lines = run_liar("slowstart")
    (record,) = [line for line in lines if "case" in line]

    assert "ok" == record["status"]
    assert record["measurement"]["first_call_s"] > 0.6
    assert "first_call" != record["measurement"]["stopped"]
    assert max(record["measurement"]["samples_s"]) < 0.3


def test_a_hang_is_a_timeout_and_its_children_die_with_it(run_liar):
    start = time.monotonic()
    done, lines = run_liar("hanger", timeout="2")

    assert 1 == done.returncode
    assert "no case has a time, so this command fails (exit code 1); the reasons are above" in done.stdout

    assert "timeout" == lines[-1]["status"]
    assert "no sign of life for 2 s during: first call" in lines[-1]["reason"]
    assert time.monotonic() - start < 30
    sleepers = [p for p in Path("/proc").glob("[0-9]*/cmdline") if _content(p) == b"sleep\x001000\x00"]
    assert [] == sleepers


def test_a_worker_that_closes_its_connection_is_ended(run_liar):
    _, lines = run_liar("closer")

    assert "crashed" == lines[-1]["status"]
    assert "closed its connection" in lines[-1]["reason"]


def test_what_every_call_adds_to_tells_how_many_calls_did_their_work(deepbench, plugins, tmp_path):
    """In f32, C grows with each call, also with those that are timed."""
    liars = ["sneaky", "inarow", "everysixteenth"]
    words = ("run", "gemm m=33 n=17 k=9 f32", "--backend", ",".join([*liars, "honest"]), "--quick", "-o", "out.jsonl")
    done = deepbench(*words, DEEPBENCH_PLUGINS=str(plugins), **NO_LIBRARIES)
    records = {r["backend"]: r for r in records_of(tmp_path / "out.jsonl")}

    assert "ok" == records["honest"]["status"], records["honest"]["reason"]
    for liar in liars:
        assert "wrong" == records[liar]["status"], liar
        assert "calls adds the same to the outputs, which contain" in records[liar]["reason"]
    assert 1 == done.returncode


@pytest.mark.long
def test_work_that_was_not_done_is_found_by_the_measured_peak(deepbench, plugins, tmp_path):
    """A liar that computes only when it is checked exceeds the peak that OpenBLAS reaches."""
    done = deepbench(
        *("run", "gemm", "m=600", "n=600", "k=600", "beta=0", "f32", "sneaky", "--quick", "-o", "out.jsonl"),
        DEEPBENCH_PLUGINS=str(plugins),
        **{**NO_LIBRARIES, "DEEPBENCH_OPENBLAS_PATH": ""},
    )
    (record,) = records_of(tmp_path / "out.jsonl")

    assert record["check"]["before"]["passed"]
    assert record["check"]["after"]["passed"]
    assert "wrong" == record["status"]
    assert "above the measured peak" in record["reason"]
    assert 1 == done.returncode


def test_what_cannot_fit_is_refused_before_allocating_with_the_numbers(run_liar):
    done, lines = run_liar("honest", "gemm m=2000000 n=2000000 k=8 i8")
    assert 0 == done.returncode  # the other case has a time
    refused = [line for line in lines if line.get("problem", {}).get("m") == 2000000]

    assert ["out_of_memory"] == [line["status"] for line in refused]
    assert "14.6 TiB of operands" in refused[0]["reason"]
    assert refused[0]["process"]["peak_memory_bytes"] < 2**30


def test_a_result_that_is_not_a_number_is_wrong(run_liar):
    _, lines = run_liar("notanumber", "gemm m=5 n=4 k=3 f32")

    assert "not a number" in lines[-1]["reason"] or "not a number" in lines[-2]["reason"]


def test_null_is_unchecked_and_has_no_rate(run_liar):
    done, lines = run_liar("null")

    assert "unchecked" == lines[-1]["status"]
    assert "harness" in lines[-1]["reason"]
    assert "TFLOP/s" not in done.stdout
    assert "unchecked" in done.stdout


def test_a_plugin_that_does_not_load_is_named(deepbench, tmp_path):
    (tmp_path / "backends").mkdir()
    (tmp_path / "backends" / "broken.py").write_text("import no_such_module\n")
    done = deepbench("list", DEEPBENCH_PLUGINS=str(tmp_path))

    assert 64 == done.returncode
    assert "broken.py does not load: ModuleNotFoundError" in done.stderr
    assert "Traceback" not in done.stderr


def _content(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""
