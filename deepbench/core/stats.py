"""Medians, intervals and what they are made of. Pure functions on numbers, no NumPy.

Inside a process: samples, of which the clean ones count, and the order-statistic interval of their median.
Between processes: one number a process, and an interval from how far these numbers lie apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, mean, median, stdev, variance
from typing import NamedTuple, cast

# Reach of a 95 % interval around the lower quartile of so many numbers, in units of their spread (see `spread`).
# From 400,000 simulated sets of normal numbers each: benchmarks/interval.py prints this table.
REACH_95 = {
    **{2: 6.77, 3: 1.46, 4: 1.69, 5: 1.82, 6: 0.99, 7: 1.01, 8: 0.72, 9: 0.75, 10: 0.58, 11: 0.59},
    **{12: 0.50, 13: 0.52, 14: 0.44, 15: 0.44, 16: 0.40, 17: 0.41, 18: 0.36, 19: 0.36, 20: 0.33},
}

# A sample that got less of the CPU than this share of what undisturbed samples got was disturbed.
CPU_SHARE = 0.95

# An involuntary switch costs some 10 to 100 µs when a kernel thread needed the core, more when another program did
# (which the CPU share shows). One in this time is below 1 % and cannot be avoided in long samples.
SWITCH_EVERY_S = 10e-3

# Fewer clean samples than this and the median is of all samples, with a warning.
LEAST_CLEAN = 3


@dataclass(frozen=True)
class Estimate:
    """The time of one case from all its processes. Seconds a call."""

    time_s: float
    low_s: float | None
    high_s: float | None
    processes: int
    clean_fraction: float
    disturbed: bool = False
    """Whether a process has so few clean samples that all of them count."""

    @property
    def half_width(self) -> float | None:
        """Half the 95 % interval as a share of the time (0.01 is ±1 %), None where unknown."""
        if self.low_s is None or self.high_s is None:
            return None
        return (self.high_s - self.low_s) / 2 / self.time_s


def clean(
    samples_s: Sequence[float],
    cpu_s: Sequence[float | None],
    involuntary_switches: Sequence[int | None],
    steal_s: Sequence[float | None],
    calls_per_sample: int,
) -> list[bool]:
    """Which samples were left alone: the usual share of the CPUs, nothing stolen, no more switches than usual.

    Usual is what most samples of the process show, because libraries differ: in how many threads spin (the third
    quartile of CPU time over wall time), and in how often threads yield, which the system counts as involuntary
    switches (their first quartile). Samples of a device's own clock have no such evidence and all count.
    """
    if None in cpu_s or None in involuntary_switches:
        return [True] * len(samples_s)
    seconds, switches = cast(Sequence[float], cpu_s), cast(Sequence[int], involuntary_switches)
    shares = [c / (s * calls_per_sample) for c, s in zip(seconds, samples_s, strict=True)]
    least = CPU_SHARE * quantile(shares, 0.75)
    usual = quantile(switches, 0.25) if len(switches) >= LEAST_CLEAN else 0
    return [
        share >= least and not stolen and count <= usual + s * calls_per_sample // SWITCH_EVERY_S
        for share, stolen, count, s in zip(shares, steal_s, switches, samples_s, strict=True)
    ]


class ProcessNumber(NamedTuple):
    """What the samples of one process come to."""

    time_s: float
    """The median of the samples that count."""
    clean_fraction: float
    disturbed: bool
    """Whether so few samples are clean that all of them count."""


def process_number(samples_s: Sequence[float], is_clean: Sequence[bool]) -> ProcessNumber:
    """One number for a process."""
    counts = counted(samples_s, is_clean)
    return ProcessNumber(median(counts), sum(is_clean) / len(samples_s), len(counts) > sum(is_clean))


def counted(samples_s: Sequence[float], is_clean: Sequence[bool]) -> Sequence[float]:
    """The samples that make the number of a process: the clean ones, or all where fewer than three are clean."""
    chosen = [s for s, ok in zip(samples_s, is_clean, strict=True) if ok]
    return chosen if len(chosen) >= min(LEAST_CLEAN, len(samples_s)) else samples_s


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """A 95 % interval of the median from order statistics, without assuming a distribution.

    The ranks come from the binomial distribution by its normal approximation; None below six values, where no
    pair of them reaches 95 %.
    """
    n = len(values)
    if n < 6:
        return None
    ordered = sorted(values)
    reach = NormalDist().inv_cdf(0.975) * math.sqrt(n) / 2
    low = max(0, math.floor(n / 2 - reach) - (1 if n < 10 else 0))
    high = min(n - 1, math.ceil(n / 2 + reach))
    return ordered[low], ordered[high]


def lower_quartile(values: Sequence[float]) -> float:
    """The value a quarter of the way up the sorted ones."""
    return quantile(values, 0.25)


def quantile(values: Sequence[float], share: float) -> float:
    """The value so far up the sorted ones, between two of them where it falls there."""
    ordered, position = sorted(values), (len(values) - 1) * share
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def spread(values: Sequence[float]) -> float:
    """How far the faster half of the values lies apart; all of them where there are two or three.

    The slower half is where interference sits, and says nothing of the time without it.
    """
    ordered = sorted(values)
    return ordered[len(values) // 2 if len(values) > 3 else -1] - ordered[0]


def between_processes(numbers: Sequence[float], clean_fractions: Sequence[float]) -> Estimate:
    """The lower quartile of one number a process, with a 95 % interval from their spread.

    The lower quartile and not the median, because other programs and other guests of the machine only ever add
    time, often to a whole process, and leave no trace of it: `docs/method.md` has the measurement. The interval is
    worked out on logarithms, since times vary by factors. One process gives no interval.
    """
    n = len(numbers)
    time = math.exp(lower_quartile(list(map(math.log, numbers)))) if n > 1 else numbers[0]
    low = high = None
    if n > 1:
        most = max(REACH_95)
        factor = REACH_95[n] if n <= most else REACH_95[most] * math.sqrt(most / n)
        reach = factor * spread(list(map(math.log, numbers)))
        low, high = time * math.exp(-reach), time * math.exp(reach)
    return Estimate(time, low, high, n, sum(clean_fractions) / len(clean_fractions))


def t_tail(t: float, freedom: float) -> float:
    """Chance that Student's t with so many degrees of freedom is beyond ±|t|: the two-sided p-value.

    By the regularized incomplete beta function, as its continued fraction (Numerical Recipes, 6.4).
    """
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def t_reach(freedom: float, level: float = 0.95) -> float:
    """How far Student's t goes to both sides with this probability."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, freedom) > 1 - level else (low, middle)
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x) - math.log(a)
    )
    # Lentz's method.
    tiny, c, d = 1e-300, 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d or tiny)
    fraction = d
    for m in range(1, 500):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + numerator * d) or tiny)
            c = (1 + numerator / c) or tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * fraction


