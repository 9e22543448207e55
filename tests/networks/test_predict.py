"""Predictions: the sum of kernels between their times in caches and in memory, other operators by bytes, overhead."""

import pytest

from deepbench.core.times import Time
from deepbench.networks.predictions import predict as module
from deepbench.networks.predictions.predict import cold_share, needs, predict, yardstick
from deepbench.networks.traces.trace import Trace, TracedCall

GEMM = "gemm m=64 n=32 k=16 a_t=0 b_t=0 forward f32 beta=0"
RELU = "elementwise kind=relu n=1000 forward f32"
SGD = "optimizer kind=sgd n=1000 forward f32"
CAPACITY = 1000


class Known:
    """Times that a test chooses: by operation and state of the caches; additions take 1 ns per byte, cold 3 ns."""

    def __init__(self, seconds, disturbed=()):
        self.seconds, self.disturbed = seconds, disturbed

    def of(self, case):
        if case is None:
            return None
        state = case.settings["cache"]
        if case.op == "elementwise" and case.problem.kind == "add":
            size = 12 * case.problem.n
            each = {"hot": 1e-9, "cold": 3e-9}[state]
            is_disturbed = "addition" in self.disturbed
            return Time.at_most(each * size) if is_disturbed else Time(each * size, 0.5 * each * size, 2 * each * size)
        found = self.seconds.get((case.op, state))
        if found is None or case.op in self.disturbed:
            return None if found is None else Time.at_most(found)
        return Time(found, 0.9 * found, 1.2 * found)

    def reason(self, case, library):
        return "not measured"


def call(kernel=None, reads=(), writes=(), moved=0, operators=1):
    return TracedCall("aten.x", kernel, "", tuple(reads), tuple(writes), moved, operators)


def trace(calls, buffers, views=0):
    return Trace("net", "", True, tuple(calls), tuple(buffers), views, None)


def predicted(calls, buffers, seconds, overhead_s=None, views=0):
    overhead = None if overhead_s is None else Time(overhead_s, overhead_s, overhead_s)
    return predict(trace(calls, buffers, views), Known(seconds), "torch", 1, CAPACITY, overhead)


@pytest.mark.parametrize(
    ("distances", "sizes", "share"),
    [
        ({0: 0, 1: 0}, (100, 300), 0.0),
        ({0: 5000, 1: 0}, (100, 300), 0.25),
        ({0: 0, 1: 701}, (100, 300), 0.75),  # the buffer itself has 300 bytes
        ({0: 0, 1: 0}, (100, 1300), 13 / 14),  # larger than the caches
        ({}, (100, 300), 1.0),  # never used before
    ],
)
def test_what_was_used_long_ago_comes_from_memory(distances, sizes, share):
    assert cold_share(call(GEMM, [0], [1]), distances, sizes, CAPACITY) == pytest.approx(share)


def test_a_kernel_is_measured_in_the_states_that_its_calls_have():
    always_hot = needs(trace([call(GEMM, [0], [1])], (10, 10)), "torch", 1, CAPACITY)[0]
    always_cold = needs(trace([call(GEMM, [0], [1])], (5000, 5000)), "torch", 1, CAPACITY)[0]
    mixed = needs(trace([call(RELU, [0], [0]), call(GEMM, [0], [1])], (500, 2000)), "torch", 1, CAPACITY)[1]

    assert [c.settings["cache"] for c in always_hot.cases] == ["hot"]
    assert [c.settings["cache"] for c in always_cold.cases] == ["cold"]
    assert [c.settings["cache"] for c in mixed.cases] == ["hot", "cold"]
    assert mixed.cold_share == pytest.approx(0.8)


