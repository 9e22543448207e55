"""What a change does: to a kernel, to an application, and how certain that is."""

import math
import random
from dataclasses import replace

import pytest

from deepbench.networks.what_if import effects
from deepbench.networks.what_if.knobs import Change
from deepbench.networks.what_if.terms import ModelledApplication, Term
from deepbench.networks.what_if.time_model import Constants, parts_of
from tests.networks.test_time_model import HARDWARE, TRUE, demand, gemm, products, times_of

COMPUTES = gemm(1024, 1024, 1024)


def term(case, seconds, count=1, interval=0.0, **fields):
    ends = (seconds * (1 - interval), seconds * (1 + interval)) if interval is not None else (None, None)
    return Term(case, case.text, count, seconds, *ends, 0, 0, **fields)


def exact(*cases, constants=TRUE):
    """An application whose times follow the model with these constants, and the model that was fitted to such times."""
    times = times_of([*products(60), *cases], constants)
    application = ModelledApplication("a network", [term(case, times[case]) for case in cases])
    model = effects.model_of([application], HARDWARE, [term(c, t) for c, t in times.items()])
    return application, model


def true_ratio(case, change):
    after = HARDWARE.replace(*Change.parse(change).knobs)
    seconds = (parts_of(demand(case), h, TRUE, 1e-6).seconds for h in (after, HARDWARE))
    return next(seconds) / next(seconds)


# ---- one change


@pytest.mark.parametrize("change", ["peak.f32*2", "memory.bytes_per_s*2", "overhead.call_s/2", "peak*4", "peak/2"])
@pytest.mark.parametrize("case", [COMPUTES, gemm(16, 16, 16), gemm(2048, 16, 2048)], ids=["compute", "call", "memory"])
def test_a_change_scales_the_measurement_as_the_true_model_would(case, change):
    application, model = exact(case)
    ratio = effects.what_if(application, model, Change.parse(change)).ratio

    assert true_ratio(case, change) == pytest.approx(ratio.value, rel=0.1)
    assert ratio.low <= true_ratio(case, change) <= ratio.high


def test_what_the_model_misses_of_a_kernel_stays_in_its_time():
    application, model = exact(COMPUTES)
    slow = ModelledApplication("", [replace(application.terms[0], seconds=10 * application.seconds)])
    found = effects.what_if(slow, model, Change.parse("peak.f32*2"))

    assert 10 * application.seconds * true_ratio(COMPUTES, "peak.f32*2") == pytest.approx(found.after_s, rel=0.1)


def test_nothing_changes_without_knobs():
    application, model = exact(COMPUTES, gemm(16, 16, 16))
    found = effects.what_if(application, model, Change(()))

    assert (1.0, 1.0, 1.0) == pytest.approx((found.ratio.value, found.ratio.low, found.ratio.high))
    assert found.before_s == found.after_s


def test_no_interval_is_outside_of_what_is_possible():
    noisy = times_of(products(40), noise=0.8)
    application = ModelledApplication("", [term(case, seconds, interval=0.9) for case, seconds in noisy.items()])
    model = effects.model_of([application], HARDWARE)
    for text in ("peak.f32*2", "memory.bytes_per_s*2", "peak.f32*2,memory.all.bytes_per_s*2,overhead.call_s/2"):
        found = effects.what_if(application, model, Change.parse(text))

        for r in (found.ratio, *(e.ratio for e in found.effects)):
            assert 0.5 - 1e-9 <= r.low <= r.value <= r.high <= 1 + 1e-9


def test_everything_twice_as_fast_is_twice_as_fast_and_certain():
    noisy = times_of(products(40), noise=0.5)
    application = ModelledApplication("", [term(case, seconds) for case, seconds in noisy.items()])
    model = effects.model_of([application], HARDWARE)
    found = effects.what_if(application, model, Change.parse("peak*2,memory.all.bytes_per_s*2,overhead.call_s/2"))

    assert 2 == pytest.approx(found.speed_up.value)
    assert 2 == pytest.approx(found.speed_up.high)
    assert found.effects[0].ratio.low == pytest.approx(0.5)


def test_a_worse_model_gives_a_wider_interval():
    widths = []
    for noise in (0.01, 0.5):
        times = times_of([*products(60), COMPUTES], noise=noise)
        application = ModelledApplication("", [term(COMPUTES, times[COMPUTES])])
        model = effects.model_of([application], HARDWARE, [term(c, t) for c, t in times.items()])
        found = effects.what_if(application, model, Change.parse("peak.f32*2"))
        widths.append(found.ratio.high - found.ratio.low)

    assert 2 * widths[0] < widths[1]


