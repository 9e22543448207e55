"""Medians, intervals and what they are made of. Pure functions on numbers, no NumPy.

Inside a process: samples, of which the clean ones count, and the order-statistic interval of their median.
Between processes: one number a process, and an interval from how far these numbers lie apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median, quantiles, stdev

# 95 % two-sided quantiles of Student's t for 1, 2, 3 … degrees of freedom (any statistics table).
T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)

# The standard error of a median of normal values is this much larger than that of their mean.
MEDIAN_INEFFICIENCY = math.sqrt(math.pi / 2)

# A sample that got less of the CPU than this share of what undisturbed samples got was disturbed.
CPU_SHARE = 0.95

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

    @property
    def half_width(self) -> float | None:
        """Half the 95 % interval as a share of the time (0.01 is ±1 %), None where unknown."""
        if self.low_s is None or self.high_s is None:
            return None
        return (self.high_s - self.low_s) / 2 / self.time_s


def t_95(degrees: int) -> float:
    """Student's t for a 95 % interval; beyond the table the normal quantile, 3 % low at worst."""
    if degrees <= len(T_95):
        return T_95[degrees - 1]
    return NormalDist().inv_cdf(0.975)


def clean(
    samples_s: Sequence[float],
    cpu_s: Sequence[float],
    involuntary_switches: Sequence[int],
    steal_s: Sequence[float | None],
    calls_per_sample: int,
) -> list[bool]:
    """Which samples were left alone: no involuntary switch, nothing stolen, and the usual share of the CPUs.

    The usual share is the third quartile of CPU time over wall time: libraries differ in how many threads spin,
    so it is compared within the process and not with the number of threads.
    """
    shares = [c / (s * calls_per_sample) for c, s in zip(cpu_s, samples_s, strict=True)]
    usual = quantiles(shares, n=4)[2] if len(shares) > 1 else shares[0]
    return [
        switches == 0 and not stolen and share >= CPU_SHARE * usual
        for switches, stolen, share in zip(involuntary_switches, steal_s, shares, strict=True)
    ]


def process_estimate(samples_s: Sequence[float], is_clean: Sequence[bool]) -> tuple[float, float]:
    """One number for a process, and the share of its samples that are clean.

    The number is the median of the clean samples; of all samples where fewer than three are clean.
    """
    chosen = [s for s, ok in zip(samples_s, is_clean, strict=True) if ok]
    fraction = len(chosen) / len(samples_s)
    return median(chosen if len(chosen) >= min(LEAST_CLEAN, len(samples_s)) else samples_s), fraction


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


def between_processes(numbers: Sequence[float], clean_fractions: Sequence[float]) -> Estimate:
    """The median of one number a process, with a 95 % interval from their spread.

    Worked out on logarithms, since times vary by factors: t · sqrt(pi/2) · s / sqrt(processes) around the median.
    One process gives no interval.
    """
    time = median(numbers)
    low = high = None
    if len(numbers) > 1:
        spread = stdev(map(math.log, numbers))
        reach = t_95(len(numbers) - 1) * MEDIAN_INEFFICIENCY * spread / math.sqrt(len(numbers))
        low, high = time * math.exp(-reach), time * math.exp(reach)
    return Estimate(time, low, high, len(numbers), sum(clean_fractions) / len(clean_fractions))
