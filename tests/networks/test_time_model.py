"""The time model: its parts, its fit, its errors, and what it says about published times."""

import math
import random
from dataclasses import replace

import pytest

from deepbench.core.case import parse_case
from deepbench.judge.demand import demand_of, demand_of_bytes
from deepbench.networks.what_if import time_model
from deepbench.networks.what_if.hardware import Hardware
from deepbench.networks.what_if.time_model import (
    CALL,
    COMPUTE,
    Columns,
    Constants,
    Errors,
    TimeModel,
    parts_of,
    peak_name,
)
from tests.conftest import ROOT
from tests.help.scripts import benchmark

HARDWARE = Hardware.parse("""
schema = "deepbench-hardware/1"
name = "a machine"
origin = "hypothetical"

[peak]
f32 = 1e11
bf16 = 1e12

[[memory]]
name = "L1"
bytes = 32768
bytes_per_s = 4e11

[[memory]]
name = "L2"
bytes = 1048576
bytes_per_s = 1e11

[[memory]]
name = "main"
bytes_per_s = 1e10

[overhead]
call_s = 1e-6
""")

TRUE = Constants(step_s=5e-6, compute=0.8, memory=0.6, p=2.0)


def gemm(m, n, k, precision="f32", backend="onednn", **flags):
    words = " ".join(f"{name}={value}" for name, value in {"a_t": 0, "b_t": 0, **flags}.items())
    return parse_case(f"gemm m={m} n={n} k={k} {words} forward {precision} {backend} threads=1 beta=0")


def demand(case):
    return demand_of(case, HARDWARE.capacities)


def products(count, seed=1):
    """Products whose bytes and arithmetic have very different shares."""
    random_sizes = random.Random(seed)
    return [gemm(*(2 ** random_sizes.randint(4, 11) for _ in "mnk")) for _ in range(count)]


def times_of(cases, constants=TRUE, noise=0.0):
    errors = random.Random(2)
    return {
        case: parts_of(demand(case), HARDWARE, constants, 1e-6).seconds * math.exp(errors.gauss(0, noise))
        for case in cases
    }


# ---- demands and parts


def test_a_small_problem_needs_nothing_from_memory():
    small, middle, large = demand(gemm(16, 16, 16)), demand(gemm(128, 128, 128)), demand(gemm(1024, 1024, 1024))

    assert (3 * 16 * 16 * 4, 0, 0) == small.crossing
    assert middle.crossing[1] >= 3 * 128 * 128 * 4
    assert 0 == middle.crossing[2]
    assert large.crossing[2] >= 3 * 1024 * 1024 * 4
    assert 2 * 1024**3 == large.flop


def test_a_level_of_unknown_rate_holds_nothing():
    unknown = Hardware.parse(HARDWARE.toml().replace("bytes_per_s = 100000000000\n", ""))
    needs = demand_of(gemm(128, 128, 128), unknown.capacities)

    assert (32768.0, 32768.0) == unknown.capacities[1:]
    assert needs.crossing[2] >= 3 * 128 * 128 * 4
    assert "main" == parts_of(needs, unknown, Constants(), None).level


def test_a_cold_case_comes_from_main_memory():
    cold = parse_case("gemm m=16 n=16 k=16 a_t=0 b_t=0 forward f32 onednn threads=1 beta=0 cache=cold")

    assert 3 * 16 * 16 * 4 == demand(cold).crossing[-1]


def test_operations_without_products_compute_with_vector_units():
    softmax = parse_case("softmax rows=1024 columns=1024 forward bf16 onednn threads=1")

    assert "f32" == peak_name(softmax)
    assert "bf16" == peak_name(gemm(8, 8, 8, "bf16"))


def test_other_operators_come_from_the_level_that_holds_their_bytes():
    assert (2e7, 2e7, 2e7) == demand_of_bytes(20_000_000, HARDWARE.capacities).crossing
    assert (1e5, 1e5, 0) == demand_of_bytes(100_000, HARDWARE.capacities).crossing


def test_the_slowest_level_counts():
    parts = parts_of(demand(gemm(64, 4096, 64)), HARDWARE, Constants(), None)

    assert "main" == parts.level
    assert parts.memory_s == pytest.approx(demand(gemm(64, 4096, 64)).crossing[2] / 1e10)


@pytest.mark.parametrize(("p", "factor"), [(1.0, 2.0), (2.0, math.sqrt(2)), (16.0, 2 ** (1 / 16))])
def test_p_says_how_far_computing_and_reading_overlap(p, factor):
    parts = time_model.ModelledTime(0.0, 1e-3, 1e-3, "main", p)

    assert parts.seconds == pytest.approx(factor * 1e-3)
    assert {COMPUTE: 0.5, "main": 0.5} == pytest.approx(parts.shares)


