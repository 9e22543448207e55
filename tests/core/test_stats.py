"""Medians, quartiles, intervals and undisturbed samples, on known numbers."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepbench.core import stats

times = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=40)


def undisturbed(samples, cpu=None, switches=None, steal=None, calls=1, queued=None):
    n = len(samples)
    return stats.undisturbed(samples, cpu or samples, switches or [0] * n, steal or [0.0] * n, calls, queued)


def test_a_sample_without_interference_is_undisturbed():
    assert [True, True] == undisturbed([1e-3, 1e-3])


def test_one_switch_disturbs_a_short_sample_but_not_one_of_10_ms():
    assert [False, True, True, True] == undisturbed([1e-3] * 4, switches=[1, 0, 0, 0])
    assert [True, False, True, True] == undisturbed([50e-3] * 4, switches=[5, 6, 0, 0])


def test_usual_switches_of_a_library_do_not_disturb():
    assert [True, True, True, False] == undisturbed([1e-3] * 4, switches=[18, 18, 18, 19])


def test_steal_disturbs_a_sample_and_unknown_steal_does_not():
    assert [False, True, True] == undisturbed([1e-3] * 3, steal=[0.01, 0.0, None])


def test_a_sample_with_less_cpu_than_the_others_is_disturbed():
    assert [True, True, True, False] == undisturbed([1e-3] * 4, cpu=[2e-3, 2e-3, 2e-3, 1.5e-3])


def test_the_usual_cpu_time_of_a_library_does_not_disturb():
    assert all(undisturbed([1e-3] * 4, cpu=[0.3e-3] * 4))


def test_a_library_that_sleeps_in_most_samples_is_slow_by_itself_and_one_that_waits_for_a_cpu_is_not():
    times, cpu = [1e-3, 21e-3, 21e-3, 21e-3, 1e-3], [1e-3] * 5

    assert [True] * 5 == undisturbed(times, cpu, queued=[0.0, 1e-4, 0.0, 2e-3, 0.0])
    assert [True, False, False, False, True] == undisturbed(times, cpu, queued=[0.0, 20e-3, 18e-3, 15e-3, 0.0])
    # Without queued times, or with stolen time, nothing is known of sleep.
    assert [True, False, False, False, True] == undisturbed(times, cpu)
    assert [True, False, False, False, True] == undisturbed(times, cpu, queued=[None] * 5)
    assert [False, False, False, False, True] == undisturbed(times, cpu, steal=[0.01, *[0.0] * 4], queued=[0.0] * 5)


def test_threads_that_wait_for_one_without_a_cpu_do_not_sleep():
    """One of four threads waits for a CPU, and the others for it."""
    times, cpu = [1e-3] * 4 + [5e-3], [4e-3] * 5

    assert [True] * 4 + [False] == undisturbed(times, cpu, queued=[0.0] * 4 + [4e-3])


def test_cpu_time_is_per_sample_and_times_are_per_call():
    assert all(undisturbed([1e-5] * 4, cpu=[2e-3] * 4, calls=100))


def test_a_process_is_summarized_by_the_median_of_its_undisturbed_samples():
    assert (2.0, 0.6, False) == stats.process_median([1.0, 9.0, 2.0, 3.0, 8.0], [True, False, True, True, False])


def test_with_fewer_than_three_undisturbed_samples_all_are_used():
    assert (3.0, 0.4, True) == stats.process_median([1.0, 2.0, 3.0, 8.0, 9.0], [True, True, False, False, False])


def test_a_single_undisturbed_sample_is_enough():
    assert (5.0, 1.0, False) == stats.process_median([5.0], [True])


@pytest.mark.parametrize(
    ("values", "expected"),
    [([5], 5), ([8, 4], 5), ([3, 1, 2], 1.5), ([4, 3, 2, 1], 1.75), ([5, 4, 3, 2, 1], 2), (range(9), 2)],
)
def test_the_lower_quartile_is_interpolated(values, expected):
    assert expected == stats.lower_quartile(list(values))


def test_one_slow_process_of_five_changes_neither_time_nor_interval():
    quiet = stats.estimate_time([1.0, 1.01, 1.02, 1.03, 1.04], [1.0] * 5)
    disturbed = stats.estimate_time([1.0, 1.01, 1.02, 1.03, 9.0], [1.0] * 5)

    assert (quiet.time_s, quiet.low_s, quiet.high_s) == (disturbed.time_s, disturbed.low_s, disturbed.high_s)


def test_one_process_gives_no_interval():
    only = stats.estimate_time([2.0], [0.5])

    assert (2.0, None, None, 0.5) == (only.time_s, only.low_s, only.high_s, only.undisturbed_fraction)
    assert only.half_width is None


@given(times.filter(lambda v: len(v) > 1))
def test_the_interval_contains_the_time_and_scales_with_it(values):
    one = stats.estimate_time(values, [1.0] * len(values))
    scaled = stats.estimate_time([2 * v for v in values], [1.0] * len(values))

    assert one.low_s <= one.time_s <= one.high_s
    assert math.isclose(2 * one.time_s, scaled.time_s)
    assert math.isclose(2 * one.low_s, scaled.low_s, rel_tol=1e-6)


@given(times)
def test_the_interval_of_a_median_contains_the_median(values):
    interval = stats.median_interval(values)

    if len(values) < 6:
        assert interval is None
    else:
        assert interval[0] <= sorted(values)[len(values) // 2] <= interval[1]


def test_the_interval_of_a_median_has_95_percent_coverage():
    import random

    generator = random.Random(3)
    for n in (6, 9, 20, 50):
        hits = 0
        for _ in range(2000):
            low, high = stats.median_interval([generator.gauss(0, 1) for _ in range(n)])
            hits += low <= 0 <= high
        assert hits / 2000 > 0.935, n


def test_the_interval_across_processes_has_95_percent_coverage():
    import random

    generator = random.Random(4)
    for n in (2, 3, 5, 10, 30):
        found = [
            stats.estimate_time([math.exp(0.05 * generator.gauss(0, 1)) for _ in range(n)], [1.0] * n)
            for _ in range(4000)
        ]
        centre = math.exp(sum(math.log(e.time_s) for e in found) / len(found))
        hits = sum(e.low_s <= centre <= e.high_s for e in found)
        assert 0.935 < hits / len(found) < 0.975, n


def test_below_six_heats_nothing_is_trimmed():
    values = [0.01, -0.02, 0.03, 0.4, 0.0]

    assert stats.difference_of_pairs(values) == stats.trimmed_difference(values)
    assert stats.trimmed_difference([0.1]) is None


def test_one_slow_process_changes_a_ratio_of_heats_little():
    usual = [0.010, 0.012, 0.008, 0.011, 0.009, 0.010]
    robust = stats.trimmed_difference([*usual, 0.7])

    assert robust.mean == pytest.approx(0.010, abs=0.001)
    assert robust.half_width_at_most(0.01)
    assert not stats.difference_of_pairs([*usual, 0.7]).half_width_at_most(0.1)


@pytest.mark.parametrize("outliers", [0.0, 0.1])
@pytest.mark.parametrize("heats", [6, 10, 15])
def test_the_interval_of_a_ratio_of_heats_has_95_percent_coverage(heats, outliers):
    rng, hits, trials = random.Random(3), 0, 2000
    for _ in range(trials):
        values = [rng.gauss(0, 0.3 if rng.random() < outliers else 0.01) for _ in range(heats)]
        low, high = stats.trimmed_difference(values).interval()
        hits += low <= 0 <= high

    assert 0.93 < hits / trials < 0.985
