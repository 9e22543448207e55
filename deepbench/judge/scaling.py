"""Predicts the time of all-reduce for more ranks than were measured, with a model fitted to what was measured.

Sending s bytes takes alpha + s·beta. S bytes over r ranks take, with the algorithms in use (R. Thakur, R. Rabenseifner,
W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005, sections 4.1 and 4.5; P. Patarasuk,
X. Yuan, "Bandwidth optimal all-reduce algorithms", 2009):

    ring                2(r − 1)·alpha + 2(r − 1)/r·S·beta
    rabenseifner        2·log2(r)·alpha + 2(r − 1)/r·S·beta
    recursive_doubling  log2(r)·alpha + log2(r)·S·beta
    tree                2·log2(r)·alpha + 2·S·beta
    logarithm           log2(r)·alpha + S·beta + log2(r)·S·gamma        (links that more ranks share become slower)

The time to add the numbers is proportional to bytes as well, and part of beta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log2
from statistics import median

# Predictions for more than so many times the measured number of ranks are marked as uncertain.
FAR = 16

# Below this error, one model for all message sizes is enough.
GOOD = 0.02


@dataclass(frozen=True)
class Point:
    """One measured all-reduce."""

    ranks: int
    bytes: int
    time_s: float


Term = Callable[[int, int], float]
"""The factor of a constant of the model, from ranks and bytes."""

MODELS: dict[str, tuple[Term, ...]] = {
    "ring": (lambda r, s: 2.0 * (r - 1), lambda r, s: 2.0 * (r - 1) / r * s),
    "rabenseifner": (lambda r, s: 2.0 * log2(r), lambda r, s: 2.0 * (r - 1) / r * s),
    "recursive_doubling": (lambda r, s: log2(r), lambda r, s: log2(r) * s),
    "tree": (lambda r, s: 2.0 * log2(r), lambda r, s: 2.0 * s),
    "logarithm": (lambda r, s: log2(r), lambda r, s: float(s), lambda r, s: log2(r) * s),
}


@dataclass(frozen=True)
class Fit:
    """A model with its constants."""

    model: str
    constants: tuple[float, ...]
    """Seconds per message, then seconds per byte for each further term."""
    errors: tuple[float, ...]
    """Relative errors on the points of the fit: predicted / measured - 1."""
    most_ranks: int
    """The largest number of ranks of the fit."""

    def time_s(self, ranks: int, count: int) -> float:
        """Seconds for `count` bytes over `ranks` ranks."""
        return sum(c * term(ranks, count) for c, term in zip(self.constants, MODELS[self.model], strict=True))

    @property
    def error(self) -> float:
        """Median of the absolute relative errors."""
        return median(map(abs, self.errors))

    @property
    def squared_error(self) -> float:
        """Sum of the squared relative errors."""
        return sum(e * e for e in self.errors)

    @property
    def bytes_per_s(self) -> float | None:
        """Bandwidth of a link: 1 / beta."""
        return 1 / self.constants[1] if self.constants[1] > 0 else None


def fit(points: Sequence[Point], models: Iterable[str] = tuple(MODELS)) -> Fit | None:
    """The model with the least squares of relative errors; constants are not negative.

    None unless there are more points than constants.
    """
    fits = [f for model in models if (f := _fit_model(points, model))]
    return min(fits, key=lambda f: f.squared_error, default=None)


def _fit_model(points: Sequence[Point], model: str) -> Fit | None:
    import numpy as np

    terms = MODELS[model]
    if len(points) <= len(terms):
        return None
    # Each row is divided by its time, so that relative errors count.
    rows = np.array([[term(p.ranks, p.bytes) / p.time_s for term in terms] for p in points])
    active = list(range(len(terms)))
    constants = np.zeros(len(terms))
    while active:
        solved, *_ = np.linalg.lstsq(rows[:, active], np.ones(len(points)), rcond=None)
        if (solved >= 0).all():
            constants[active] = solved
            break
        active.pop(int(np.argmin(solved)))  # a constant that would be negative is zero
    predicted = rows @ constants
    if not (predicted > 0).all():
        return None
    most_ranks = max(p.ranks for p in points)
    return Fit(model, tuple(map(float, constants)), tuple(map(float, predicted - 1)), most_ranks)


def fit_by_size(points: Sequence[Point]) -> tuple[int | None, list[Fit]]:
    """Separate fits for small and large messages, and the bytes from which a message is large.

    Libraries change their protocol with the message size. None and a single fit if one is good enough, None and no fit
    if there are too few points.
    """
    single = fit(points)
    if single is None:
        return None, []
    if single.error < GOOD:
        return None, [single]
    best: tuple[float, int | None, list[Fit]] = (single.squared_error, None, [single])
    for bound in sorted({p.bytes for p in points})[1:]:
        parts = [[p for p in points if (p.bytes >= bound) == large] for large in (False, True)]
        fits = [f for part in parts if len(part) >= 4 and (f := fit(part))]
        squares = sum(f.squared_error for f in fits)
        if len(fits) == 2 and squares < best[0] / 2:  # twice as many constants must pay off
            best = (squares, bound, fits)
    return best[1], best[2]


def predicted_s(bound: int | None, fits: Sequence[Fit], ranks: int, count: int) -> float:
    """Seconds by the result of `fit_by_size`, for `count` bytes over `ranks` ranks."""
    return fits[-1 if bound is None or count >= bound else 0].time_s(ranks, count)