def test_numbers_that_are_gathered_cost_more_of_the_innermost_level_than_their_bytes():
    case = parse_case("sparse_gemm m=1024 n=512 k=1024 sparsity=90 forward f32 mkl threads=1")
    first, *others = HARDWARE.memory
    gathering = replace(HARDWARE, memory=(replace(first, gather_bytes=100.0), *others))
    found = demand(case)
    before, after = (parts_of(found, hardware, Constants(), None) for hardware in (HARDWARE, gathering))

    assert found.gathers > 0
    assert COMPUTE == before.bound
    assert "L1" == after.bound
    assert after.memory_s == found.gathers * 100.0 / first.bytes_per_s
    twice = gathering.replace("memory.L1.bytes_per_s*2")
    assert parts_of(found, twice, Constants(), None).memory_s == after.memory_s / 2
    assert Hardware.parse(gathering.toml()).memory == gathering.memory


def test_shares_add_up_to_one_and_name_the_bound():
    parts = time_model.ModelledTime(5e-3, 1e-3, 2e-3, "L2", 1.5)

    assert 1 == pytest.approx(sum(parts.shares.values()))
    assert CALL == parts.bound
    assert "L2" == time_model.ModelledTime(0.0, 1e-3, 2e-3, "L2", 1.5).bound


def test_the_cost_of_a_call_scales_with_that_of_the_hardware():
    half = HARDWARE.replace("overhead.call_s/2")
    parts = parts_of(demand(gemm(16, 16, 16)), half, TRUE, 1e-6)

    assert TRUE.step_s / 2 == pytest.approx(parts.call_s)


# ---- occupancy


def test_a_product_that_fills_all_units_has_full_occupancy():
    tiles = ((128, 128),)
    ((whole, extra), *_) = time_model.ways_of((1, 1280, 1024, 512), 80, tiles)
    ((partial, _), *_) = time_model.ways_of((1, 1280, 1152, 512), 80, tiles)
    loads = 1 + time_model.LOADS_COST * 2 / 128

    assert (1 / loads, 0.0) == (pytest.approx(whole), extra)
    assert 90 / 160 / loads == pytest.approx(partial)  # a second wave for ten tiles


def test_splitting_the_depth_fills_units_and_costs_bytes():
    ways = time_model.ways_of((1, 128, 128, 65536), 80, ((128, 128),))
    occupancies, extras = zip(*ways, strict=True)

    assert list(occupancies) == sorted(occupancies)
    assert list(extras) == sorted(extras)
    assert occupancies[-1] == pytest.approx(32 * occupancies[0])
    assert 8 * 128 * 128 * 32 == extras[-1]


def test_more_units_do_not_help_a_product_of_one_tile():
    on_gpu = HARDWARE.replace("units=64")
    small, large = gemm(16, 16, 16), gemm(4096, 4096, 64)

    def seconds(case, hardware):
        return parts_of(demand(case), hardware, Constants(), None).compute_s

    # The peak stays, so each of twice as many units is half as fast.
    assert seconds(small, on_gpu.replace("units*2")) > 1.9 * seconds(small, on_gpu)
    assert seconds(large, on_gpu.replace("units*2")) == pytest.approx(seconds(large, on_gpu))


# ---- fit


def test_arrays_and_single_kernels_have_the_same_times():
    cases = products(30)
    for hardware in (HARDWARE, HARDWARE.replace("units=20")):
        columns = Columns.of([demand(c) for c in cases], [1.0] * len(cases), hardware)
        single = [parts_of(demand(c), hardware, TRUE, 1e-6).seconds for c in cases]

        assert single == pytest.approx(columns.predicted_s(TRUE).tolist())


def test_the_fit_finds_the_constants_of_times_that_follow_the_model():
    times = times_of(products(60))
    fit = time_model.fit_cases("", list(times), list(times.values()), HARDWARE)

    assert fit.errors.mean < 0.05
    assert TRUE.compute == pytest.approx(fit.constants.compute, rel=0.1)
    assert TRUE.memory == pytest.approx(fit.constants.memory, rel=0.1)


def test_the_error_is_that_of_times_that_took_no_part():
    times = times_of(products(60), noise=0.2)
    fit = time_model.fit_cases("", list(times), list(times.values()), HARDWARE)
    columns = Columns.of([demand(c) for c in times], list(times.values()), HARDWARE)

    assert 0.1 < fit.errors.mean < 0.3
    assert fit.errors.median < fit.errors.mean < fit.errors.high
    assert fit.errors.mean > Errors.of(columns.errors(fit.constants).tolist()).mean  # in sample it looks better