def test_intervals_of_one_kernel_cover_true_ratios_of_kernels_that_differ_from_the_formula():
    """Each kernel has its own efficiencies, which the model cannot know."""
    sizes = products(120, seed=5)
    chance = random.Random(4)
    own = {c: Constants(5e-6, 0.8 * chance.uniform(0.5, 1.2), 0.6 * chance.uniform(0.5, 1.2), 2.0) for c in sizes}
    times = {c: parts_of(demand(c), HARDWARE, own[c], 1e-6).seconds for c in own}
    application = ModelledApplication("", [term(c, t) for c, t in times.items()])
    model = effects.model_of([application], HARDWARE)
    for text in ("peak.f32*2", "memory.all.bytes_per_s*2"):
        found = effects.what_if(application, model, Change.parse(text))
        after = HARDWARE.replace(*Change.parse(text).knobs)
        true = {c: parts_of(demand(c), after, own[c], 1e-6).seconds / times[c] for c in times}
        inside = [e.ratio.low - 1e-6 <= true[e.term.case] <= e.ratio.high + 1e-6 for e in found.effects]
        whole = sum(true[c] * t for c, t in times.items()) / sum(times.values())

        assert sum(inside) / len(inside) >= 0.9
        assert found.ratio.low <= whole <= found.ratio.high


def test_counts_weigh_kernels():
    reads, computes = gemm(2048, 16, 2048), COMPUTES
    application, model = exact(reads, computes)
    often = ModelledApplication("", [replace(application.terms[0], count=10_000), application.terms[1]])
    change = Change.parse("peak.f32*2")

    assert effects.what_if(often, model, change).ratio.value > effects.what_if(application, model, change).ratio.value


def test_the_bound_moves_to_what_did_not_change():
    application, model = exact(COMPUTES)
    found = effects.what_if(application, model, Change.parse("peak.f32*1000"))

    assert "compute" == next(iter(found.bound_before))
    assert "main" == next(iter(found.bound_after))
    assert 1 == pytest.approx(sum(found.bound_after.values()))


# ---- times of libraries


def test_a_faster_library_is_used_where_it_becomes_the_fastest():
    mine = gemm(512, 8, 512)
    theirs = gemm(512, 8, 512, backend="mkl")
    slower = term(theirs, 1.5e-3)
    application, model = exact(COMPUTES)
    application = ModelledApplication("", [term(mine, 1e-3, rivals=(slower,)), term(COMPUTES, 1e-2)])
    half = effects.what_if(application, model, Change.parse("time.mkl/2 where n<=8"))
    less = effects.what_if(application, model, Change.parse("time.mkl*0.9 where n<=8"))
    elsewhere = effects.what_if(application, model, Change.parse("time.mkl/2 where n>8"))

    assert (1.075e-2, "mkl", None) == (pytest.approx(half.after_s), half.effects[0].library, half.effects[1].library)
    assert half.ratio.low == pytest.approx(half.ratio.high)  # the model says nothing about it
    assert 1.1e-2 == pytest.approx(less.after_s) == pytest.approx(elsewhere.after_s)


def test_the_interval_of_a_sum_has_what_the_measured_times_leave_open():
    """A term is twice as fast and the other as before: the measured times decide how much each counts."""
    halved, same = gemm(512, 8, 512, backend="mkl"), COMPUTES
    application = ModelledApplication("", [term(halved, 1.0, interval=0.1), term(same, 1.0, interval=0.1)])
    found = effects.what_if(application, exact(same)[1], Change.parse("time.mkl/2"))

    assert (0.75, 0.725, 0.775) == pytest.approx((found.ratio.value, found.ratio.low, found.ratio.high))


def test_hardware_leaves_kernels_on_their_library():
    application, model = exact(COMPUTES)
    rival = term(gemm(1024, 1024, 1024, backend="mkl"), 1.001 * application.seconds)
    application = ModelledApplication("", [replace(application.terms[0], rivals=(rival,))])

    assert effects.what_if(application, model, Change.parse("peak.f32*2")).effects[0].library is None


# ---- terms that are no kernel of ours


