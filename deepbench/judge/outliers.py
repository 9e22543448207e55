"""Which of several equal things is slower than the others: hosts of a fleet, or links between them.

Each has been timed several times, in turn with the others, so by chance any of them may have any of the times. One is
slower if the lower quartile of its times is so high among all times that chance causes that with a probability below
`ALPHA`, *and* if the difference is large enough to matter. The test is an exact precedence test (Nelson, Technometrics
1963) with Holm's correction. It looks at low times because interference only adds time: a rank test over all times
needs several times as many runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    """Its time over the median of the others."""
    p: float
    """Probability that chance makes its times as high; corrected if several things were tested."""
    matters: bool
    """Whether the ratio is large enough to matter, if it is not chance."""
    high: float | None
    """Upper end of the 95 % confidence interval of the ratio; None with a single time."""
    limit: float
    """The ratio from which a difference matters."""

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
        return not self.slower and (self.high is None or self.high > self.limit)

    def corrected(self, p: float) -> Deviation:
        """The same with the p-value of a correction over more tests."""
        return replace(self, p=max(p, self.p))


def deviations(times: Mapping[Key, Sequence[float]], limit: float, correct: bool = True) -> dict[Key, Deviation]:
    """The deviation of each thing that has times, by name; empty for fewer than two of them.

    Without `correct`, p-values are not corrected for the number of things: callers that test more must do it.
    """
    timed = {name: list(values) for name, values in times.items() if values}
    if len(timed) < 2:
        return {}
    typical = {name: stats.lower_quartile(values) for name, values in timed.items()}
    rest = {name: median(v for n, v in typical.items() if n != name) for name in typical}
    ratios = {name: t / rest[name] for name, t in typical.items()}
    highs = {name: stats.estimate_time(v, [1.0] * len(v)).high_s for name, v in timed.items()}
    spread = max(LEAST_SPREAD, 1.4826 * median(abs(r - 1) for r in ratios.values()))
    p_values = {
        name: precedence_p(values, [v for n, others in timed.items() if n != name for v in others])
        for name, values in timed.items()
    }
    p_values = stats.holm(p_values) if correct else p_values
    result = {}
    for name, ratio in ratios.items():
        stands_out = len(timed) < LEAST_FOR_SPREAD or (ratio - 1) / spread > MOST_Z
        high = highs[name]
        high_ratio = None if high is None else high / rest[name]
        result[name] = Deviation(ratio, p_values[name], ratio > limit and stands_out, high_ratio, limit)
    return result


def precedence_p(times: Sequence[float], others: Sequence[float]) -> float:
    """Probability that as many values, drawn at random from all of them, have a lower quartile as high as `times`.

    The lower quartile is the k-th smallest value. The number of drawn values below it follows the hypergeometric
    distribution, and must be at most k - 1.
    """
    n, count = len(times), len(times) + len(others)
    k = (n - 1) // 4 + 1
    quartile = sorted(times)[k - 1]
    below = sum(v < quartile for v in (*times, *others))
    draws = sum(math.comb(below, i) * math.comb(count - below, n - i) for i in range(k))
    return draws / math.comb(count, n)


def combined_times(times: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """For times by kernel and thing: the geometric mean over kernels of each run, by thing.

    Each time is divided by the median of its kernel, so that long kernels do not dominate. Only kernels that
    every thing has in every run are used.
    """
    names = {name for of_kernel in times.values() for name in of_kernel}
    runs = {name: max(len(k.get(name, ())) for k in times.values()) for name in names}
    complete = [k for k in times.values() if all(len(k.get(name, ())) == runs[name] for name in names)]
    medians = [median(v for values in k.values() for v in values) for k in complete]
    return {
        name: [
            math.exp(sum(math.log(k[name][i] / m) for k, m in zip(complete, medians, strict=True)) / len(complete))
            for i in range(runs[name])
        ]
        for name in sorted(names)
        if complete and runs[name]
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
