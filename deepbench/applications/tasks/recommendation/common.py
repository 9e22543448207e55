"""What all versions of recommendation share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepbench.applications.datasets.movielens import Ratings
from deepbench.core.errors import BadInput

# The film that was rated last competes with so many that the user has not rated, unless a rung says otherwise, and has
# to be among the first ten.
OTHERS, AMONG = 99, 10

# Films that a user has not rated, for each that he has, in a batch.
NEGATIVES = 4

WARM_UP = 0.1


class RecommendationExamples(NamedTuple):
    """What is trained on, and what is tested."""

    users: NDArray[np.int64]
    films: NDArray[np.int64]
    """Users and films of all ratings but the last of each user."""
    tests: NDArray[np.int32]
    """Users × films: the last film before others that the user has not rated, the same ones in every run."""
    catalogue: int
    """How many films there are."""

    def grade(self, users: Sequence[int], answers: Sequence[Sequence[int]]) -> float:
        """The share of users whose last film is among the films of their answer."""
        return float(np.mean([self.tests[user, 0] in films for user, films in zip(users, answers, strict=True)]))


def examples(ratings: Ratings, count: int = OTHERS) -> RecommendationExamples:
    """Divide ratings into those for training and those for testing, where the last film has so many rivals."""
    order = np.lexsort((ratings.films, ratings.times, ratings.users))
    users, films = ratings.users[order], ratings.films[order]
    is_last = np.append(users[1:] != users[:-1], True)
    ends = np.flatnonzero(is_last) + 1
    chance, catalogue = np.random.default_rng(2018), int(films.max()) + 1
    tests = np.empty((len(ends), 1 + count), np.int32)
    for user, own in enumerate(np.split(films, ends[:-1])):
        is_other = np.ones(catalogue, bool)
        is_other[own] = False
        others = np.flatnonzero(is_other)
        if len(others) < count:
            raise BadInput(f"a user has rated all films but {len(others)}, and a test needs {count} others")
        tests[user, 0], tests[user, 1:] = own[-1], chance.choice(others, count, replace=False)
    return RecommendationExamples(users[~is_last], films[~is_last], tests, catalogue)
