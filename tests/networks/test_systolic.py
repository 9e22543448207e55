"""Systolic arrays: cycles by hand, what is always true, and what a file of hardware may say about one."""

import math

import pytest
from hypothesis import given, strategies

from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.core.lowering import MatrixProduct
from deepbench.judge.demand import demand_of
from deepbench.networks.what_if.hardware import Hardware
from deepbench.networks.what_if.systolic import SystolicArray
from deepbench.networks.what_if.time_model import Constants, parts_of

TEXT = """
schema = "deepbench-hardware/1"
name = "array"
origin = "hypothetical"
[[memory]]
name = "HBM"
bytes_per_s = 1e15
[array]
rows = 4
columns = 8
dataflow = "ws"
clock_hz = 1e9
"""

HARDWARE = Hardware.parse(TEXT)

sizes = strategies.integers(1, 300)
arrays = strategies.builds(
    SystolicArray, sizes, sizes, strategies.sampled_from(["ws", "is", "os"]), strategies.integers(1, 9)
)
products = strategies.builds(
    MatrixProduct, strategies.just(""), sizes, sizes, sizes, strategies.integers(1, 9), strategies.integers(1, 9)
)


@pytest.mark.parametrize(
    ("dataflow", "folds", "of_a_fold"),
    [
        # 64 × 48 × 100 (m, n, k) on 32 rows and 16 columns
        ("ws", 4 * 3, 32 + 32 + 16 + 64 - 2),
        ("is", 4 * 4, 32 + 32 + 16 + 48 - 2),
        ("os", 2 * 3, 32 + 16 + 100 - 2),
    ],
)
def test_cycles_by_hand(dataflow, folds, of_a_fold):
    array, product = SystolicArray(32, 16, dataflow), MatrixProduct("", 64, 48, 100)
    assert folds == array.folds(product)
    assert folds * of_a_fold - 1 == array.cycles(product)


@given(arrays, products)
def test_no_array_is_faster_than_its_multipliers(array, product):
    """The simulator counts cycles from 0, so one is missing in each product."""
    assert (array.cycles(product) + product.repeats) * array.flop_per_cycle >= 2 * product.multiply_adds


@given(arrays, products)
def test_a_batch_on_one_array_and_steps_take_their_sum(array, product):
    one = MatrixProduct("", product.m, product.n, product.k)
    alone = SystolicArray(array.rows, array.columns, array.dataflow)
    assert alone.cycles(product) == product.repeats * alone.cycles(one)


@given(arrays, products)
def test_more_arrays_take_no_longer(array, product):
    more = SystolicArray(array.rows, array.columns, array.dataflow, array.count + 1)
    assert more.cycles(product) <= array.cycles(product)


def test_without_peaks_the_clock_gives_them():
    assert {2 * 4 * 8 * 1e9} == set(HARDWARE.peak.values())
    assert Hardware.parse(HARDWARE.toml()) == HARDWARE


def test_the_time_of_a_product_is_that_of_its_cycles():
    case = parse_case("gemm m=64 n=48 k=100 forward f32 simulated threads=1")
    time = parts_of(demand_of(case, HARDWARE.capacities), HARDWARE, Constants(), None)
    (product,) = case.operation.matrix_products(case)
    assert math.isclose(HARDWARE.array.cycles(product) / 1e9, time.seconds, rel_tol=1e-6)


def test_a_peak_of_its_own_scales_the_cycles():
    twice = Hardware.parse(TEXT + "[peak]\nf32 = 64e9\ni8 = 128e9\n")
    case = "linear m=64 n=48 k=100 forward {} simulated threads=1"
    times = [
        parts_of(demand_of(parse_case(case.format(p)), twice.capacities), twice, Constants(), None).compute_s
        for p in ("f32", "i8")
    ]
    assert math.isclose(times[0], 2 * times[1])


def test_what_is_no_product_has_the_peak():
    case = parse_case("softmax rows=64 columns=100 forward f32 simulated threads=1")
    time = parts_of(demand_of(case, HARDWARE.capacities), HARDWARE, Constants(), None)
    assert math.isclose(case.operation.flop(case) / HARDWARE.peak["f32"], time.compute_s)


@pytest.mark.parametrize("knob", ["array.rows*2", "array.columns*2", "array.count*2", "array.clock_hz*2"])
def test_a_larger_or_faster_array_has_a_higher_peak(knob):
    after = HARDWARE.changed(*map(parse_knob, [knob]))
    assert 2 * HARDWARE.peak["f32"] == after.peak["f32"]
    name = knob.split(".")[1].removesuffix("*2")
    assert 2 * getattr(HARDWARE.array, name) == getattr(after.array, name)
    assert f"array.{name}" in HARDWARE.knobs


def test_parts_of_a_row_do_not_exist():
    after = HARDWARE.replace("array.rows*1.1")
    assert HARDWARE.array.rows == after.array.rows
    assert HARDWARE.peak == after.peak


def test_a_knob_beyond_the_largest_array_is_refused():
    with pytest.raises(BadInput, match=r"array\.rows\*1e\+06 gives array\.rows = 4e\+06; at most 65536 are possible"):
        HARDWARE.replace("array.rows*1000000")


@pytest.mark.parametrize(
    ("line", "wrong", "reason"),
    [
        ("rows = 4", "rows = 0", r"array\.rows must be a whole number from 1 to 65536, found 0"),
        ("rows = 4", "rows = 1e9", r"array\.rows must be a whole number"),
        ("rows = 4", "", r"array\.rows must be a whole number from 1 to 65536, found None"),
        ("columns = 8", "columns = true", r"array\.columns must be a whole number"),
        ('"ws"', '"rs"', r"array\.dataflow is ws \(weights stay in place\), is \(inputs\) or os \(outputs\)"),
        ("clock_hz = 1e9", "clock_hz = -1", r"array\.clock_hz must be a number above 0"),
        ("clock_hz = 1e9", "", r"no peak; .* with array\.clock_hz it needs no peak"),
        ("clock_hz = 1e9", "clock = 1e9", r"array has no 'clock'"),
    ],
)
def test_wrong_arrays_are_one_sentence(line, wrong, reason):
    with pytest.raises(BadInput, match=reason):
        Hardware.parse(TEXT.replace(line, wrong))


def test_an_array_that_is_no_table_is_one_sentence():
    with pytest.raises(BadInput, match="array must be a table"):
        Hardware.parse(TEXT.partition("[[memory]]")[0] + "array = 3\n[[memory]]\nname = 'a'\nbytes_per_s = 1.0\n")


def parse_knob(text):
    from deepbench.networks.what_if.knobs import Knob

    return Knob.parse(text)
