"""Ratios of rivals that met in the same heats: the most certain comparison, because both saw the same machine.

In a heat, rivals run in slices of some milliseconds, one directly after the other. Each pair of equal slices gives a
ratio, and the median of these is the one number of the heat. Samples within a heat are not independent, so the interval
comes from the differences between heats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from deepbench.core import stats
from deepbench.results.record import MEASURED, Record
from deepbench.results.summary import Summary

# Equal libraries differ from process to process. Times from one process each give no order within this share: in 1,500
# heats with equal rivals (`benchmarks/heats.py`), 99 % of the ratios were within 10 % of 1.
ONE_PROCESS = 0.10


# Where other programs took the CPUs of one rival in most slices, the ratio of slices can be wrong by hundreds of times.
# On a quiet machine it differs from that of the medians of all samples by less than this: by at most 1.7 times in the
# 449 pairs of a published file.
CONTRADICTION = 2.0

# No verdict rests on fewer heats. Where others were left out because of such a contradiction, two that are left may
# agree by chance, and their interval, with one degree of freedom, may then have almost no width.
LEAST_HEATS = 4


def is_order(ratio: float) -> bool:
    """Whether a ratio of times from one process each is so far from 1 that it shows which is faster."""
    return abs(math.log(ratio)) > math.log(1 + ONE_PROCESS)


@dataclass(frozen=True)
class Ratio:
    """The time of one case over that of another, with its 95 % confidence interval; None from a single heat."""

    value: float
    low: float | None
    high: float | None
    is_left_over: bool = False
    """Whether it comes from fewer than LEAST_HEATS, because others were left out: then it has no interval."""

    @property
    def is_certain(self) -> bool:
        """Whether one of both is faster: the interval does not contain 1, or one heat shows a large difference."""
        if self.is_left_over:
            return False
        if self.low is None or self.high is None:
            return is_order(self.value)
        return self.low > 1 or self.high < 1

    @property
    def half_width(self) -> float | None:
        """Half the interval relative to the ratio: 0.01 is ±1 %; None from a single heat."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2 / self.value


@dataclass(frozen=True)
class Meetings:
    """The heats in which two cases met."""

    count: int
    """How many: both were measured, and have slices in common."""
    log_ratios: list[float]
    """The logarithms of the time of b over that of a, without those that the medians of all samples contradict."""

    @property
    def too_few(self) -> str | None:
        """Why no verdict can rest on them; None if one can."""
        counted = len(self.log_ratios)
        if counted >= LEAST_HEATS:
            return None
        if counted == self.count:
            return f"{counted} heat{'s' * (counted != 1)}, and a verdict needs {LEAST_HEATS}"
        return (
            f"only {counted} of {self.count} heats count, and a verdict needs {LEAST_HEATS}: in the others, one side "
            "lacked CPUs for most of the time"
        )


def meetings(a: Sequence[Record], b: Sequence[Record]) -> Meetings:
    """The heats in which both cases were measured."""
    of_a, of_b = _by_heat(a), _by_heat(b)
    pairs = [(record, of_b[name]) for name, record in of_a.items() if name in of_b]
    found = [_log_ratios(*pair) for pair in pairs]
    met = [pair for pair in found if pair is not None]
    return Meetings(len(met), [ratio for ratio, is_contradicted in met if not is_contradicted])


def log_ratios(a: Sequence[Record], b: Sequence[Record]) -> list[float]:
    """For each heat in which both cases were measured: the logarithm of the time of b over that of a."""
    return meetings(a, b).log_ratios


def ratio(a: Summary, b: Summary) -> Ratio | None:
    """The time of b over that of a; None where they did not meet in a heat."""
    met = meetings(a.used_rounds, b.used_rounds)
    logs = met.log_ratios
    if not logs:
        return None
    if len(logs) < min(met.count, LEAST_HEATS):
        return Ratio(math.exp(fmean(logs)), None, None, is_left_over=True)
    difference = stats.trimmed_difference(logs)
    if difference is None:
        return Ratio(math.exp(logs[0]), None, None)
    low, high = difference.interval()
    return Ratio(math.exp(difference.mean), math.exp(low), math.exp(high))


def _by_heat(rounds: Sequence[Record]) -> dict[str, Record]:
    return {r["heat"]["id"]: r for r in rounds if r["heat"] and r["status"] in MEASURED}


def _log_ratios(a: Record, b: Record) -> tuple[float, bool] | None:
    """The median over slices, and whether the medians of all samples contradict it; None without common slices."""
    slices_a, slices_b = _by_slice(a), _by_slice(b)
    common = [math.log(time_s / slices_a[i]) for i, time_s in slices_b.items() if i in slices_a]
    if not common:
        return None
    of_all = math.log(_median_s(b) / _median_s(a))
    of_slices = median(common)
    return of_slices, abs(of_slices - of_all) > math.log(CONTRADICTION)


def _median_s(record: Record) -> float:
    assert record["measurement"] is not None  # it has slices
    return median(record["measurement"]["samples_s"])


def _by_slice(record: Record) -> dict[int, float]:
    """Seconds per call in each slice: the median of its samples."""
    measurement = record["measurement"]
    if measurement is None or "slices" not in measurement:
        return {}
    slices: dict[int, list[float]] = {}
    for number, time_s in zip(measurement["slices"], measurement["samples_s"], strict=True):
        slices.setdefault(number, []).append(time_s)
    return {number: median(times) for number, times in slices.items()}
