"""Times with their intervals, which add up to times of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Time:
    """Seconds, and the ends of a 95 % interval; None where an end is unknown."""

    seconds: float
    low_s: float | None
    high_s: float | None
    is_bound: bool = False
    """Whether it is an upper bound, because other programs disturbed a measurement. It has no lower end."""
    is_uneven: bool = False
    """Whether the machine was not equally fast during the measurements, so that the interval is wide."""

    @classmethod
    def at_most(cls, seconds: float) -> Time:
        """A time that other programs disturbed."""
        return cls(seconds, None, seconds, True)

    @property
    def half_width(self) -> float | None:
        """Half the interval relative to the time; None where there is none, or no time."""
        if self.low_s is None or self.high_s is None or not self.seconds:
            return None
        return (self.high_s - self.low_s) / 2 / self.seconds

    def times(self, factor: float) -> Time:
        """Of so many calls, or of a share of one; `factor` is at least 0."""
        low, high = (0.0 if not factor else None if end is None else end * factor for end in (self.low_s, self.high_s))
        return Time(self.seconds * factor, low, high, self.is_bound and factor > 0, self.is_uneven and factor > 0)

    def plus(self, other: Time) -> Time:
        """The sum; the ends add up, as errors of one run may all have the same sign."""
        return self._combined(other, lambda a, b: a + b)

    def longer(self, other: Time) -> Time:
        """The longer of two times; so are the ends of the interval."""
        return self._combined(other, max)

    def widened(self, share: float) -> Time:
        """The same with an interval whose ends are further away by a share of the time."""
        low = None if self.low_s is None else max(self.low_s - share * self.seconds, 0.0)
        high = None if self.high_s is None else self.high_s + share * self.seconds
        return Time(self.seconds, low, high, self.is_bound, self.is_uneven)

    def _combined(self, other: Time, how: Callable[[float, float], float]) -> Time:
        low = None if self.low_s is None or other.low_s is None else how(self.low_s, other.low_s)
        high = None if self.high_s is None or other.high_s is None else how(self.high_s, other.high_s)
        is_bound, is_uneven = self.is_bound or other.is_bound, self.is_uneven or other.is_uneven
        return Time(how(self.seconds, other.seconds), low, high, is_bound, is_uneven)


NOTHING = Time(0.0, 0.0, 0.0)
