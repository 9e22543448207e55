"""Change points: what ruptures proposes, and what the tests let through."""

import math
import random
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from deepbench.judge import change_points
from deepbench.judge.change_points import LEAST_SIDE, decide, noise_of, rank_sum_p


def two_sided(n, m, contrary):
    """By counting all orders."""
    found = Counter()
    for places in combinations(range(n + m), n):
        others = set(range(n + m)) - set(places)
        found[sum(a > b for a in places for b in others)] += 1
    return min(1.0, 2 * sum(count for u, count in found.items() if u <= contrary) / math.comb(n + m, n))


@pytest.mark.parametrize(("n", "m"), [(3, 3), (3, 7), (6, 4), (5, 6)])
def test_the_rank_test_counts_all_orders(n, m):
    """Of values that differ, moving one of them past k others makes k pairs contrary."""
    for contrary in range(m):
        a = [*range(n - 1), n - 1 + contrary + 0.5]
        b = [n - 1 + i for i in range(1, m + 1)]
        assert contrary == sum(x > y for x in a for y in b)
        p = rank_sum_p(a, b)
        if p <= 0.2:
            assert two_sided(n, m, contrary) == pytest.approx(p, rel=1e-9)
        else:
            assert two_sided(n, m, contrary) > 0.1


def test_the_rank_test_is_symmetric_and_equal_values_count_against_a_difference():
    low, high = [1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]

    assert rank_sum_p(low, high) == rank_sum_p(high, low) == pytest.approx(2 / math.comb(10, 5))
    assert rank_sum_p(low, [5.0, *high[1:]]) == rank_sum_p(low, [4.5, *high[1:]])
    assert 1.0 == rank_sum_p([1.0] * 20, [1.0] * 20)


def test_the_rank_test_of_many_values_has_a_small_p_and_no_overflow():
    a, b = list(range(1000)), list(range(1000, 2000))

    assert 0 <= rank_sum_p(a, b) < 1e-100
    assert pytest.approx(2 / math.comb(5003, 3), rel=1e-9) == rank_sum_p(range(3), range(3, 5003))


def test_the_rank_test_agrees_with_scipy():
    scipy = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    generator = random.Random(1)
    for n, m, shift in ((5, 9, 2.0), (12, 20, 1.0), (40, 45, 0.8), (50, 300, 0.6)):
        a, b = [generator.gauss(0, 1) for _ in range(n)], [generator.gauss(shift, 1) for _ in range(m)]
        expected = scipy.mannwhitneyu(a, b, method="exact").pvalue
        assert expected < 0.2
        assert expected == pytest.approx(rank_sum_p(a, b), rel=1e-6)


def test_noise_is_that_around_the_levels():
    generator = random.Random(2)
    values = [generator.gauss(0 if i < 50 else 5, 0.02) for i in range(100)]

    assert 0.02 == pytest.approx(noise_of(np.array(values)), rel=0.3)
    assert np.std(values) > 2


def series(count, at=None, change=0.1, noise=0.01, seed=0):
    generator = random.Random(seed)
    return [generator.gauss(change if at is not None and i >= at else 0.0, noise) for i in range(count)]


def test_a_point_needs_both_a_large_change_and_a_small_p():
    clear, small, noisy = series(40, 20), series(40, 20, change=0.01, noise=0.001), series(40, 20, 0.05, noise=0.2)
    found = decide([clear, small, noisy], [[20], [20], [20]])

    assert [[20], [], []] == [[c.at for c in changes] for changes in found]
    (change,) = found[0]
    assert math.exp(0.1) == pytest.approx(change.ratio, rel=0.01)
    assert 1.0 == pytest.approx(change.before_s, rel=0.01)
    assert 0 < change.p < 1e-6
    assert [[20]] == [[c.at for c in changes] for changes in decide([small], [[20]], margin=0.005)]


def test_a_point_too_many_is_given_up_and_the_others_stay():
    (found,) = decide([series(60, 30)], [[12, 30, 33, 50]])

    assert [30] == [c.at for c in found]


def test_two_changes_are_two_points_with_the_levels_between():
    values = [*series(20), *(v + 0.1 for v in series(20, seed=1)), *(v + 0.05 for v in series(20, seed=2))]
    (found,) = decide([values], [[20, 40]])

    assert [20, 40] == [c.at for c in found]
    assert found[0].after_s == found[1].before_s
    assert found[0].ratio > 1 > found[1].ratio


