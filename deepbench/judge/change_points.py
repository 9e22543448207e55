"""Where did the level of a series of times change? ruptures proposes points, and the tests here decide.

A proposed point counts if the levels on both sides, up to the next points, differ by more than the margin, and if a
rank-sum test says that chance does not explain it. A point is proposed because both sides look different there, so
its p-value is multiplied by the number of places at which the series could have been divided. Holm's correction over
all series and points follows. Noise that is not independent from one file to the next is corrected for in part only.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepbench.core import stats
from deepbench.core.errors import Unavailable

MARGIN = 0.02
"""The relative change that does not matter."""

ALPHA = 0.05

# A level needs so many values. Of three before and three after, no test would ever be sure.
LEAST_SIDE = 3

# The smallest standard deviation of log times that is assumed, for files with rounded times.
LEAST_NOISE = 1e-3

# What a further point must save, in squared standard deviations and per log of the number of values. This is low,
# because the tests decide: a point that is not proposed cannot be found.
PENALTY = 2.0

# Single outliers are moved to so many standard deviations from the median of their neighbours. Otherwise each would be
# a level of its own.
MOST_DEVIATION, NEIGHBOURS = 3.0, 5

# With more values on the smaller side, the normal approximation is used. It is cautious where the p-value is small.
MOST_EXACT = 50

# Times that rise slowly are autocorrelated around any level, and a host that becomes slower should be found.
MOST_INFLATION = 3.0

REMEDY = "pip install ruptures"


@dataclass(frozen=True)
class LevelChange:
    """A point from which on the times of a series have another level."""

    at: int
    """The index of the first value after it."""
    before_s: float
    """The median of the times between this point and the one before."""
    after_s: float
    """The median of the times between this point and the next."""
    p: float
    """p-value, corrected for all places of the series, and for all series and points."""

    @property
    def ratio(self) -> float:
        """The time after over the time before: above 1, it became slower."""
        return self.after_s / self.before_s


def require_proposals() -> None:
    """`Unavailable` with the remedy without ruptures."""
    try:
        import ruptures  # noqa: F401
    except ImportError as error:
        raise Unavailable(f"change points need ruptures ({error})", REMEDY) from None


def find(times_s: Sequence[Sequence[float]], margin: float = MARGIN) -> list[list[LevelChange]]:
    """The changes of each series, whose times are in their order. `Unavailable` without ruptures."""
    require_proposals()
    logs = [[math.log(t) for t in of_series] for of_series in times_s]
    return decide(logs, [propose(of_series) for of_series in logs], margin)


# ---- what is proposed


def propose(logs: Sequence[float]) -> list[int]:
    """Where the level of a series may have changed: each point is the index of the first value after it."""
    count = len(logs)
    if count < 2 * LEAST_SIDE:
        return []
    import ruptures

    values = np.asarray(logs, dtype=float)
    noise = max(LEAST_NOISE, noise_of(values))
    signal = _without_outliers(values, MOST_DEVIATION * noise)
    signal = (signal - signal.mean()) / noise
    # A linear kernel has the cost of a sum of squares, and this class is compiled.
    search = ruptures.KernelCPD(kernel="linear", min_size=LEAST_SIDE).fit(signal.reshape(-1, 1))
    ends = search.predict(pen=PENALTY * math.log(count))
    return [int(end) for end in ends if LEAST_SIDE <= end <= count - LEAST_SIDE]


def noise_of(values: NDArray[Any]) -> float:
    """The standard deviation around the level, from the differences of neighbours: a few changes do not disturb it."""
    return 1.4826 * float(np.median(np.abs(np.diff(values)))) / math.sqrt(2)


def _without_outliers(values: NDArray[Any], most: float) -> NDArray[Any]:
    """Values at most this far from the median of their neighbours. A median keeps the edges of levels."""
    padded = np.pad(values, NEIGHBOURS // 2, mode="edge")
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, NEIGHBOURS), axis=1)
    moved: NDArray[Any] = np.clip(values, middle - most, middle + most)
    return moved


# ---- what counts


def decide(
    series: Sequence[Sequence[float]], proposed: Sequence[Sequence[int]], margin: float = MARGIN
) -> list[list[LevelChange]]:
    """The points of each series of logarithms that pass the tests.

    Where some do not pass, the least certain one of each series is given up, and the others are tested again, because
    their sides have grown.
    """
    limit = math.log1p(margin)
    long_enough = [i for i, logs in enumerate(series) if len(logs) >= 2 * LEAST_SIDE]
    found = {i: _tested(series[i], proposed[i]) for i in long_enough}
    while True:
        # A series without a point counts as one test, too: it was searched.
        p_values = {(i, c.at): c.p for i in long_enough for c in found[i]}
        p_values |= {(i, 0): 1.0 for i in long_enough if not found[i]}
        corrected = stats.holm(p_values)
        given_up = False
        for i, changes in found.items():
            failing = [c for c in changes if corrected[i, c.at] >= ALPHA or abs(math.log(c.ratio)) <= limit]
            if failing:
                worst = max(failing, key=lambda c: (c.p, -abs(math.log(c.ratio))))
                found[i] = _tested(series[i], [c.at for c in changes if c is not worst])
                given_up = True
        if not given_up:
            break
    final = {i: [LevelChange(c.at, c.before_s, c.after_s, corrected[i, c.at]) for c in found[i]] for i in long_enough}
    return [final.get(i, []) for i in range(len(series))]


def _tested(logs: Sequence[float], points: Sequence[int]) -> list[LevelChange]:
    """Both levels at each point, and how probable such a difference is by chance at some place of the series."""
    if not points:
        return []
    bounds = [0, *points, len(logs)]
    places = len(logs) - 2 * LEAST_SIDE + 1
    inflation = _inflation([logs[start:end] for start, end in pairwise(bounds)])
    found = []
    for start, at, end in zip(bounds, bounds[1:], bounds[2:], strict=False):
        before, after = logs[start:at], logs[at:end]
        p = min(1.0, places * _inflated(rank_sum_p(before, after), inflation))
        found.append(LevelChange(at, math.exp(median(before)), math.exp(median(after)), p))
    return found


def _inflation(levels: Sequence[Sequence[float]]) -> float:
    """By how much autocorrelation around the levels increases the variance of their means; 1 where none is evident.

    That of noise in which each value has a share of the one before: (1 + share) / (1 - share) (Bartlett, 1935).
    """
    rests = [value - median(level) for level in levels for value in level]
    total = sum(rest * rest for rest in rests)
    if total <= 0:
        return 1.0
    share = sum(a * b for a, b in pairwise(rests)) / total
    # Independent noise is above this in one series of twenty.
    evident = 1.64 / math.sqrt(len(rests))
    return min(MOST_INFLATION, (1 + share) / (1 - share)) if evident < share < 1 else 1.0


def _inflated(p: float, inflation: float) -> float:
    """The p-value if the variance is so many times larger, with the normal distribution."""
    if inflation == 1.0 or p >= 1.0:
        return p
    z = -NormalDist().inv_cdf(max(p, 1e-300) / 2) / math.sqrt(inflation)
    return math.erfc(z / math.sqrt(2))


def rank_sum_p(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p-value of the rank-sum test (Wilcoxon, Mann and Whitney) that both come from one distribution.

    Exact up to `MOST_EXACT` values on the smaller side. Equal values count against a difference.
    """
    ordered, pairs = sorted(a), len(a) * len(b)
    below = sum(bisect_left(ordered, value) for value in b)
    above = pairs - sum(bisect_right(ordered, value) for value in b)
    contrary = pairs - max(below, above)
    deviation = math.sqrt(pairs * (len(a) + len(b) + 1) / 12)
    p = min(1.0, math.erfc((pairs / 2 - contrary - 0.5) / deviation / math.sqrt(2)))
    if p > 0.2 or min(len(a), len(b)) > MOST_EXACT:
        return p
    return min(1.0, 2 * _rank_sum_tail(len(a), len(b), contrary))


def _rank_sum_tail(n: int, m: int, most: int) -> float:
    """Probability that at most so many of the n·m pairs are contrary, if every order is equally probable.

    The numbers of orders are the coefficients of a Gaussian binomial: the product of (1 − qᵐ⁺ⁱ) / (1 − qⁱ) for i from 1
    to n. A coefficient depends on lower ones only, so those above `most` are not computed.
    """
    small, large = sorted((n, m))
    orders = np.zeros(most + 1)
    orders[0] = 1.0
    for i in range(1, small + 1):
        for rest in range(min(i, most + 1)):
            orders[rest::i] = np.cumsum(orders[rest::i])
        if large + i <= most:
            orders[large + i :] -= orders[: -(large + i)].copy()
    return float(orders.sum()) / math.comb(n + m, n)
