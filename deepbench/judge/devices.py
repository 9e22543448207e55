"""A training step on several devices: each computes its part of the data, then all add up their gradients.

Strong scaling divides one batch among the devices, weak scaling gives the same batch to each. The time of a step is a
sum of calls one after the other: no step was measured as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from deepbench.core.times import Time


@dataclass(frozen=True)
class TimeRatio:
    """How many times faster, and the ends of its interval where both times have one."""

    value: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, first: Time, second: Time) -> TimeRatio:
        """The first time over the second one. The ends hold whatever the correlation of both."""
        low = None if first.low_s is None or second.high_s is None else first.low_s / second.high_s
        high = None if first.high_s is None or second.low_s is None else first.high_s / second.low_s
        return cls(first.seconds / second.seconds, low, high)

    def times(self, factor: float) -> TimeRatio:
        """The same for so many times the work."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return TimeRatio(self.value * factor, low, high)


@dataclass(frozen=True)
class AllReduce:
    """The all-reduces of the gradients of one step."""

    time: Time
    """The interval of a prediction is the range of errors of such models; none far beyond the measured groups."""
    how: Literal["measured", "predicted"]
    precision: str
    about: str
    """The library; of a prediction also the model and its errors."""
    disturbed: bool = False
    hosts: int | None = None
    """On how many hosts the ranks were."""
    oversubscribed: bool = False
    """Whether ranks shared cores."""


@dataclass(frozen=True)
class DeviceStep:
    """A training step on so many devices. What is missing is None."""

    title: str
    precision: str | None
    """Of the kernels; None for a traced network, whose kernels may have several."""
    threads: int | None
    devices: int
    one_device: Time | None
    """What one device computes for its part of the data."""
    all_reduce: AllReduce | None
    """None on one device too, which exchanges nothing."""
    withheld: str | None
    """Why there is no time of the step."""
    disturbed: bool
    """Whether other programs disturbed the times, so that nothing is concluded from them."""
    suite: str | None = None
    """None for a traced network."""
    batch: int | None = None
    """Of all devices together."""
    single_process: bool = False
    """Whether the interval of a kernel comes from one process, and so is too narrow."""

    @property
    def one_after_the_other(self) -> Time | None:
        """The part of one device, then the all-reduce."""
        return self._both(Time.plus)

    @property
    def overlapped(self) -> Time | None:
        """The longer of both: no overlap of the all-reduce with kernels makes a step shorter."""
        return self._both(Time.longer)

    def _both(self, combined: Callable[[Time, Time], Time]) -> Time | None:
        if self.withheld is not None or self.one_device is None:
            return None
        return self.one_device if self.all_reduce is None else combined(self.one_device, self.all_reduce.time)


@dataclass(frozen=True)
class DeviceScaling:
    """The steps of one model in one precision, by number of devices."""

    title: str
    steps: Sequence[DeviceStep]
    is_strong: bool = True
    """Whether the devices divide one batch; else each has the whole batch, and a speed-up is that of the throughput."""

    @property
    def first(self) -> DeviceStep | None:
        """The step on the fewest devices that has a time which is trusted: speed-ups are relative to it."""
        trusted = (s for s in self.steps if s.one_after_the_other and not s.disturbed)
        return min(trusted, key=lambda s: s.devices, default=None)

    def speed_up(self, step: DeviceStep) -> TimeRatio | None:
        """Time of the first step over the time of this one, without overlap; None where a time is not trusted."""
        first, time = self.first, step.one_after_the_other
        if first is None or first.one_after_the_other is None or time is None or step.disturbed:
            return None
        if step is first:
            return TimeRatio(1.0, 1.0, 1.0)
        ratio = TimeRatio.of(first.one_after_the_other, time)
        return ratio if self.is_strong else ratio.times(step.devices / first.devices)

    def efficiency(self, step: DeviceStep) -> float | None:
        """Speed-up over the number of devices, relative to the first step."""
        ratio = self.speed_up(step)
        return ratio.value * self.first.devices / step.devices if ratio and self.first else None

    def values(self) -> list[dict[str, Any]]:
        """All of it as plain values, for pages and programs."""
        return [
            {
                **asdict(step),
                "one_after_the_other": _plain(step.one_after_the_other),
                "overlapped": _plain(step.overlapped),
                "speed_up": _plain(self.speed_up(step)),
                "efficiency": self.efficiency(step),
            }
            for step in self.steps
        ]


def _plain(value: Time | TimeRatio | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)
