"""What is measured when the time is limited: each case once, then the least sure one, nothing that does not fit."""

import pytest

from deepbench.cli.options import duration
from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.plan.cases import Choices, expand
from deepbench.plan.rounds import next_within_budget
from deepbench.plan.suites import read_words
from deepbench.results.record import make_record
from tests.help import samples

CASES = [
    f"{problem} forward f32 {backend} threads=1"
    for problem in ("gemm m=2 n=3 k=4 a_t=0 b_t=0", "gemm m=20 n=30 k=40 a_t=0 b_t=0")
    for backend in ("mkl", "openblas")
]


def next_of(records, left_s=100.0, cost=1.0):
    planned = expand(read_words(CASES), Choices(), 1)
    assert CASES == [p.case.text for p in planned]
    costs = cost if callable(cost) else lambda case: cost
    found = next_within_budget(planned, records, costs, left_s, 1, {})
    return (found[0][0].text, found[0][1]) if found else None


def measured(text, seconds=(1.0,)):
    return [samples.measured(text=text, seconds=s, round_number=i) for i, s in enumerate(seconds, 1)]


def test_of_each_library_one_first_and_the_short_ones_before_the_long():
    cost = {text: 2.0 if "m=20" in text else 1.0 for text in CASES}
    first = next_of([], cost=lambda c: cost[c.text])
    second = next_of(measured(first[0]), cost=lambda c: cost[c.text])

    assert "m=2 " in first[0]
    assert "m=2 " in second[0]
    assert first[0].split()[-2] != second[0].split()[-2]


def test_then_the_one_whose_interval_is_widest():
    sure, wide = [1.0, 1.001, 0.999], [1.0, 1.3, 0.8]
    records = [r for text in CASES for r in measured(text, wide if text == CASES[2] else sure)]

    assert (CASES[2], 4) == next_of(records)
    once = [r for r in records if r["case"] != CASES[1]] + measured(CASES[1])
    assert (CASES[1], 2) == next_of(once)  # one process has no interval at all


def test_every_case_gets_three_rounds_before_any_gets_a_fourth():
    """Two equal times have a narrow interval, which is no reason to leave a case at two rounds."""
    wide, equal = [1.0, 1.3, 0.8], [1.0, 1.00001]
    records = [r for text in CASES for r in measured(text, equal if text == CASES[3] else wide)]

    assert (CASES[3], 3) == next_of(records)


def test_rivals_take_part_as_far_as_they_fit():
    planned = expand(read_words(CASES), Choices(), 1)

    def heat(left_s):
        found = next_within_budget(planned, [], lambda case: 1.0, left_s, 1, {})
        return [case.text for case, _ in found]

    assert CASES[:2] == heat(2.5)
    assert CASES[:1] == heat(1.5)


def test_nothing_is_begun_that_does_not_fit():
    assert next_of([], left_s=0.5) is None
    records = [r for text in CASES for r in measured(text)]  # each took half a second, and a process to start
    assert next_of(records, left_s=0.6) is None
    assert next_of(records, left_s=1.0) is not None


def test_what_failed_is_not_measured_again():
    records = [make_record(parse_case(text), 1, "unsupported", "no") for text in CASES]
    assert next_of(records) is None


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10min", 600), ("1.5h", 5400), ("2 min", 120)])
def test_times_as_people_write_them(text, seconds):
    assert seconds == duration("--budget", text)


@pytest.mark.parametrize("text", ["10", "ten minutes", "0s", "-1min", "1e9h", ""])
def test_other_words_are_refused(text):
    with pytest.raises(BadInput, match="--budget wants a time"):
        duration("--budget", text)
