"""Medians, confidence intervals and tests. Pure functions on numbers, without NumPy.

Within one process: the undisturbed samples, their median and its interval from order statistics.
Across processes: one median per process, and a confidence interval from the differences between them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, mean, median, stdev, variance
from typing import NamedTuple, TypeVar, cast

Key = TypeVar("Key")

# Half-width of the 95 % confidence interval of the lower quartile of n numbers, in units of `faster_half_range`.
# From 400,000 simulated sets of normal numbers for each n; benchmarks/interval.py prints this table.
HALF_WIDTH_95 = {
    **{2: 6.77, 3: 1.46, 4: 1.69, 5: 1.82, 6: 0.99, 7: 1.01, 8: 0.72, 9: 0.75, 10: 0.58, 11: 0.59},
    **{12: 0.50, 13: 0.52, 14: 0.44, 15: 0.44, 16: 0.40, 17: 0.41, 18: 0.36, 19: 0.36, 20: 0.33},
}

# A sample is disturbed if its CPU time per wall time is below this share of the usual.
CPU_SHARE = 0.95

# An involuntary context switch costs 10 to 100 µs for a kernel thread, and more for another program (which CPU_SHARE
# reveals). One switch per this interval costs less than 1 % and is unavoidable in long samples.
SWITCH_INTERVAL_S = 10e-3

# Where others take CPUs, at least one thread of a library runs or waits for a CPU all the time, and the rest waits for
# it. If it is less than this share of the time, all threads slept, and no other program is the reason.
AWAKE = 0.75

# With fewer undisturbed samples, the median is taken over all samples and the result is marked as disturbed.
MIN_UNDISTURBED = 3

# If other programs used so many more CPUs during one measurement than during another, they may explain the difference.
OTHER_LOAD = 0.3


@dataclass(frozen=True)
class Estimate:
    """The time of one case over all its processes, in seconds per call."""

    time_s: float
    """An upper bound where it is disturbed."""
    low_s: float | None
    high_s: float | None
    processes: int
    """How many it comes from."""
    undisturbed_fraction: float
    disturbed: bool = False
    """Whether most processes had too few undisturbed samples."""
    slow_processes: int = 0
    """How many processes took so much longer than the others that no interference explains it."""
    slowest_s: float | None = None
    """The longest time of these; then `high_s` is at least as long."""

    @property
    def half_width(self) -> float | None:
        """Half the 95 % confidence interval relative to the time (0.01 is ±1 %); None if there is no interval."""
        if self.low_s is None or self.high_s is None:
            return None
        return (self.high_s - self.low_s) / 2 / self.time_s


def undisturbed(
    samples_s: Sequence[float],
    cpu_s: Sequence[float | None],
    involuntary_switches: Sequence[int | None],
    steal_s: Sequence[float | None],
    calls_per_sample: int,
    queued_s: Sequence[float | None] | None = None,
) -> list[bool]:
    """For each sample, whether other programs left it alone: usual CPU time, no steal, no unusual context switches.

    `samples_s` are seconds per call; the other sequences are per sample. "Usual" is relative to the same process,
    because libraries differ: the third quartile of CPU time per wall time (some threads spin), and the first quartile
    of involuntary switches (some threads yield, which the system counts as such). Samples timed on a device's own
    clock have no such evidence; all of them are undisturbed.

    `queued_s` is the time in which threads waited for a CPU. A sample that lacks CPU time because all threads slept is
    slow by itself.
    """
    if None in cpu_s or None in involuntary_switches:
        return [True] * len(samples_s)
    seconds, switches = cast(Sequence[float], cpu_s), cast(Sequence[int], involuntary_switches)
    shares = [c / (s * calls_per_sample) for c, s in zip(seconds, samples_s, strict=True)]
    least = CPU_SHARE * quantile(shares, 0.75)
    usual = quantile(switches, 0.25) if len(switches) >= MIN_UNDISTURBED else 0
    by_itself = slept(samples_s, cpu_s, steal_s, calls_per_sample, queued_s)
    return [
        (share >= least or own) and not stolen and count <= usual + s * calls_per_sample // SWITCH_INTERVAL_S
        for share, own, stolen, count, s in zip(shares, by_itself, steal_s, switches, samples_s, strict=True)
    ]


def slept(
    samples_s: Sequence[float],
    cpu_s: Sequence[float | None],
    steal_s: Sequence[float | None],
    calls_per_sample: int,
    queued_s: Sequence[float | None] | None,
) -> list[bool]:
    """For each sample, whether all threads slept for a part of it; False where that is not known.

    Time that was stolen is in no counter of threads, so with any of it nothing is known.
    """
    if queued_s is None or any(steal_s):
        return [False] * len(samples_s)
    return [
        cpu is not None and queued is not None and cpu + queued < AWAKE * s * calls_per_sample
        for s, cpu, queued in zip(samples_s, cpu_s, queued_s, strict=True)
    ]


def interrupted(
    samples_s: Sequence[float], involuntary_switches: Sequence[int | None], calls_per_sample: int
) -> list[bool]:
    """For each sample, whether it had more involuntary switches than are unavoidable, whatever is usual here.

    False for samples shorter than `SWITCH_INTERVAL_S`: threads that yield have switches in each of them.
    """
    unavoidable = [s * calls_per_sample // SWITCH_INTERVAL_S for s in samples_s]
    return [
        count is not None and most >= 1 and count > most
        for count, most in zip(involuntary_switches, unavoidable, strict=True)
    ]


class ProcessMedian(NamedTuple):
    """The samples of one process, summarized."""

    time_s: float
    """Median of the samples used, in seconds per call."""
    undisturbed_fraction: float
    disturbed: bool
    """Whether there were too few undisturbed samples, so that all samples were used."""


def process_median(samples_s: Sequence[float], is_undisturbed: Sequence[bool]) -> ProcessMedian:
    """Summarize one process by the median of its undisturbed samples."""
    used = samples_used(samples_s, is_undisturbed)
    count = sum(is_undisturbed)
    return ProcessMedian(median(used), count / len(samples_s), len(used) > count)


def samples_used(samples_s: Sequence[float], is_undisturbed: Sequence[bool]) -> Sequence[float]:
    """The undisturbed samples, or all samples if fewer than `MIN_UNDISTURBED` are undisturbed."""
    used = [s for s, ok in zip(samples_s, is_undisturbed, strict=True) if ok]
    return used if len(used) >= min(MIN_UNDISTURBED, len(samples_s)) else samples_s


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % confidence interval of the median from order statistics, for any distribution.

    The ranks use the normal approximation of the binomial distribution. None below six values, where no pair of order
    statistics reaches 95 %.
    """
    n = len(values)
    if n < 6:
        return None
    ordered = sorted(values)
    half_width = NormalDist().inv_cdf(0.975) * math.sqrt(n) / 2
    low = max(0, math.floor(n / 2 - half_width) - (1 if n < 10 else 0))
    high = min(n - 1, math.ceil(n / 2 + half_width))
    return ordered[low], ordered[high]