def test_twins_are_never_predicted_from_each_other():
    cases = [gemm(m, 64, 64, a_t=a_t) for m in (32, 64, 128, 256, 512, 1024) for a_t in (0, 1)]
    folds = time_model.folds_of([time_model.sizes_of(case) for case in cases])

    assert folds[0::2] == folds[1::2]
    assert set(range(time_model.FOLDS)) == set(folds)


def test_neighbours_correct_what_no_formula_knows():
    cases = [gemm(m, n, k) for m in (256, 512, 1024) for n in (15, 16, 17, 64, 65) for k in (256, 300, 512, 1024)]
    times = {case: t * (3.0 if case.problem.n < 32 else 1.0) for case, t in times_of(cases).items()}
    fit = time_model.fit_cases("", list(times), list(times.values()), HARDWARE)

    columns = Columns.of(list(map(demand, cases)), list(times.values()), HARDWARE)
    assert benchmark("time_model").with_neighbours(fit, columns).mean < fit.errors.mean / 2


# ---- which fit


def test_the_narrowest_group_with_enough_problems_is_used():
    times = times_of(products(30))
    slower = {gemm(c.problem.m, c.problem.n, c.problem.k, backend="mkl"): 3 * t for c, t in times.items()}
    model = TimeModel(HARDWARE, times | slower)
    own, other = model.fit_of(gemm(99, 99, 99)), model.fit_of(gemm(99, 99, 99, backend="mkl"))

    assert ("onednn" in own.title, "mkl" in other.title) == (True, True)
    assert own.errors.mean < 0.05
    assert 3 * own.constants.step_s == pytest.approx(other.constants.step_s, rel=0.5)


def test_too_few_times_give_a_wider_group_and_then_the_roofline():
    times = times_of(products(30))
    few = {gemm(c.problem.m, c.problem.n, c.problem.k, backend="mkl"): t for c, t in list(times.items())[:3]}
    model = TimeModel(HARDWARE, times | few)

    assert "gemm f32" == model.fit_of(gemm(5, 5, 5, backend="mkl")).title
    roofline = model.fit_of(gemm(5, 5, 5, "i8"))
    assert (True, time_model.UNKNOWN_ERROR) == (roofline.is_roofline, roofline.errors.mean)
    only_few = TimeModel(HARDWARE, few)
    assert (True, 3) == (only_few.fit_of(gemm(5, 5, 5)).is_roofline, only_few.fit_of(gemm(5, 5, 5)).errors.count)
    assert "no operation has times of 8 problems" in only_few.sentence


def test_times_of_several_fits_count_once_and_are_pooled():
    """Products of onednn have a fit of their own, and those of mkl, of which there are few, one together with them."""
    times = times_of(products(30), noise=0.2)
    few = {gemm(c.problem.m, c.problem.n, c.problem.k, backend="mkl"): 5 * t for c, t in list(times.items())[:3]}
    model = TimeModel(HARDWARE, times | few)
    narrow, wide = model.fit_of(gemm(9, 9, 9)), model.fit_of(gemm(9, 9, 9, backend="mkl"))

    assert (len(times), len(times) + 3) == (narrow.errors.count, wide.errors.count)
    assert f"2 fits to {len(times) + 3} times of the file" in model.sentence
    assert Errors.of([*narrow.own.values(), *(wide.own[case] for case in few)]) == model.errors


def test_an_error_without_times_is_unknown_and_not_zero():
    assert Errors(1.0, 1.0, 1.0, 0) == Errors.of([])
    assert "no times" in TimeModel(HARDWARE, {}).sentence


# ---- published times


@pytest.mark.parametrize(
    ("sheet", "prototype"), [("v100", 0.082), ("t4", 0.124), ("p100", 0.156)], ids=["v100", "t4", "p100"]
)
def test_published_products_are_predicted_better_than_by_the_prototype(sheet, prototype):
    """The errors of the prototype with occupancy, by five folds."""
    hardware = Hardware.load(ROOT / "benchmarks" / "hardware" / f"{sheet}.toml")
    fit = benchmark("time_model").own_fit(hardware)

    assert 160 == fit.errors.count
    script = benchmark("time_model")
    assert script.with_neighbours(fit, script.columns_of(hardware)).mean < prototype
    assert script.roofline_errors(hardware).mean > fit.errors.mean
