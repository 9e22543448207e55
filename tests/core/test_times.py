"""Sums and shares of times with their intervals."""

import pytest

from deepbench.core.times import NOTHING, Time

FIRST, SECOND, UNKNOWN = Time(2.0, 1.8, 2.4), Time(3.0, 1.0, 4.0), Time(1.0, None, None)


def test_the_ends_add_up():
    assert FIRST.plus(SECOND) == Time(5.0, pytest.approx(2.8), pytest.approx(6.4))
    assert FIRST.plus(NOTHING) == FIRST


def test_the_longer_time_has_the_longer_ends():
    assert FIRST.longer(SECOND) == SECOND.longer(FIRST) == Time(3.0, 1.8, 4.0)


def test_calls_multiply_the_ends():
    assert FIRST.times(2) == Time(4.0, 3.6, 4.8)
    assert FIRST.times(2).half_width == pytest.approx(FIRST.half_width) == pytest.approx(0.15)


def test_a_wider_interval_begins_at_nothing_at_the_earliest():
    assert FIRST.widened(0.1) == Time(2.0, pytest.approx(1.6), pytest.approx(2.6))
    assert FIRST.widened(1.0).low_s == 0.0


def test_an_unknown_interval_stays_unknown():
    for time in (FIRST.plus(UNKNOWN), UNKNOWN.longer(FIRST), UNKNOWN.times(3), UNKNOWN.widened(0.1)):
        assert (time.low_s, time.high_s) == (None, None)
        assert time.half_width is None
