"""The steps of a measurement: what they find, refuse and warn of, and what a record keeps when one fails."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from deepbench.core import registry
from deepbench.core.case import parse_case
from deepbench.core.errors import OutOfMemory
from deepbench.machine import describe
from deepbench.measuring import steps, worker
from deepbench.measuring.clock import Sample
from deepbench.measuring.launch import Request
from deepbench.plan.modes import QUICK

GEMM = "gemm m=3 n=4 k=5 forward i8 {name} threads=1"
ALL_REDUCE = "all_reduce n=40 ranks=3 forward {precision} grouphonest threads=1"


@pytest.fixture
def request_for(plugins, monkeypatch):
    """A request for a case whose library may be a liar."""
    monkeypatch.setenv(registry.PLUGINS, str(plugins))
    registry.registered.cache_clear()
    yield lambda text: Request(parse_case(text), 1, QUICK.rules, 20.0)
    registry.registered.cache_clear()


class Parent:
    """Lets the worker sample until it has a reason to stop."""

    def __init__(self):
        self.phases = []
        self.answers = [{"slice": 0, "seconds": None}, {"rivals_s": 0.0}]

    def send(self, message):
        if "phase" in message:
            self.phases.append(message["phase"])

    def receive(self):
        return self.answers.pop(0)


def measure(request):
    parent = Parent()
    return worker.measure_alone(request, parent), parent.phases


def test_the_phases_of_a_measurement(request_for):
    record, phases = measure(request_for(GEMM.format(name="honest")))

    assert "ok" == record["status"], record["reason"]
    assert ["inputs", "prepare", "first call", "check", "measure", "check again"] == phases
    assert record["check"]["before"]["passed"]
    assert record["check"]["after"]["passed"]


def test_a_record_keeps_what_was_known_before_a_step_failed(request_for):
    record, phases = measure(request_for(GEMM.format(name="refuser")))

    assert ("unsupported", "k must be divisible by 7") == (record["status"], record["reason"])
    assert "prepare" == phases[-1]
    assert "refuser" == record["library"]["name"]
    assert record["process"]["rules"]["least_samples"] == QUICK.rules.least_samples
    assert record["measurement"] is None


def test_another_number_of_threads_is_an_error(request_for):
    record, _ = measure(request_for(GEMM.format(name="disobedient")))

    assert "crashed" == record["status"]
    assert "disobedient reports 7 threads, but the case has 1; DeepBench sets OMP_NUM_THREADS, " in record["reason"]


@pytest.mark.parametrize("text", [GEMM.format(name="honest"), ALL_REDUCE.format(precision="f16")])
def test_libraries_of_workers_and_of_ranks_have_the_same_warnings(request_for, monkeypatch, text):
    monkeypatch.setattr(describe, "openmp_runtimes", lambda: ["libgomp.so.1", "libiomp5.so"])
    monkeypatch.setattr(describe, "instructions", lambda: [])
    library = steps.open_library(request_for(text))

    assert ["two_openmp_runtimes", "converted"] == [w["code"] for w in library.warnings]
    assert "libgomp.so.1 and libiomp5.so are both loaded" in library.warnings[0]["text"]


def test_what_computes_nothing_converts_nothing(request_for, monkeypatch):
    monkeypatch.setattr(describe, "openmp_runtimes", lambda: [])
    monkeypatch.setattr(describe, "instructions", lambda: [])
    broadcast = ALL_REDUCE.format(precision="f16").replace("all_reduce", "broadcast")

    assert [] == steps.open_library(request_for(broadcast)).warnings


def test_operands_that_do_not_fit_are_refused_in_readable_units(monkeypatch):
    op = SimpleNamespace(operand_bytes=lambda case: 3 * 2**30, workspace_bytes=lambda case: 2**30)
    case = SimpleNamespace(settings={"weights": "packed"})
    request = SimpleNamespace(op=op, case=case, backend=SimpleNamespace(memory_free=lambda: 2**31))
    monkeypatch.setattr(describe, "memory_available", lambda: 2**32)

    parts = "needs 7.50 GiB: 3.00 GiB of operands, twice because the library may pack them, and 1.50 GiB for everything"
    with pytest.raises(OutOfMemory, match=re.escape(f"{parts} else; 4.00 GiB are available")):
        steps.check_memory(request)
    with pytest.raises(OutOfMemory, match=r"the operands need 3\.00 GiB on the GPU, 2\.00 GiB are free"):
        steps.check_device_memory(request)


def test_a_table_of_which_the_same_rows_are_read_is_not_cold(monkeypatch):
    """All copies of the table are larger than the caches, but the rows that calls read are not."""
    monkeypatch.setattr(describe, "cache_bytes", lambda: 2**16)
    case = parse_case("embedding_bag rows=4000 dim=64 bags=8 forward f32 reference threads=1 cache=cold")
    found = steps.make_inputs(Request(case, 1, QUICK.rules, 20.0))

    assert found.notes["buffer_bytes"] > steps.TIMES_CACHE * 2**16
    assert ["not_cold"] == [warning["code"] for warning in found.warnings]


def test_a_single_turn_of_kernels_that_add_to_one_output_is_not_called_wrong(monkeypatch):
    monkeypatch.setattr(describe, "cache_bytes", lambda: 2000)
    case = parse_case("gemm m=20 n=3 k=10 forward f32 reference threads=1 cache=weights")
    request = Request(case, 1, replace(QUICK.rules, first_call_counts_s=None, most_s=1e-9), 20.0)
    buffers = steps.make_inputs(request)
    prepared = steps.prepare(request, buffers)
    first = steps.first_call(prepared, steps.open_library(request).others)
    assert len(buffers.sets) > 4

    typical = Sample(1.0, 1.0, 0, 0.0)
    sampling = steps.Sampling.begin(request, buffers, prepared, replace(first, sample=typical, is_typical=True))
    sampling.sampler.slice(0, None)
    timing = sampling.end()

    assert 1 == timing.calls
    assert steps.check_again(request, buffers, prepared, timing).error is None
