"""How many samples a training needs to reach its target, how fast it takes them, and what both say together.

    time to target = samples to target / samples per second + evaluations

The first factor belongs to the application and varies with the seed; the second belongs to the machine and the library.
They are measured in the same runs and judged apart, because seeds differ by more than machines do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from deepbench.core import stats

# Beyond it, numbers leave the range of floating point.
MOST_LOG = 200.0


@dataclass(frozen=True)
class CurvePoint:
    """The quality after so many samples."""

    samples: int
    quality: float | None
    """None where it was no finite number."""
    train_s: float
    """Seconds of training since the point before."""
    evaluate_s: float
    """Seconds of this evaluation."""
    trained: int
    """Samples that were trained in these seconds."""


@dataclass(frozen=True)
class Spread:
    """A mean over runs with the ends of its interval, 95 % unless said otherwise; None with fewer than two runs."""

    value: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float], level: float = 0.95) -> Spread:
        """The geometric mean with Student's interval of the logarithms: such numbers are compared by their ratio.

        `values` has at least one number, all above 0.
        """
        logs = [math.log(value) for value in values]
        mean = statistics.fmean(logs)
        if len(logs) < 2:
            return cls(math.exp(mean), None, None)
        half = stats.t_critical(len(logs) - 1, level) * statistics.stdev(logs) / math.sqrt(len(logs))
        if abs(mean) + half > MOST_LOG:  # such a number has no meaning
            return cls(math.exp(mean), None, None)
        return cls(math.exp(mean), math.exp(mean - half), math.exp(mean + half))

    @property
    def half_width(self) -> float | None:
        """Half the interval relative to the mean."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2 / self.value

    @property
    def inverse(self) -> Spread:
        """Of seconds per sample, samples per second."""
        ends = (None, None) if self.low is None or self.high is None else (1 / self.high, 1 / self.low)
        return Spread(1 / self.value, *ends)

    def times(self, other: Spread) -> Spread:
        """The product. Both vary independently, so squares of the half widths of the logarithms add up."""
        value = self.value * other.value
        if self.low is None or other.low is None:
            return Spread(value, None, None)
        half = math.hypot(math.log(self.value / self.low), math.log(other.value / other.low))
        if abs(math.log(value)) + half > MOST_LOG:
            return Spread(value, None, None)
        return Spread(value, value * math.exp(-half), value * math.exp(half))


def crossing(points: Sequence[CurvePoint], target: float, higher_is_better: bool = True) -> float | None:
    """The samples at which a curve first reaches the target, between two evaluations in proportion; None if never.

    Without the proportion the grid of evaluations would hide the differences between seeds.
    """
    before: CurvePoint | None = None
    for point in points:
        if point.quality is None:
            before = None
            continue
        if point.quality >= target if higher_is_better else point.quality <= target:
            if before is None or before.quality is None:
                return float(point.samples)
            share = (target - before.quality) / (point.quality - before.quality)
            return before.samples + share * (point.samples - before.samples)
        before = point
    return None


def samples_per_second(points: Sequence[CurvePoint]) -> float | None:
    """Of one run, over all of its training; None without a point."""
    seconds = sum(point.train_s for point in points)
    return sum(point.trained for point in points) / seconds if seconds > 0 else None


@dataclass(frozen=True)
class MeanQuality:
    """The quality of all seeds after the same number of samples, and whether its mean reaches the target."""

    samples: int
    mean: float
    low: float | None
    """The end of the one-sided 95 % interval towards the worse."""
    runs: int

    def reaches(self, target: float, higher_is_better: bool) -> bool | None:
        """Whether the mean reaches the target with 95 % certainty; None with fewer than two runs."""
        if self.low is None:
            return None
        return self.low >= target if higher_is_better else self.low <= target


def mean_quality(curves: Sequence[Sequence[CurvePoint]], higher_is_better: bool = True) -> list[MeanQuality]:
    """The mean curve, up to the first evaluation that a run lacks or whose quality is no number."""
    found = []
    for points in zip(*curves, strict=False):
        values = [point.quality for point in points if point.quality is not None]
        if len({point.samples for point in points}) != 1 or len(values) < len(points):
            break
        mean, low = statistics.fmean(values), None
        if len(values) > 1:
            error = stats.t_critical(len(values) - 1, 0.9) * statistics.stdev(values) / math.sqrt(len(values))
            low = mean - error if higher_is_better else mean + error
        found.append(MeanQuality(points[0].samples, mean, low, len(values)))
    return found


def olympic_mean(values: Sequence[float]) -> float | None:
    """The mean without the lowest and the highest value, as MLPerf scored in 2018; None for fewer than three."""
    return statistics.fmean(sorted(values)[1:-1]) if len(values) > 2 else None
