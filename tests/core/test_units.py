"""Numbers as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepbench.core import units


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"),
        (1.0, "1.00"),
        (12.345, "12.3"),
        (123.45, "123"),
        (12345.0, "12300"),
        (0.012345, "0.0123"),
        (0.0099999, "0.0100"),
        (9.999, "10.0"),
        (0.1, "0.100"),
    ],
)
def test_three_significant_digits_in_plain_notation(value, expected):
    assert expected == units.significant(value)


@given(st.floats(1e-6, 1e12))
def test_significant_is_within_half_a_unit_of_the_third_digit(value):
    assert abs(float(units.significant(value)) - value) <= 0.005001 * value


@pytest.mark.parametrize(
    ("value", "expected"),
    [(2.5, "2.50 s"), (1e-3, "1.00 ms"), (12.34e-6, "12.3 µs"), (5e-9, "5.00 ns"), (None, "–")],
)
def test_seconds(value, expected):
    assert expected == units.seconds(value)


@pytest.mark.parametrize(
    ("value", "expected"), [(4.4, "4 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (3900, "1 h 05 min")]
)
def test_durations(value, expected):
    assert expected == units.duration(value)


def test_a_missing_value_is_a_dash():
    assert {"–"} == {
        units.seconds(None),
        units.flop_per_s(None),
        units.data_bytes(None),
        units.percent(None),
        units.plus_minus(None),
    }


def test_bytes_and_intervals():
    assert "1.50 GiB" == units.data_bytes(1.5 * 2**30)
    assert "±0.4 %" == units.plus_minus(0.004)
    assert "±23 %" == units.plus_minus(0.23)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (0.027, "37.0× faster"),
        (37.04, "37.0× slower"),
        (1.8, "1.80× slower"),
        (1.034, "3.4 % slower"),
        (1.25, "25.0 % slower"),
        (1.26, "1.26× slower"),
        (0.987, "1.3 % faster"),
        (1.004, "0.4 % slower"),
        (0.996, "0.4 % faster"),
        (1.0004, "as fast"),
        (1.0, "as fast"),
        (None, "–"),
    ],
)
def test_a_ratio_of_times_is_in_words(ratio, expected):
    assert expected == units.faster_or_slower(ratio)


def test_a_ratio_is_a_sentence():
    assert "B is 3.33× slower than A" == units.speed_sentence("B", 3.333, "A")
    assert "B is as fast as A" == units.speed_sentence("B", 1.0001, "A")
