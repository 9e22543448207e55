"""Which of several equal things is slower."""

import math
import random
import statistics
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepbench.judge import outliers


def noisy(rng, floor, count):
    """Times as shared machines have them: a floor, and now and then much more."""
    return [floor * (1 + rng.expovariate(20)) for _ in range(count)]


def test_a_host_that_is_10_percent_slower_is_the_only_outlier():
    rng = random.Random(1)
    times = {name: noisy(rng, 1.1 if name == "c" else 1.0, 15) for name in "abcd"}
    result = outliers.deviations(times, 1.05)

    assert ["c"] == [name for name, s in result.items() if s.slower]
    assert result["c"].ratio == pytest.approx(1.1, abs=0.03)


@pytest.mark.parametrize("hosts", [2, 4, 16])
def test_equal_hosts_are_almost_never_outliers(hosts):
    rng = random.Random(hosts)
    accused = 0
    for _ in range(300):
        times = {str(i): noisy(rng, 1.0, 5) for i in range(hosts)}
        accused += any(s.slower for s in outliers.deviations(times, 1.0).values())

    assert accused <= 3


def test_few_slow_times_are_undecided():
    result = outliers.deviations({"a": [1.2, 1.2], "b": [1.0, 1.3], "c": [1.0, 1.0]}, 1.05)

    assert result["a"].undecided
    assert not result["a"].slower


def test_the_p_value_is_exact():
    """Of 4 values two are ours; that the lower of ours is the third smallest or higher happens in 1 of 6 draws."""
    assert pytest.approx(1 / 6) == outliers.precedence_p([3.0, 4.0], [1.0, 2.0, 3.0, 4.0])
    assert 1.0 == outliers.precedence_p([1.0, 4.0], [1.0, 2.0, 3.0, 4.0])
    assert 1.0 == outliers.precedence_p([1.0, 1.0], [1.0] * 4)  # ties accuse nobody


@given(st.data())
def test_the_probability_of_a_rank_is_that_of_its_definition(data):
    n = data.draw(st.integers(1, 40))
    count = data.draw(st.integers(n, 2000))
    k = data.draw(st.sampled_from(outliers.tested_ranks(n)))
    below = data.draw(st.integers(0, count - (n - k + 1)))  # n - k + 1 of ours are not below the k-th of them
    draws = sum(math.comb(below, i) * math.comb(count - below, n - i) for i in range(k))

    assert draws / math.comb(count, n) == outliers.rank_p(n, count, below, k)


@given(st.lists(st.floats(1e-12, 1e9), min_size=2, max_size=30), st.data())
def test_the_median_of_the_others_is_found_by_rank(values, data):
    own = data.draw(st.sampled_from(values))
    others = sorted(values)
    others.remove(own)

    assert statistics.median_low(others) == outliers.low_median_without(sorted(values), own)


def test_of_three_hosts_a_slow_one_does_not_make_the_others_look_fast():
    result = outliers.deviations({"a": [1.0] * 7, "b": [1.0] * 7, "c": [2.5] * 7}, 1.05)

    assert {"a": 1.0, "b": 1.0, "c": 2.5} == {name: s.ratio for name, s in result.items()}


def best(things, runs, factor=2.0):
    """Times of equal things without any noise, but of the last, which is slower in every run."""
    times = {i: [1.0 + (i * runs + run) * 1e-6 for run in range(runs)] for i in range(things)}
    return {**times, things - 1: [factor * t for t in times[things - 1]]}


@pytest.mark.parametrize(("things", "runs"), [(2, 8), (3, 6), (4, 5), (6, 4), (16, 3)])
def test_so_many_runs_can_find_a_slow_thing_and_one_fewer_cannot(things, runs):
    """By hand for 3 things, with two tests: 2 · 3 / C(18, 6) is 0.0003, and 2 · 3 / C(15, 5) is 0.002."""
    assert runs == outliers.least_runs(things, things)
    found, missed = (outliers.deviations(best(things, n), 1.05)[things - 1] for n in (runs, runs - 1))

    assert (True, False) == (found.slower, found.undecided)
    assert (False, True) == (missed.slower, missed.undecided)
    assert 1 == missed.more_runs
    assert missed.detectable is None
    assert found.detectable is not None