def test_more_cases_need_more_evidence():
    """Of five runs before and five after, the smallest p-value is 0.008 at each of five places: enough for one case."""
    one = series(10, 5)
    alone, among = decide([one], [[5]]), decide([one, *(series(10, seed=i) for i in range(1, 20))], [[5], *[[]] * 19])

    assert 1 == len(alone[0])
    assert 0 == len(among[0])
    assert pytest.approx(2 / math.comb(10, 5) * (10 - 2 * LEAST_SIDE + 1)) == alone[0][0].p


def test_series_that_are_too_short_have_no_points_and_count_as_no_test():
    one = series(10, 5)
    found = decide([one, *[[0.0] * 5] * 50, []], [[5], *[[]] * 51])

    assert [1, *[0] * 51] == [len(changes) for changes in found]


# ---- with ruptures


@pytest.fixture
def ruptures():
    return pytest.importorskip("ruptures", reason="ruptures is not installed")


def times(values):
    return [math.exp(v) for v in values]


@pytest.mark.usefixtures("ruptures")
def test_a_step_is_found_at_its_place_and_noise_is_not():
    (step, noise, short) = change_points.find([times(series(60, 37)), times(series(60, seed=5)), [1.0, 2.0]])

    assert [37] == [c.at for c in step]
    assert noise == short == []


@pytest.mark.usefixtures("ruptures")
def test_outliers_are_no_levels_and_do_not_hide_one():
    values = series(60, 30, change=0.05)
    for at in (5, 17, 27, 44):
        values[at] += 1.0
    (found,) = change_points.find([times(values)])

    assert [30] == [c.at for c in found]


@pytest.mark.usefixtures("ruptures")
def test_a_host_that_becomes_slower_over_weeks_has_steps_that_add_up():
    generator = random.Random(3)
    values = [0.003 * i + generator.gauss(0, 0.005) for i in range(60)]
    (found,) = change_points.find([times(values)])

    assert len(found) >= 1
    assert all(c.ratio > 1.02 for c in found)
    assert 1.08 < found[-1].after_s / found[0].before_s < 1.2


def test_autocorrelated_noise_needs_more_evidence():
    """The same levels with the same noise: in random order they are a change, in rising order they may not be one."""
    before, after = sorted(series(12)), sorted(series(12, 0, change=0.03, seed=1))
    mixed = [random.Random(6).sample(side, len(side)) for side in (before, after)]
    (rising,), (random_order,) = (decide([[*a, *b]], [[12]], margin=0.01) for a, b in ((before, after), tuple(mixed)))

    assert [12] == [c.at for c in random_order]
    assert not rising or rising[0].p > 10 * random_order[0].p


@pytest.mark.usefixtures("ruptures")
def test_equal_times_have_no_change_and_a_step_between_equal_times_has_one():
    flat, step = change_points.find([[1e-3] * 50, [1e-3] * 25 + [1.2e-3] * 25])

    assert [] == flat
    assert [25] == [c.at for c in step]


@pytest.mark.usefixtures("ruptures")
@pytest.mark.parametrize("noise", ["normal", "heavy", "slow runs"])
def test_independent_noise_has_next_to_no_change_points(noise):
    """60 histories of 10 cases: Holm's correction allows one in twenty with any point; measured are fewer."""
    generator = random.Random(4)

    def value():
        if noise == "normal":
            return generator.gauss(0, 0.03)
        if noise == "heavy":
            return 0.02 * generator.gauss(0, 1) / math.sqrt(sum(generator.gauss(0, 1) ** 2 for _ in range(3)) / 3)
        return generator.gauss(0, 0.01) + (0.4 if generator.random() < 0.1 else 0.0)

    with_points = 0
    for _ in range(60):
        found = change_points.find([times(value() for _ in range(30)) for _ in range(10)])
        with_points += any(found)
    assert with_points <= 5


def test_without_ruptures_the_error_has_the_remedy(monkeypatch):
    from deepbench.core.errors import Unavailable

    monkeypatch.setitem(__import__("sys").modules, "ruptures", None)
    with pytest.raises(Unavailable, match=r"change points need ruptures .*; pip install ruptures"):
        change_points.find([[1.0] * 10])
