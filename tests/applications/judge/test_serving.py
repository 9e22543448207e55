"""Percentiles that are certain, arrivals at random, and answers that are right."""

import itertools
import math
import statistics

import numpy as np
import pytest

from deepbench.applications.judge import serving
from deepbench.applications.judge.serving import (
    bound_rank,
    least_queries,
    most_late,
    percentile_bound,
    poisson_arrivals,
)


@pytest.mark.parametrize(("share", "queries"), [(0.9, 44), (0.9, 70), (0.9, 1000), (0.99, 459), (0.99, 1500)])
def test_the_bound_is_above_the_percentile_in_99_of_100_cases(share, queries):
    """Latencies with many slow ones; the true percentile is known. One rank lower would be above it too rarely."""
    rank, cases = bound_rank(queries, share), 40_000
    chance = np.random.default_rng(1)
    uniform = np.concatenate(
        [np.sort(chance.random((cases // 20, queries)), axis=1)[:, rank - 2 : rank] for _ in range(20)]
    )
    latencies, truth = (1 - uniform) ** -0.5, (1 - share) ** -0.5  # Pareto: monotone in the uniform numbers
    below, at = (latencies >= truth).mean(axis=0)
    error = math.sqrt(0.01 * 0.99 / cases)

    assert at > 0.99 - 4 * error
    assert below < 0.99 + 4 * error
    assert latencies[:, 1].mean() < 10 * truth


@pytest.mark.parametrize(("share", "least"), [(0.9, 44), (0.99, 459)])
def test_too_few_queries_bound_nothing(share, least):
    assert least == least_queries(share)
    assert bound_rank(least, share) == least
    assert None is bound_rank(least - 1, share) is percentile_bound([1.0] * (least - 1), share)
    assert None is bound_rank(0, share) is most_late(0, share)


def test_the_rank_is_the_smallest_whose_binomial_tail_is_small_enough():
    """The sum of the docstring, with whole numbers."""
    for queries in (44, 100, 459):
        rank = bound_rank(queries, 0.9)

        def tail(k, n=queries):
            return sum(math.comb(n, i) * 9**i for i in range(k, n + 1)) / 10**n

        assert tail(rank) <= 0.01 < tail(rank - 1)


def test_a_percentile_is_one_of_the_latencies_and_left_out_ones_count():
    latencies = [float(i) for i in range(1, 1001)]
    found = percentile_bound(list(reversed(latencies)), 0.9)

    assert bound_rank(1000, 0.9) == found
    assert found == percentile_bound(latencies[800:], 0.9, faster=800)
    assert None is percentile_bound(latencies[950:], 0.9, faster=950)
    assert 1000 - found == most_late(1000, 0.9)


def test_arrivals_are_independent_and_as_frequent_as_asked():
    arrivals = poisson_arrivals(50.0, 20_001, 3)
    gaps = sorted(b - a for a, b in itertools.pairwise(arrivals))
    counts = np.histogram(arrivals, bins=int(arrivals[-1]))[0]
    exponential = [1 - math.exp(-50 * gap) for gap in gaps]
    distance = max(abs(share - i / len(gaps)) for i, share in enumerate(exponential))

    assert 0.0 == arrivals[0]
    assert abs(statistics.fmean(gaps) * 50 - 1) < 0.03
    assert distance < 1.95 / math.sqrt(len(gaps))  # Kolmogorov and Smirnov, 0.1 %
    assert 0.7 < counts.var() / counts.mean() < 1.4  # an even schedule has 0
    assert arrivals == poisson_arrivals(50.0, 20_001, 3) != poisson_arrivals(50.0, 20_001, 4)


@pytest.mark.parametrize(
    ("grade", "plain", "is_wrong"),
    [(0.9, 0.9, False), (0.905, 0.9, False), (0.88, 0.9, True), (0.92, 0.9, True), (0.0, 0.0, False), (0.1, 0.0, True)],
)
def test_answers_are_wrong_where_their_grade_is_another(grade, plain, is_wrong):
    reason = serving.wrong_answers({"answers": 10, "equal": 9, "grade": grade, "plain_grade": plain})

    assert is_wrong == (reason is not None)
    assert not is_wrong or "9 of 10 answers are equal" in reason


def test_a_grade_that_is_no_number_is_wrong():
    assert serving.wrong_answers({"answers": 1, "equal": 1, "grade": None, "plain_grade": 0.5})


def test_the_smallest_batch_that_is_nearly_the_fastest():
    batches = [{"batch": b, "latency_s": [s] * 3} for b, s in ((1, 1.0), (2, 1.0), (4, 1.05), (8, 2.0), (16, 4.0))]

    assert 8 == serving.best_batch(batches)["batch"]
    assert 4 == serving.least_saturated(batches)