def test_other_operators_depend_on_memory_and_overhead_on_operators():
    hardware = HARDWARE.replace("overhead.operator_s=3e-6")
    other = Term(None, "other operators", 1, 1e-2, None, None, 0, 100_000_000)
    overhead = Term(None, "operators", 100, 3e-6, None, None, 0, 0)
    application = ModelledApplication("", [other, overhead])
    model = effects.model_of([application], hardware)
    reads, calls = (
        effects.what_if(application, model, Change.parse(t)) for t in ("memory.bytes_per_s*2", "overhead.operator_s/2")
    )

    assert 0.5 == pytest.approx(reads.effects[0].ratio.value, rel=1e-3)
    assert (1.0, 1.0) == (reads.effects[1].ratio.value, calls.effects[0].ratio.value)
    assert 0.5 == pytest.approx(calls.effects[1].ratio.value)
    there = effects.elsewhere(application, model, hardware.replace("overhead.operator_s*3"))
    assert 9e-6 == pytest.approx(there.parts[1][1].seconds)
    assert "operators" == calls.effects[1].after.bound


# ---- sensitivity


@pytest.mark.parametrize("units", [(), ("units=24",)])
def test_elasticities_of_all_rates_and_fixed_costs_add_up_to_minus_one(units):
    """A machine on which everything is 1 % faster takes 1 % less time."""
    hardware = HARDWARE.replace(*units)
    times = times_of(products(40), noise=0.3)
    application = ModelledApplication("", [term(case, seconds) for case, seconds in times.items()])
    model = effects.model_of([application], hardware)
    found = {s.knob: s.elasticity for s in effects.sensitivity(application, model)}
    rates = [e for knob, e in found.items() if e is not None and not effects.is_fixed_cost(knob)]
    costs = [e for knob, e in found.items() if e is not None and effects.is_fixed_cost(knob)]

    assert {"peak.f32", "memory.main.bytes_per_s", "memory.L1.bytes_per_s", "overhead.call_s"} <= set(found)
    assert "peak.bf16" not in found
    assert -1 == pytest.approx(sum(rates) - sum(costs), abs=0.01)
    assert all(e <= 1e-9 for e in rates)
    assert all(e >= -1e-9 for e in costs)


def in_bf16(hardware):
    """The elasticities of a product in bf16 that computes, on this hardware."""
    case = gemm(2048, 2048, 2048, "bf16")
    application = ModelledApplication("", [term(case, 1.0)])
    return {s.knob: s.elasticity for s in effects.sensitivity(application, effects.model_of([application], hardware))}


def test_the_peak_of_f32_matters_where_it_is_the_only_one():
    found = in_bf16(replace(HARDWARE, peak={"f32": 1e11}))

    assert "peak.f32" == next(iter(found))
    assert found["peak.f32"] < -0.9


def test_a_peak_that_equals_that_of_f32_has_its_full_elasticity():
    found = in_bf16(replace(HARDWARE, peak={"f32": 1e11, "bf16": 1e11}))

    assert found["peak.bf16"] < -0.9


def test_the_knob_that_helps_most_is_first():
    application, model = exact(COMPUTES)
    found = effects.sensitivity(application, model)

    assert "peak.f32" == found[0].knob
    assert found[0].elasticity < -0.8
    assert found[0].twice.speed_up.value == max(s.twice.speed_up.value for s in found)


def test_a_size_of_memory_has_no_elasticity_but_an_effect():
    held = gemm(700, 16, 700)  # 2 MB of L2 hold it, and 1 MB do not
    application, model = exact(held)
    found = {s.knob: s for s in effects.sensitivity(application, model)}

    assert found["memory.L2.bytes"].elasticity is None
    assert found["memory.L2.bytes"].twice.speed_up.value > 1.5


# ---- another device


def test_elsewhere_there_is_only_the_model_with_a_wide_interval():
    application, model = exact(COMPUTES)
    other = HARDWARE.replace("peak*2", "memory.all.bytes_per_s*2", "overhead.call_s/2")
    found = effects.elsewhere(application, model, other)

    assert application.seconds / 2 == pytest.approx(found.seconds, rel=0.1)
    assert found.high_s / found.low_s == pytest.approx(effects.OTHER_DEVICE**2)
    assert math.isclose(1, sum(found.bound.values()))


def test_alternatives_of_one_value_are_not_multiplied():
    application, model = exact(COMPUTES)

    def columns(*words):
        found = effects.ChangeEffects(model, [application], [Change.parse(word) for word in words])
        return [change.text for change in found.columns]

    assert ["peak.f32*2", "peak.f32*4"] == columns("peak.f32*2", "peak.f32*4")
    assert "peak.f32*2, memory.bytes_per_s*2" == columns("peak.f32*2", "memory.bytes_per_s*2")[-1]
    assert ["peak.f32*2"] == columns("peak.f32*2")
