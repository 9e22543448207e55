"""The search for the first slower version: right, with a logarithm of questions, and around what cannot be judged."""

import math
import random

import pytest

from deepbench.judge.bisection import Bisection


def searched(count, first_bad, skipped=()):
    """The search, and the number of questions."""
    search, questions = Bisection(count), 0
    while (state := search.next()) is not None:
        assert 0 < state < count - 1, "the ends are known"
        questions += 1
        search.tell(state, "skip" if state in skipped else "bad" if state >= first_bad else "good")
    return search, questions


@pytest.mark.parametrize("count", [2, 3, 4, 5, 16, 17, 100, 1000])
def test_the_first_bad_state_is_found_with_a_logarithm_of_questions(count):
    for first_bad in {1, 2, count // 2, count - 1} & set(range(1, count)):
        search, questions = searched(count, first_bad)
        assert [first_bad] == list(search.candidates)
        assert questions <= math.ceil(math.log2(count)) + 1


def test_states_that_cannot_be_judged_stay_among_the_candidates_only_where_they_hide_the_first():
    search, _ = searched(20, 11, skipped={3, 10, 11, 17})
    assert [10, 11, 12] == list(search.candidates)
    search, _ = searched(20, 6, skipped={3, 10, 11, 17})
    assert [6] == list(search.candidates)


def test_any_set_of_skipped_states_ends_and_contains_the_first():
    draw = random.Random(1)
    for _ in range(300):
        count = draw.randint(2, 40)
        first_bad = draw.randint(1, count - 1)
        skipped = set(draw.sample(range(count), draw.randint(0, count)))
        search, questions = searched(count, first_bad, skipped)
        assert first_bad in search.candidates
        assert set(search.candidates) - {search.bad} <= skipped
        assert questions <= count


def test_a_search_needs_two_states():
    with pytest.raises(ValueError, match="a good state and a bad one"):
        Bisection(1)
