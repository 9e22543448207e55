"""Samples to a target, samples per second, and their product."""

import math
import random

import pytest

from deepbench.applications.judge.convergence import (
    CurvePoint,
    Spread,
    crossing,
    mean_quality,
    olympic_mean,
    samples_per_second,
)


def curve(*qualities, every=1000, train_s=2.0, evaluate_s=0.5):
    return [CurvePoint(every * i, q, train_s, evaluate_s, every) for i, q in enumerate(qualities, 1)]


def test_the_crossing_is_between_two_evaluations():
    assert crossing(curve(0.5, 0.7, 0.9), 0.8) == pytest.approx(2500)
    assert crossing(curve(0.5, 0.7, 0.9), 0.9) == pytest.approx(3000)
    assert crossing(curve(0.95, 0.7), 0.8) == 1000  # before the first evaluation nothing is known
    assert crossing(curve(0.5, 0.7), 0.8) is None
    assert crossing(curve(4.0, 2.0), 3.0, higher_is_better=False) == pytest.approx(1500)
    assert crossing([], 0.5) is None


def test_a_quality_that_is_no_number_reaches_nothing():
    assert crossing(curve(0.5, None, 0.7), 0.6) == 3000
    assert crossing(curve(None, None), 0.6) is None


def test_the_rate_counts_training_alone():
    points = curve(0.5, 0.7, 0.9)

    assert samples_per_second(points) == pytest.approx(500)
    assert samples_per_second([]) is None


def test_the_interval_of_a_mean_covers_at_its_level():
    chance, hits = random.Random(1), 0
    for _ in range(2000):
        found = Spread.of([math.exp(chance.gauss(3.0, 0.2)) for _ in range(5)])
        hits += found.low <= math.exp(3.0) <= found.high

    assert 0.93 < hits / 2000 < 0.97
    assert Spread.of([4.0]) == Spread(pytest.approx(4.0), None, None)


def test_the_interval_of_a_product_covers_at_its_level():
    chance, hits = random.Random(2), 0
    for _ in range(2000):
        first, second = (
            Spread.of([math.exp(chance.gauss(mean, width)) for _ in range(5)]) for mean, width in ((3, 0.2), (1, 0.05))
        )
        found = first.times(second)
        hits += found.low <= math.exp(4.0) <= found.high

    assert 0.93 < hits / 2000 < 0.98


def test_the_mean_reaches_a_target_only_with_certainty():
    curves = [curve(0.5, 0.81), curve(0.6, 0.83), curve(0.4, 0.82)]
    first, last = mean_quality(curves)

    assert first.mean == pytest.approx(0.5)
    assert last.reaches(0.80, True)
    assert not last.reaches(0.82, True)
    assert mean_quality(curves[:1])[0].reaches(0.1, True) is None
    assert [p.samples for p in mean_quality([curve(0.5, 0.6), curve(0.5)])] == [1000]


def test_the_olympic_mean_leaves_out_both_ends():
    assert olympic_mean([9.0, 1.0, 2.0, 3.0]) == pytest.approx(2.5)
    assert olympic_mean([1.0, 2.0]) is None
