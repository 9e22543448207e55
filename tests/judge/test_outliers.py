"""Which of several equal things is slower."""

import random

import pytest

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
    assert pytest.approx(1 / 6) == outliers.precedence_p([3.0, 4.0], [1.0, 2.0])
    assert 1.0 == outliers.precedence_p([1.0, 4.0], [2.0, 3.0])
    assert 1.0 == outliers.precedence_p([1.0, 1.0], [1.0, 1.0])  # ties accuse nobody


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