def lower_quartile(values: Sequence[float]) -> float:
    """The 25 % quantile."""
    return quantile(values, 0.25)


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile at `share` (0 to 1), interpolated linearly."""
    ordered, position = sorted(values), (len(values) - 1) * share
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def faster_half_range(values: Sequence[float]) -> float:
    """Range (largest minus smallest) of the faster half of the values; of all of them if there are two or three.

    The slower half contains the interference and says nothing about the time without it.
    """
    ordered = sorted(values)
    return ordered[len(values) // 2 if len(values) > 3 else -1] - ordered[0]


def estimate_time(times_s: Sequence[float], undisturbed_fractions: Sequence[float]) -> Estimate:
    """The lower quartile of one time per process, with a 95 % confidence interval.

    The lower quartile rather than the median, because other programs and virtual machines only add time, often to a
    whole process, and leave no trace (docs/method.md has the measurement). The interval is computed on logarithms,
    since times vary by factors. One process gives no interval.
    """
    n = len(times_s)
    time = math.exp(lower_quartile(list(map(math.log, times_s)))) if n > 1 else times_s[0]
    low = high = None
    if n > 1:
        largest = max(HALF_WIDTH_95)
        factor = HALF_WIDTH_95[n] if n <= largest else HALF_WIDTH_95[largest] * math.sqrt(largest / n)
        half_width = factor * faster_half_range(list(map(math.log, times_s)))
        low, high = time * math.exp(-half_width), time * math.exp(half_width)
    return Estimate(time, low, high, n, sum(undisturbed_fractions) / n)


# The standard error of a median over that of a mean, of many normal numbers: √(π/2).
MEDIAN_OVER_MEAN = math.sqrt(math.pi / 2)


def estimate_device_time(times_s: Sequence[float], undisturbed_fractions: Sequence[float]) -> Estimate:
    """The median of one time per process, with a 95 % confidence interval, for times on the clock of a device.

    Other programs do not add to these times. What varies is the clock of the device, in both directions: a cool or
    idle device is faster than it stays, so a lower quartile would favour the luckiest process. The interval is that of
    Student's t on logarithms, widened because a median varies more than a mean.
    """
    n, logs = len(times_s), list(map(math.log, times_s))
    time = math.exp(median(logs)) if n > 1 else times_s[0]
    low = high = None
    if n > 1:
        half_width = t_critical(n - 1) * MEDIAN_OVER_MEAN * stdev(logs) / math.sqrt(n)
        low, high = time * math.exp(-half_width), time * math.exp(half_width)
    return Estimate(time, low, high, n, sum(undisturbed_fractions) / n)


def t_p_value(t: float, degrees_of_freedom: float) -> float:
    """Two-sided p-value: the probability that Student's t is beyond ±|t|.

    From the regularized incomplete beta function as a continued fraction (Numerical Recipes, section 6.4).
    """
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(degrees_of_freedom / (degrees_of_freedom + t * t), degrees_of_freedom / 2, 0.5)


@cache
def t_critical(degrees_of_freedom: float, level: float = 0.95) -> float:
    """The value that |t| of Student's distribution stays below with probability `level`."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_p_value(middle, degrees_of_freedom) > 1 - level else (low, middle)
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
    """Difference between the mean log times of two sides, second minus first, with its uncertainty."""

    mean: float
    standard_error: float
    degrees_of_freedom: float

    @property
    def p(self) -> float:
        """Two-sided p-value of the hypothesis that there is no difference."""
        if self.standard_error == 0:
            return 0.0 if self.mean else 1.0
        return t_p_value(self.mean / self.standard_error, self.degrees_of_freedom)

    def half_width_at_most(self, limit: float, level: float = 0.95) -> bool:
        """Whether the confidence interval extends at most `limit` to each side of the mean."""
        return self.standard_error == 0 or t_p_value(limit / self.standard_error, self.degrees_of_freedom) <= 1 - level

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval of the mean."""
        half_width = t_critical(self.degrees_of_freedom, level) * self.standard_error
        return self.mean - half_width, self.mean + half_width


# Per number of processes: scale and degrees of freedom of Student's t that the difference of two faster halves follows,
# in units of its standard error. From 400,000 simulated pairs of normal sets; benchmarks/faster_half.py prints this.
FASTER_HALF = {
    **{2: (1.015, 2.04), 3: (1.234, 1.96), 4: (1.153, 3.70), 5: (1.251, 3.65), 6: (1.222, 5.36), 7: (1.273, 5.24)},
    **{8: (1.259, 7.05), 9: (1.302, 7.06), 10: (1.278, 8.56), 11: (1.314, 8.57), 12: (1.297, 10.12)},
    **{13: (1.313, 9.84), 14: (1.307, 11.77), 15: (1.318, 11.12), 16: (1.314, 13.01), 17: (1.324, 12.31)},
    **{18: (1.317, 14.39), 19: (1.328, 13.98), 20: (1.329, 16.56)},
}


def faster_half_terms(n: int) -> tuple[int, float, float]:
    """Of n processes per side: how many are used, and the scale and degrees of freedom of the difference."""
    largest = max(FASTER_HALF)
    scale, degrees_of_freedom = FASTER_HALF[min(n, largest)]
    return n // 2 + 1, scale, degrees_of_freedom * max(1.0, n / largest)


def faster_half_difference(a: Sequence[float], b: Sequence[float], between_sessions: float = 0.0) -> Difference | None:
    """Difference between the faster halves of two sets of process times, b minus a; None below two processes per side.

    Only the faster half is used, because interference only adds time. Both sides use the same number of processes, the
    first ones, because the faster half of a larger set is faster. `between_sessions` is the standard deviation of log
    times from one session to the next, for sides measured in different sessions; more processes do not reduce it.
    """
    n = min(len(a), len(b))
    if n < 2:
        return None
    half, scale, degrees_of_freedom = faster_half_terms(n)
    fastest = [sorted(map(math.log, side[:n]))[:half] for side in (a, b)]
    error = scale * math.sqrt(sum(map(variance, fastest)) / half)
    error = math.hypot(error, math.sqrt(2) * between_sessions)
    return Difference(mean(fastest[1]) - mean(fastest[0]), error, degrees_of_freedom)


def device_difference(a: Sequence[float], b: Sequence[float], between_sessions: float = 0.0) -> Difference | None:
    """The same of all processes, for times on the clock of a device (`estimate_device_time`): Student's t."""
    n = min(len(a), len(b))
    if n < 2:
        return None
    logs = [list(map(math.log, side)) for side in (a, b)]
    error = math.hypot(*(stdev(side) / math.sqrt(len(side)) for side in logs), math.sqrt(2) * between_sessions)
    return Difference(mean(logs[1]) - mean(logs[0]), error, 2 * (n - 1))


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Difference | None:
    """Difference between pairs of processes that ran back to back, b minus a, so that drift cancels.

    All pairs are used. None below two pairs.
    """
    return difference_of_pairs([math.log(y / x) for x, y in zip(a, b, strict=True)])


