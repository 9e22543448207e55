"""The levels of memory of one machine: how much each holds, and how fast it is read, from the measured curve.

The caches that the CPU reports are upper limits: a virtual machine may report a cache that it shares with others. A
level therefore ends where reading becomes as slow as memory, if that is at a smaller working set.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# A cache level counts only if it is so many times faster than memory.
FASTER_THAN_MEMORY = 1.25

# A shorter call measures how long threads need to start. Files of earlier versions contain such limits of small sizes.
SHORTEST_READ_S = 50e-6

# Bytes that the registers of a core hold at most: 32 vectors of 64 bytes and 8 matrix tiles of 1 KiB (AVX-512, AMX).
REGISTER_BYTES = 10 * 2**10

MEMORY = "memory"


@dataclass(frozen=True)
class Level:
    """One level of memory for some number of threads."""

    name: str
    """`L1`, `L2`, `L3` or `memory`."""
    capacity: int | None
    """Bytes that it holds together with all smaller levels; None for memory."""
    below: int
    """Bytes that all smaller levels hold: what does not fit into these comes from this level."""
    points: tuple[tuple[int, float], ...]
    """Working sets that this level holds, smallest first, and the bytes per second at which they are read."""

    def rate(self, working_set: int) -> float | None:
        """Bytes per second at which this level delivers data of a working set; None if it was not measured.

        A set that is larger than the level streams through it at its highest rate.
        """
        fits = self.capacity is None or working_set <= self.capacity
        larger = [rate for size, rate in self.points if size >= working_set] if fits else []
        if larger:
            return max(larger)
        if fits and self.points:
            return self.points[-1][1]
        return max((rate for _, rate in self.points), default=None)


class Levels:
    """The measured read curves of one machine, for each number of threads."""

    def __init__(self, caches: Sequence[Mapping[str, Any]]) -> None:
        self._caches = sorted(caches, key=lambda cache: cache["level"])
        self._undisturbed: dict[int, list[tuple[int, float]]] = {}
        self._all: dict[int, list[tuple[int, float]]] = {}
        self._of: dict[int, tuple[Level, ...]] = {}
        self._sorted: dict[int, tuple[list[int], list[float]]] = {}

    def add(self, threads: int, size: int, bytes_per_s: float, seconds: float, disturbed: bool = False) -> None:
        """A working set was read at this rate, by calls of so many seconds. Calls that are too short do not count."""
        if seconds >= SHORTEST_READ_S:
            for curves in (self._all,) if disturbed else (self._all, self._undisturbed):
                curves.setdefault(threads, []).append((size, bytes_per_s))
            self._of.pop(threads, None)
            self._sorted.pop(threads, None)

    @property
    def threads(self) -> list[int]:
        """The numbers of threads that were measured."""
        return list(self._all)

    def reads(self, threads: int) -> Sequence[tuple[int, float]]:
        """Working sets in bytes, with bytes per second.

        Without those that other programs disturbed, unless only these reach up to the largest working sets.
        """
        everything, undisturbed = self._all.get(threads, []), self._undisturbed.get(threads, [])
        return undisturbed if undisturbed and max(undisturbed)[0] == max(everything)[0] else everything

    def is_disturbed(self, threads: int) -> bool:
        """Whether other programs disturbed the measurements that `reads` returns."""
        return threads in self._all and self.reads(threads) is not self._undisturbed.get(threads)

    def dram(self, threads: int) -> float | None:
        """Bytes per second of memory itself: of the largest working set that was read."""
        return max(self.reads(threads))[1] if threads in self._all else None

    def memory(self, size: int, threads: int) -> float | None:
        """Bytes per second for a working set of `size` bytes: the highest rate of any as large or larger."""
        slowest = self.dram(threads)
        if slowest is None:
            return None
        if threads not in self._sorted:
            points = sorted(self.reads(threads))
            highest = list(itertools.accumulate((rate for _, rate in reversed(points)), max))[::-1]
            self._sorted[threads] = [read_size for read_size, _ in points], highest
        sizes, highest = self._sorted[threads]
        at = bisect.bisect_left(sizes, size)
        return max(slowest, highest[at]) if at < len(sizes) else slowest

    def of(self, threads: int) -> tuple[Level, ...]:
        """The levels for so many threads, the smallest first; none if nothing was measured."""
        if threads not in self._of:
            self._of[threads] = self._find(threads)
        return self._of[threads]

    def holding(self, size: int, threads: int) -> str:
        """`L1`, `L2`, `L3` or `memory`: the level that holds a working set of `size` bytes."""
        for level in self.of(threads):
            if level.capacity is not None and size <= level.capacity:
                return level.name
        return MEMORY

    def _find(self, threads: int) -> tuple[Level, ...]:
        slowest = self.dram(threads)
        if slowest is None:
            return ()
        points = sorted(self._best(threads).items())
        # Between the largest working set that is fast and the next one that is not, a level may end anywhere.
        fast = max((size for size, rate in points if rate >= FASTER_THAN_MEMORY * slowest), default=0)
        next_slow = min((size for size, _ in points if size > fast), default=fast + 1)
        fast = min(2 * fast, next_slow - 1)
        levels, below = list[Level](), REGISTER_BYTES * threads
        for cache in self._caches:
            copies = -(-threads // cpu_count(cache.get("shared_by") or ""))
            capacity = min(cache["bytes"] * copies, fast)
            if capacity > below:
                inside = tuple(p for p in points if (below if levels else 0) < p[0] <= capacity)
                levels.append(Level(f"L{cache['level']}", capacity, below, inside))
                below = capacity
        outside = tuple(p for p in points if p[0] > (below if levels else 0))
        return (*levels, Level(MEMORY, None, below, outside))

    def _best(self, threads: int) -> dict[int, float]:
        rates: dict[int, float] = {}
        for size, rate in self.reads(threads):
            rates[size] = max(rate, rates.get(size, 0.0))
        return rates


def cpu_count(cpus: str) -> int:
    """How many CPUs a list such as `0-3,8` names, at least 1."""
    count = 0
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            count += (int(last) - int(first) if last.isdecimal() else 0) + 1
    return max(1, count)
