"""How all-reduce goes on with more ranks than were measured: a model fitted to what was, with its error.

A message of s bytes takes alpha + s·beta. The models are those of the algorithms in use (R. Thakur, R. Rabenseifner,
W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005, sections 4.1 and 4.5; P. Patarasuk,
X. Yuan, "Bandwidth optimal all-reduce algorithms", 2009): S bytes over r ranks take

    ring                2(r − 1)·alpha + 2(r − 1)/r·S·beta
    rabenseifner        2·log2(r)·alpha + 2(r − 1)/r·S·beta
    recursive_doubling  log2(r)·alpha + log2(r)·S·beta
    tree                2·log2(r)·alpha + 2·S·beta
    logarithm           log2(r)·alpha + S·beta + log2(r)·S·gamma        (links that more ranks share get slower)

Adding costs time in proportion to bytes too, and is in beta. What comes out is a prediction, never a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log2
from statistics import median

# A model that goes beyond the measured ranks by more than this is far from everything that was seen.
FAR = 16

# A fit this good over all sizes is left alone.
GOOD = 0.02


@dataclass(frozen=True)
class Point:
    """One measured all-reduce."""

    ranks: int
    bytes: int
    time_s: float


Term = Callable[[int, int], float]
"""Ranks and bytes → how often a constant of the model counts."""

MODELS: dict[str, tuple[Term, ...]] = {
    "ring": (lambda r, s: 2.0 * (r - 1), lambda r, s: 2.0 * (r - 1) / r * s),
    "rabenseifner": (lambda r, s: 2.0 * log2(r), lambda r, s: 2.0 * (r - 1) / r * s),
    "recursive_doubling": (lambda r, s: log2(r), lambda r, s: log2(r) * s),
    "tree": (lambda r, s: 2.0 * log2(r), lambda r, s: 2.0 * s),
    "logarithm": (lambda r, s: log2(r), lambda r, s: float(s), lambda r, s: log2(r) * s),
}


@dataclass(frozen=True)
class Fit:
    """A model with its constants: seconds a message, and seconds a byte for each further term."""

    model: str
    constants: tuple[float, ...]
    errors: tuple[float, ...]
    """Relative errors on the points it was fitted to: predicted / measured - 1."""
    most_ranks: int
    """The largest group it has seen."""

    def time_s(self, ranks: int, count: int) -> float:
        """Seconds for so many bytes over so many ranks."""
        return sum(c * term(ranks, count) for c, term in zip(self.constants, MODELS[self.model], strict=True))

    @property
    def error(self) -> float:
        """Median of the absolute relative errors."""
        return median(map(abs, self.errors))

    @property
    def bytes_per_s(self) -> float | None:
        """What beta says of a link."""
        return 1 / self.constants[1] if self.constants[1] > 0 else None


def fit(points: Sequence[Point], models: Iterable[str] = tuple(MODELS)) -> Fit | None:
    """The model that fits best, by least squares of relative errors with constants that are not negative.

    None where there are fewer points than constants and one more.
    """
    found = [f for f in (_fit_one(points, model) for model in models) if f is not None]
    return min(found, key=lambda f: sum(e * e for e in f.errors), default=None)


def _fit_one(points: Sequence[Point], model: str) -> Fit | None:
    import numpy as np

    terms = MODELS[model]
    if len(points) <= len(terms):
        return None
    # Each row is divided by its time, so that all points count alike.
    rows = np.array([[term(p.ranks, p.bytes) / p.time_s for term in terms] for p in points])
    active = list(range(len(terms)))
    constants = np.zeros(len(terms))
    while active:
        solved, *_ = np.linalg.lstsq(rows[:, active], np.ones(len(points)), rcond=None)
        if (solved >= 0).all():
            constants[active] = solved
            break
        active.pop(int(np.argmin(solved)))  # what would be negative is zero
    predicted = rows @ constants
    if not (predicted > 0).all():
        return None
    most = max(p.ranks for p in points)
    return Fit(model, tuple(map(float, constants)), tuple(map(float, predicted - 1)), most)


def two_ranges(points: Sequence[Point]) -> tuple[int | None, list[Fit]]:
    """Fits of small and of large messages apart, and the bytes from which a message is large; or one fit of all.

    Libraries change their protocol with the size, so one line through all sizes fits neither end.
    """
    whole = fit(points)
    if whole is None:
        return None, []
    if whole.error < GOOD:
        return None, [whole]
    best: tuple[float, int | None, list[Fit]] = (_squares(whole), None, [whole])
    for bound in sorted({p.bytes for p in points})[1:]:
        small, large = ([p for p in points if (p.bytes >= bound) == side] for side in (False, True))
        fits = [fit(small), fit(large)]
        if fits[0] is None or fits[1] is None or min(len(small), len(large)) < 4:
            continue
        pair = [f for f in fits if f is not None]
        squares = sum(map(_squares, pair))
        if squares < best[0] / 2:  # twice as many constants must be worth it
            best = (squares, bound, pair)
    return best[1], best[2]


def _squares(made: Fit) -> float:
    return sum(e * e for e in made.errors)


def predicted_s(bound: int | None, fits: Sequence[Fit], ranks: int, count: int) -> float:
    """By the fit of that size."""
    return fits[-1 if bound is None or count >= bound else 0].time_s(ranks, count)