@dataclass(frozen=True)
class Difference:
    """Mean of the logarithms of one side's times less those of the other, and what is known of it."""

    mean: float
    error: float
    """Standard error of the mean."""
    freedom: float
    """Degrees of freedom of that."""

    @property
    def p(self) -> float:
        """Two-sided chance of a mean so far from 0 by accident."""
        if self.error == 0:
            return 0.0 if self.mean else 1.0
        return t_tail(self.mean / self.error, self.freedom)

    def reaches(self, distance: float, level: float = 0.95) -> bool:
        """Whether the interval with this confidence goes no further than so much to each side of the mean."""
        return self.error == 0 or t_tail(distance / self.error, self.freedom) <= 1 - level

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Where the true mean lies, with this confidence."""
        reach = t_reach(self.freedom, level) * self.error
        return self.mean - reach, self.mean + reach


# The difference of two sides' faster halves, n processes each, over its standard error: Student's t with this scale
# and so many degrees of freedom. From 400,000 simulated pairs of normal sets: benchmarks/faster_half.py prints it.
FASTER_HALF = {
    **{2: (1.015, 2.04), 3: (1.234, 1.96), 4: (1.153, 3.70), 5: (1.251, 3.65), 6: (1.222, 5.36), 7: (1.273, 5.24)},
    **{8: (1.259, 7.05), 9: (1.302, 7.06), 10: (1.278, 8.56), 11: (1.314, 8.57), 12: (1.297, 10.12)},
    **{13: (1.313, 9.84), 14: (1.307, 11.77), 15: (1.318, 11.12), 16: (1.314, 13.01), 17: (1.324, 12.31)},
    **{18: (1.317, 14.39), 19: (1.328, 13.98), 20: (1.329, 16.56)},
}


def faster_half(n: int) -> tuple[int, float, float]:
    """How many of so many processes count, and scale and degrees of freedom of their difference."""
    most = max(FASTER_HALF)
    scale, freedom = FASTER_HALF[min(n, most)]
    return n // 2 + 1, scale, freedom * max(1.0, n / most)


def faster_halves(a: Sequence[float], b: Sequence[float], between: float = 0.0) -> Difference | None:
    """The difference of logarithms of the faster halves of two sets of processes, b's mean less a's; None below two.

    The faster half and not all, because what disturbs a process only ever adds time. As many of each side are taken as
    both have, the first ones: the faster half of more is faster. `between` is the standard deviation of the logarithm
    from one session to another, where both sets are of different ones: no number of processes makes that smaller.
    """
    n = min(len(a), len(b))
    if n < 2:
        return None
    half, scale, freedom = faster_half(n)
    lowest = [sorted(map(math.log, side[:n]))[:half] for side in (a, b)]
    error = scale * math.sqrt(sum(map(variance, lowest)) / half)
    return Difference(mean(lowest[1]) - mean(lowest[0]), math.hypot(error, math.sqrt(2) * between), freedom)


def paired(a: Sequence[float], b: Sequence[float]) -> Difference | None:
    """The difference of logarithms of pairs of processes that ran one right after the other, so that what both met
    cancels; all pairs count. None below two."""
    if len(a) < 2:
        return None
    logs = [math.log(y / x) for x, y in zip(a, b, strict=True)]
    return Difference(mean(logs), stdev(logs) / math.sqrt(len(logs)), len(logs) - 1)


def holm(chances: Mapping[str, float]) -> dict[str, float]:
    """Chances of single tests, corrected so that all of them together err no more often (Holm, 1979)."""
    corrected, largest = {}, 0.0
    for i, (name, p) in enumerate(sorted(chances.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, p * (len(chances) - i)))
        corrected[name] = largest
    return corrected


def false_discovery(chances: Mapping[str, float]) -> dict[str, float]:
    """Chances corrected so that of what is called different only such a share is not (Benjamini, Hochberg, 1995)."""
    corrected, smallest = {}, 1.0
    for i, (name, p) in sorted(enumerate(sorted(chances.items(), key=lambda item: item[1]), 1), reverse=True):
        smallest = min(smallest, p * len(chances) / i)
        corrected[name] = smallest
    return corrected