def test_the_sum_is_that_of_calls_operators_and_overhead():
    calls = [call(GEMM, [0], [1], 10), call(GEMM, [0], [1], 10), call(None, [1], [1], 12 * 2**12)]
    found = predicted(calls, (10, 10), {("gemm", "hot"): 1e-3}, overhead_s=1e-6, views=4)

    assert found.time.seconds == pytest.approx(2e-3 + 12 * 2**12 * 1e-9 + 7e-6)
    method_s = module.MODEL_ERROR * found.time.seconds
    assert found.time.low_s == pytest.approx(1.8e-3 + 12 * 2**12 * 0.5e-9 + 7e-6 - method_s)
    assert found.time.high_s == pytest.approx(2.4e-3 + 12 * 2**12 * 2e-9 + 7e-6 + method_s)
    assert found.measured_share == pytest.approx(2e-3 / found.time.seconds)


def test_between_caches_and_memory_the_time_is_between_both():
    calls = [call(None, [0], [0]), call(GEMM, [0], [1], 10)]
    found = predicted(calls, (500, 2000), {("gemm", "hot"): 1e-3, ("gemm", "cold"): 2e-3})

    assert found.parts[0].time.seconds == pytest.approx(0.2e-3 + 0.8 * 2e-3)


def test_without_a_product_there_is_no_prediction_but_a_lower_bound():
    found = predicted([call(GEMM, [0], [1], 10), call(RELU, [1], [1], 8000)], (10, 10), {("elementwise", "hot"): 1e-3})

    assert found.time is None
    assert found.known.seconds == pytest.approx(1e-3)
    assert [(part.need.kernel, part.how) for part in found.missing] == [(GEMM, "not measured")]


def test_a_kernel_that_memory_limits_is_estimated_from_its_bytes():
    found = predicted([call(RELU, [0], [1], 12 * 2**12)], (10, 10), {})

    assert found.time.seconds == pytest.approx(12 * 2**12 * 1e-9)
    assert found.parts[0].how == "from its bytes"
    assert found.measured_share == 0


def test_a_chain_of_operators_costs_what_its_operators_cost():
    found = predicted(
        [call(SGD, [0], [0], 3 * 12 * 2**12, operators=3)], (10,), {("optimizer", "hot"): 1e-9}, overhead_s=1e-6
    )

    assert found.time.seconds == pytest.approx(3 * 12 * 2**12 * 1e-9 + 3e-6)
    assert not found.parts[0].need.cases


def test_a_disturbed_time_is_marked():
    found = predict(
        trace([call(GEMM, [0], [1], 1)], (1, 1)), Known({("gemm", "hot"): 1e-3}, ["gemm"]), "torch", 1, 9, None
    )

    assert found.parts[0].disturbed


def test_disturbed_additions_disturb_what_is_estimated_from_them():
    calls = [call(GEMM, (0,), (1,)), call(RELU, (1,), (2,), moved=3072), call(None, (2,), (3,), moved=3072)]
    known = Known({("gemm", "hot"): 1.0, ("gemm", "cold"): 1.0}, disturbed=("addition",))
    found = predict(trace(calls, (100, 100, 100, 100)), known, "torch", 1, CAPACITY, None)

    assert ["elementwise"] == [part.need.kernel.split()[0] for part in found.disturbed]
    assert found.others.is_bound
    assert found.time.is_bound
    assert None is found.time.low_s
    estimated = found.others.seconds + found.disturbed[0].time.seconds
    assert found.disturbed_share == pytest.approx(estimated / found.time.seconds)


@pytest.mark.parametrize("size", [1, 12 * 2**8, 12 * 3000, 12 * 2**24, 12 * 2**27])
def test_other_operators_are_between_measured_additions(size):
    price = module._Price(Known({}), "torch", 1)

    hot, cold, half = (price.of(size, share).seconds for share in (0, 1, 0.5))

    assert hot == pytest.approx(max(size, 12 * 2**8) * 1e-9)
    assert cold == pytest.approx(3 * hot)
    assert half == pytest.approx(2 * hot)


def test_without_additions_other_operators_have_no_price():
    class Nothing(Known):
        def of(self, case):
            return None

    assert module._Price(Nothing({}), "torch", 1).of(1000, 0.5) is None
    assert {state for state, _ in yardstick("torch", 1)} == {"hot", "cold"}