# The smallest number of heats whose extremes are trimmed, and the share that is trimmed at each end.
LEAST_TRIMMED, TRIMMED = 6, 0.2


def difference_of_pairs(log_ratios: Sequence[float]) -> Difference | None:
    """The mean of independent logarithms of ratios, with its standard error; None below two."""
    n = len(log_ratios)
    return Difference(mean(log_ratios), stdev(log_ratios) / math.sqrt(n), n - 1) if n >= 2 else None


def trimmed_difference(log_ratios: Sequence[float]) -> Difference | None:
    """The trimmed mean of independent logarithms of ratios, with its standard error; None below two.

    A fifth at each end is left out, because now and then a process is slow from its start to its end. The standard
    error comes from the winsorized variance (Tukey and McLaughlin, 1963; Wilcox, Introduction to Robust Estimation,
    section 4.3). Below six values it is the plain mean.
    """
    n = len(log_ratios)
    if n < LEAST_TRIMMED:
        return difference_of_pairs(log_ratios)
    cut = int(TRIMMED * n)
    ordered, kept = sorted(log_ratios), n - 2 * cut
    inner = ordered[cut : n - cut]
    winsorized = [inner[0]] * cut + inner + [inner[-1]] * cut
    error = stdev(winsorized) * math.sqrt((n - 1) / (kept * (kept - 1)))
    return Difference(mean(inner), error, kept - 1)


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """p-values corrected for the family-wise error rate (Holm, 1979)."""
    corrected, largest = {}, 0.0
    for i, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, p * (len(p_values) - i)))
        corrected[name] = largest
    return corrected


def benjamini_hochberg(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """p-values corrected for the false discovery rate (Benjamini and Hochberg, 1995)."""
    corrected, smallest = {}, 1.0
    for i, (name, p) in reversed([*enumerate(sorted(p_values.items(), key=lambda item: item[1]), 1)]):
        smallest = min(smallest, p * len(p_values) / i)
        corrected[name] = smallest
    return corrected
