"""Which of several equal things is slower than the others: hosts of a fleet, or links between them.

Each has been timed several times, in turn with the others, so by chance any of them may have any of the times. One is
slower if the smallest or the lower quartile of its times is so high among all times that chance causes that with a
probability below `ALPHA`, *and* if the difference is large enough to matter. Each is an exact precedence test (Nelson,
Technometrics 1963). The smaller p-value is doubled, because there are two tests; then comes Holm's correction. They
look at low times because interference only adds time: a rank test over all times needs several times as many runs.
Where interference hits some of the runs, the smallest time finds most; where all runs vary, the lower quartile.

With few runs of few things even the highest rank is likely enough to be chance: then nothing can be found slower.
`least_runs` says how many runs the test needs, and `Deviation.detectable` what those that were made could find.

All numbers about "the others" come from ranks among all, so that ten thousand things take seconds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

from deepbench.core import stats
from deepbench.core.stats import Key

# Probability that one look at a fleet of equal hosts reports any of them. There may be several looks.
ALPHA = 0.001

# The ratio from which a slower host (by its kernels) or a slower link matters.
KERNEL_RATIO, LINK_RATIO = 1.05, 1.15

# Equal things differ a little. With at least so many of them, an outlier must exceed this modified z-score (Iglewicz
# and Hoaglin, 1993). LEAST_SPREAD is the smallest standard deviation assumed: else 0.1 % could be an outlier.
LEAST_FOR_SPREAD, MOST_Z, LEAST_SPREAD = 5, 3.5, 0.01


@dataclass(frozen=True)
class Deviation:
    """How far the times of one thing deviate from those of the others."""

    ratio: float
    """The lower quartile of its times over the median of those of the others."""
    p: float
    """Probability that chance makes its times as high; corrected if several things were tested."""
    matters: bool
    """Whether the ratio is large enough to matter, if it is not chance."""
    low: float | None
    """Lower end of the 95 % confidence interval of the ratio; None with a single time."""
    high: float | None
    """Upper end."""
    limit: float
    """The ratio from which a difference matters."""
    runs: int
    """How often it was timed."""
    slow_runs: int
    """How many of these times are beyond the limit."""
    things: int
    """How many things were compared, this one among them."""
    tests: int
    """How many tests the p-value is corrected for."""
    detectable: float | None
    """It would have been found slower from this ratio on; None where its runs cannot show any slowdown."""

    @property
    def slower(self) -> bool:
        """Whether it is slower with certainty."""
        return self.matters and self.p < ALPHA

    @property
    def undecided(self) -> bool:
        """Whether it looks slower, but more runs are needed."""
        return self.matters and self.p >= ALPHA

    @property
    def open(self) -> bool:
        """Whether it is neither slower nor known not to be, so that more runs may show a difference."""
        return not self.slower and (self.detectable is None or self.high is None or self.high > self.limit)

    @property
    def more_runs(self) -> int:
        """How many more runs it takes, at least, until it can be found slower."""
        return least_runs(self.things, self.tests, self.runs + 1) - self.runs

    def corrected(self, p: float) -> Deviation:
        """The same with the p-value of a correction over more tests."""
        return replace(self, p=max(p, self.p))


def deviations(times: Mapping[Key, Sequence[float]], limit: float, tests: int | None = None) -> dict[Key, Deviation]:
    """The deviation of each thing that has times, by name; empty for fewer than two of them.

    p-values are corrected for the number of things. A caller that tests more says how many `tests` there are, and
    corrects the p-values, which then are those of single tests.
    """
    timed = {name: sorted(values) for name, values in times.items() if values}
    if len(timed) < 2:
        return {}
    count = len(timed) if tests is None else tests
    typical = {name: stats.lower_quartile(values) for name, values in timed.items()}
    ordered, pool = sorted(typical.values()), sorted(v for values in timed.values() for v in values)
    rest = {name: low_median_without(ordered, t) for name, t in typical.items()}
    ratios = {name: t / rest[name] for name, t in typical.items()}
    spread = max(LEAST_SPREAD, 1.4826 * median(abs(r - 1) for r in ratios.values()))
    least = limit if len(timed) < LEAST_FOR_SPREAD else max(limit, 1 + MOST_Z * spread)
    p_values = {name: precedence_p(values, pool) for name, values in timed.items()}
    p_values = stats.holm(p_values) if tests is None else p_values
    result = {}
    for name, values in timed.items():
        interval, ratio = stats.estimate_time(values, [1.0] * len(values)), ratios[name]
        needed = _needed_ratio(values, pool, count)
        result[name] = Deviation(
            ratio=ratio,
            p=p_values[name],
            matters=ratio > least,
            low=None if interval.low_s is None else interval.low_s / rest[name],
            high=None if interval.high_s is None else interval.high_s / rest[name],
            limit=limit,
            runs=len(values),
            slow_runs=sum(v > limit * rest[name] for v in values),
            things=len(timed),
            tests=count,
            detectable=None if needed is None else max(least, ratio * needed),
        )
    return result


def low_median_without(ordered: Sequence[float], own: float) -> float:
    """The median of two or more sorted numbers without one of them, `own`; of two in the middle the lower one.

    Of three hosts, of which one is slow, the mean of the other two would make the healthy ones look fast.
    """
    place = (len(ordered) - 2) // 2
    return ordered[place + (place >= bisect_left(ordered, own))]


def precedence_p(times: Sequence[float], pool: Sequence[float]) -> float:
    """Bound of the probability that as many values, drawn at random from the pool, are as high as `times`.

    Both are sorted, and `times` is a part of the pool. High are the smallest value or the lower quartile, whichever is
    less probable.
    """
    n, ranks = len(times), tested_ranks(len(times))
    least = min(rank_p(n, len(pool), bisect_left(pool, times[k - 1]), k) for k in ranks)
    return min(1.0, len(ranks) * least)


def tested_ranks(n: int) -> tuple[int, ...]:
    """Which of n sorted values are tested: the smallest and the lower quartile, counted from 1."""
    quartile = (n - 1) // 4 + 1
    return (1, quartile) if quartile > 1 else (1,)


@lru_cache(maxsize=2**14)
def rank_p(n: int, count: int, below: int, k: int) -> float:
    """Probability that at most k - 1 of n values that are drawn from `count` are among the `below` smallest.

    The number of those that are follows the hypergeometric distribution. Integers keep this exact: each product of
    binomial coefficients follows from the one before.
    """
    above = count - below
    first = max(0, n - above)
    lower, upper, draws = math.comb(below, first), math.comb(above, n - first), 0
    for i in range(first, k):
        draws += lower * upper
        lower = lower * (below - i) // (i + 1)
        upper = upper * (n - i) // (above - n + i + 1)
    return draws / _combinations(count, n)


@lru_cache(maxsize=2**10)
def _combinations(count: int, n: int) -> int:
    return math.comb(count, n)


def least_runs(things: int, tests: int, start: int = 1) -> int:
    """The least number of runs, from `start` on, with which one of two or more equal things can be found slower.

    Each thing has one time per run, and p-values are corrected for so many tests.
    """
    runs = start
    while all(_least_below(runs, things * runs, tests, k) is None for k in tested_ranks(runs)):
        runs += 1
    return runs


@lru_cache(maxsize=2**10)
def _least_below(n: int, count: int, tests: int, k: int) -> int | None:
    """How many of `count` values must be below the k-th smallest of n of them, so that p is below `ALPHA`.

    None if that cannot be: at most all values of the others are, and those of its own that are smaller.
    """
    low, high, tests = 0, count - n + k - 1, tests * len(tested_ranks(n))
    if tests * rank_p(n, count, high, k) >= ALPHA:
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if tests * rank_p(n, count, middle, k) < ALPHA else (middle + 1, high)
    return high


def _needed_ratio(times: Sequence[float], pool: Sequence[float], tests: int) -> float | None:
    """The factor by which these times would have to be longer, so that p is below `ALPHA`; None if none is enough."""
    factors = [_needed_factor(times, pool, tests, k) for k in tested_ranks(len(times))]
    return min((factor for factor in factors if factor is not None), default=None)


def _needed_factor(times: Sequence[float], pool: Sequence[float], tests: int, rank: int) -> float | None:
    """The same for the test of one rank."""
    below = _least_below(len(times), len(pool), tests, rank)
    if below is None:
        return None
    place = below - rank  # among the values of the others, from 0: so many and one more must be below
    if place < 0:
        return 0.0
    for value in times:  # from the place among the others to that among all
        if value > pool[place]:
            break
        place += 1
    return pool[place] / times[rank - 1]


def combined_times(times: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """For times by kernel and thing: the geometric mean over kernels of each run, by thing.

    Each time is divided by the median of its kernel, so that long kernels do not dominate. Only kernels that
    every thing has in every run are used. A thing that has none of the kernels that most things have is left out: a
    host with fewer cores runs other cases, and must not keep the rest from being compared.
    """
    everyone = {name for of_kernel in times.values() for name, values in of_kernel.items() if values}
    usual = [k for k in times.values() if 2 * sum(map(bool, k.values())) > len(everyone)]
    runs: dict[str, int] = {}
    for of_kernel in usual:
        for name, values in of_kernel.items():
            if values:
                runs[name] = max(runs.get(name, 0), len(values))
    complete = [k for k in usual if all(len(k.get(name, ())) == most for name, most in runs.items())]
    medians = [median(v for values in k.values() for v in values) for k in complete]
    return {
        name: [
            math.exp(sum(math.log(k[name][i] / m) for k, m in zip(complete, medians, strict=True)) / len(complete))
            for i in range(runs[name])
        ]
        for name in sorted(runs)
        if complete
    }


def tournament(names: Sequence[str], most_rounds: int | None = None) -> list[list[tuple[str, str]]]:
    """Rounds of disjoint pairs in which every pair meets once (circle method), at most `most_rounds` of them."""
    circle: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    rounds = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append([(a, b) for a, b in pairs if a is not None and b is not None])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds[:most_rounds]