@given(st.integers(2, 40), st.integers(1, 160))
def test_more_runs_never_reach_less(things, tests):
    """From the fifth run on there are two tests."""
    least = outliers.least_runs(things, tests)
    assert all(outliers.least_runs(things, tests, n) == max(n, least) for n in range(1, least + 6))


def test_the_smallest_time_finds_a_slow_thing_among_runs_that_are_hit():
    """Every fourth run of each takes half as long again; by the lower quartile alone, p would be 0.02."""
    times = {i: [(1 + 0.001 * ((i + n) % 5)) * (1.5 if (n + i) % 4 == 3 else 1) for n in range(10)] for i in range(4)}
    times[0] = [1.11 * t for t in times[0]]
    found = outliers.deviations(times, 1.05)

    assert [True, False, False, False] == [found[i].slower for i in range(4)]


def test_more_tests_need_more_runs():
    assert [5, 6] == [outliers.least_runs(4, tests) for tests in (4, 16)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("hosts", "runs"), [(3, 9), (4, 15)])
def test_a_slowdown_from_the_detectable_one_on_is_found_and_a_smaller_one_is_not(seed, hosts, runs):
    rng = random.Random(seed)
    times = {i: noisy(rng, 1.0, runs) for i in range(hosts)}
    before = outliers.deviations(times, 1.05)[0]
    assert before.detectable is not None

    def scaled(share):
        """The deviation of a host whose ratio is this share of what can be detected."""
        factor = share * before.detectable / before.ratio
        return outliers.deviations({**times, 0: [factor * t for t in times[0]]}, 1.05)[0]

    assert scaled(1.001).slower
    assert not scaled(0.999).slower


@pytest.mark.alone
def test_ten_thousand_hosts_take_seconds():
    """It was about a square: ten minutes of so many."""
    rng = random.Random(1)
    times = {i: noisy(rng, 1.0, 6) for i in range(10_000)}
    times[17] = [1.5 * t for t in times[17]]
    start = time.process_time()
    found = outliers.deviations(times, 1.05)

    assert [17] == [i for i, s in found.items() if s.slower]
    assert time.process_time() - start < 4


def test_in_a_fleet_of_different_hosts_an_outlier_must_exceed_their_spread():
    times = {str(i): [1 + 0.03 * i] * 20 for i in range(7)}
    assert not any(s.slower for s in outliers.deviations(times, 1.05).values())
    assert outliers.deviations({**times, "7": [1.9] * 20}, 1.05)["7"].slower


def test_a_single_host_or_one_without_times_has_no_deviation():
    assert {} == outliers.deviations({"a": [1.0]}, 1.05)
    assert {"a", "b"} == set(outliers.deviations({"a": [1.0], "b": [1.0], "c": []}, 1.05))


def test_kernels_have_equal_weight_and_incomplete_ones_are_left_out():
    times = {
        "long": {"a": [100.0, 100.0], "b": [110.0, 110.0]},
        "short": {"a": [1.0, 1.0], "b": [1.1, 1.1]},
        "failed once": {"a": [1.0, 1.0], "b": [9.0]},
    }
    result = outliers.combined_times(times)

    assert [pytest.approx(1.1)] * 2 == [b / a for a, b in zip(result["a"], result["b"], strict=True)]


def test_a_thing_with_other_kernels_does_not_keep_the_rest_from_being_compared():
    two_threads = {"a": [1.0, 1.0], "b": [1.1, 1.1], "c": [1.0, 1.0]}
    times = {"threads=2": two_threads, "threads=1": {"d": [2.0, 2.0]}}

    assert {"a", "b", "c"} == set(outliers.combined_times(times))
    assert {} == outliers.combined_times({"threads=2": {"a": [1.0]}, "threads=1": {"d": [2.0]}})


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_in_a_tournament_every_pair_meets_once_and_nobody_twice_per_round(count):
    names = [str(i) for i in range(count)]
    rounds = outliers.tournament(names)
    met = [frozenset(pair) for pairs in rounds for pair in pairs]

    assert count * (count - 1) // 2 == len(met) == len(set(met))
    for pairs in rounds:
        playing = [name for pair in pairs for name in pair]
        assert len(playing) == len(set(playing))
    assert rounds[:2] == outliers.tournament(names, 2)
