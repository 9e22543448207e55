"""The clock for devices without events: what a call takes where the host gives orders and the device works later.

    slope      T(k), T(2k) and T(3k) are the times of so many calls with one wait at the end. What the host and the
               wait cost once is in all of them, so the time of a call is the slope of the line through them.
    loop       one program makes the call N times, another one 2N times: the difference is N calls, with no host.
    awaited    a call that takes 20 ms or longer is timed with its wait, which no longer counts.

Slope and loop are upper bounds: the slope has what the host or the driver adds to each call, and in a loop a compiler
may use slower code. Where the loop takes less, and really computes in every turn, it counts. Both are recorded.

A device or its interface may not do what this relies on. So the clock looks for it, and raises `ClockFault`, where

    the wait returns before the calls are done      reading the result after it then takes longer after more calls
    calls are merged or left out                    a program that adds 1 in each call has another sum
    calls overlap                                   calls in a row take far less time than one alone
    time does not grow with the calls               T(3k) lies off the line

`docs/method.md` gives the reasons for the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

from deepbench.core.errors import ClockFault
from deepbench.core.kernel import Kernel, Queue

# Calls of this length are timed one by one, with their wait.
AWAITED_S = 20e-3
# Below it, a loop inside the program is tried: what the host adds to a call is up to 50 µs.
LOOP_BELOW_S = 0.5e-3
# The calls of a loop take about this long in all, and a program has at most so many turns.
LOOP_S, MOST_TURNS = 1e-3, 2**14
# Readings of a comparison; the median counts.
READINGS = 7
# How far T(3k) may lie off the line, and how much of a call the reading of a result may hide, besides noise.
OFF_LINE, HIDDEN = 0.02, 0.02
# With more noise than this share of the slope, the line says nothing.
MOST_NOISE = 0.5
# Standard errors of a difference that count as noise.
ERRORS = 4.0
# Calls of a program that counts them.
COUNTED = 50
# One call alone, less an empty call, takes at least this long where it is compared with calls in a row: below, it is
# not known well enough. Calls in a row may take this share of it: a device that idled may run slowly at first.
ALONE_S, LEAST_OF_ALONE = 0.2e-3, 0.7
# A loop that takes less than this share of what a call must take at least was moved out of the loop.
LEAST_OF_LOOP = 0.5
# What an empty call costs varies: so many times as much may be in the slope of a call.
MOST_OF_EMPTY = 1.5
# Single calls, made and awaited: the time that a user sees.
HOST_CALLS = 20


class Reading(NamedTuple):
    """Nanoseconds of `calls`, twice and three times as many, each with one wait."""

    calls: int
    once: int
    twice: int
    thrice: int


class QueueDevice:
    """A device as kernels with a queue see it; implements `core.kernel.Device`."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.on_host = queue.on_host

    def in_turn(self, others: Sequence[Any]) -> QueueDevice:
        """A queue of the calls of all of them."""
        return QueueDevice(_Turns([self.queue, *(other.queue for other in others)])) if others else self

    def timer(self, enqueue: Callable[[int], int], calls: int) -> SlopeTimer:
        """A timer for the calls of its own queue."""
        return SlopeTimer(self.queue)

    def each_timer(self, kernel: Kernel) -> Any:
        """No group runs on such a device."""
        raise NotImplementedError

    def conditions(self) -> dict[str, Any] | None:
        """No sensors are known."""
        return None

    def warnings(self, seen: dict[str, Any]) -> list[tuple[str, str]]:
        """Code and sentence of each reason to doubt a measurement."""
        queue = seen["queue"]
        return [("loop_refused", f"the loop inside the program does not count: {queue['refused']}")] * bool(
            queue["refused"]
        )


class _Turns(Queue):
    """Queues that take turns, call by call."""

    def __init__(self, queues: Sequence[Queue]) -> None:
        self._queues = queues
        self.on_host, self.now = queues[0].on_host, queues[0].now

    def enqueue(self, calls: int) -> None:
        for _ in range(calls):
            for queue in self._queues:
                queue.enqueue(1)

    def wait(self) -> None:
        for queue in self._queues:
            queue.wait()

    def fetch(self) -> None:
        for queue in self._queues:
            queue.fetch()

    def empty(self) -> Queue | None:
        return self._queues[0].empty()

    def count(self, calls: int) -> int | None:
        return self._queues[0].count(calls)


class SlopeTimer:
    """Repeats → nanoseconds on the device, as the host can tell."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._call_s: float | None = None
        self._readings: list[Reading] = []
        self._loops: dict[int, Callable[[], object]] = {}
        self._has_chosen = False
        self._slope_s: float | None = None
        self._loop_s: float | None = None
        self._empty_s: float | None = None
        self._refused: str | None = None
        self.clock = "awaited"
        """How the last sample was taken: `slope`, `loop` or `awaited`."""

    @property
    def share(self) -> float:
        """The calls of a sample, as a share of all calls that it took to time them."""
        return {"slope": 1 / 6, "loop": 1 / 3, "awaited": 1.0}[self.clock]

    def once(self, calls: int = 1) -> int:
        """Nanoseconds of so many calls with their wait, without any further call."""
        elapsed = _awaited_ns(self._queue, calls)
        if self._call_s is None:
            self._call_s = elapsed / calls / 1e9
        return elapsed

    def __call__(self, repeats: int) -> int:
        if self._call_s is None:
            self.once()
        if self._call_s is not None and self._call_s >= AWAITED_S:
            self.clock = "awaited"
            elapsed: float = _awaited_ns(self._queue, repeats)
        elif self.clock == "loop":
            elapsed = self._loop_ns(_turns(repeats)) * repeats / _turns(repeats)
        else:
            self.clock = "slope"
            reading = _reading(self._queue, repeats)
            self._readings.append(reading)
            elapsed = (reading.thrice - reading.once) / 2
        self._call_s = max(1.0, elapsed) / repeats / 1e9
        if self.clock == "slope" and not self._has_chosen and len(self._readings) > 1 and self._call_s < LOOP_BELOW_S:
            self._choose(repeats)
        return max(1, round(elapsed))

    # ---- slope or loop

    def _choose(self, repeats: int) -> None:
        """Take the loop inside the program if it takes less time, and computes in every turn."""
        self._has_chosen = True
        self._slope_s = median(_per_call_s(_reading(self._queue, repeats)) for _ in range(READINGS))
        if (empty := self._queue.empty()) is not None:
            self._empty_s = max(1e-9, median(_per_call_s(_reading(empty, repeats)) for _ in range(READINGS)))
        turns = _turns(max(1, round(LOOP_S / self._slope_s)))
        if not self._has_loop(turns):
            return
        while (elapsed := self._loop_ns(turns)) < LOOP_S * 1e9 / 2 and turns < MOST_TURNS:
            grown = _turns(min(MOST_TURNS, max(2 * turns, round(turns * LOOP_S * 1e9 / max(elapsed, 1e3)))))
            turns = min(grown, 16 * turns)
        self._loop_s = median(max(1.0, self._loop_ns(turns)) / turns / 1e9 for _ in range(READINGS))
        self._refused = self._why_not_loop()
        if self._refused is None and self._loop_s < self._slope_s:
            self.clock, self._call_s = "loop", self._loop_s

    def _why_not_loop(self) -> str | None:
        """Why the loop may not compute in every turn; None if it does."""
        assert self._slope_s is not None, "it is measured first"
        assert self._loop_s is not None, "it is measured first"
        kept = self._queue.keeps_loop()
        if kept is False:
            return "the compiler moved the work out of the loop"
        if self._empty_s is None:
            return None if kept else "nothing shows that it computes in every turn"
        least_s = self._slope_s - MOST_OF_EMPTY * self._empty_s
        if self._loop_s < LEAST_OF_LOOP * least_s:
            return (
                f"a turn takes {self._loop_s * 1e6:.3g} µs, and a call takes at least {least_s * 1e6:.3g} µs more than "
                "one that computes nothing, so it does not compute in every turn"
            )
        return None if kept or least_s > 0 else "calls are too short to show that it computes in every turn"

    def _has_loop(self, turns: int) -> bool:
        for n in (turns, 2 * turns):
            if n not in self._loops:
                made = self._queue.loop(n)
                if made is None:
                    return False
                self._loops[n] = made
                made()  # the first run of a program may prepare it
                self._queue.wait()
        return True

    def _loop_ns(self, turns: int) -> float:
        """Nanoseconds of so many turns: by how much a program of twice as many takes longer."""
        if not self._has_loop(turns):
            raise ClockFault("the loop inside the program was there, and is not any more")
        short, long = self._loops[turns], self._loops[2 * turns]
        return _run_ns(long, self._queue) - _run_ns(short, self._queue)

    # ---- facts and faults

    def facts(self, sets: int, energy_s: float | None = None) -> dict[str, Any]:
        """For the record. `ClockFault` where the device does not do what this clock relies on.

        One repeat is a call on each of so many `sets` of buffers.
        """
        self._check_count()
        growth = self._fetch_growth()
        off_line = self._off_line()
        self._check_alone()
        alone = [_awaited_ns(self._queue, 1) for _ in range(self._host_calls())]
        slope_s = self._slope_s if self.clock == "loop" else self._last_slope_s()
        return {
            "clock": self.clock,
            "fallback": None,
            "during": None,
            "host_call_s": [float(f"{max(ns, 1) / 1e9 / sets:.7g}") for ns in alone],
            "queue": {
                "slope_s": _each(slope_s, sets),
                "loop_s": _each(self._loop_s if self._refused is None else None, sets),
                "enqueue_s": self._enqueue_s() / sets,
                "empty_s": _each(self._empty_s, sets),
                "off_line": off_line,
                "fetch_growth": growth,
                "refused": self._refused,
            },
        }

    def _host_calls(self) -> int:
        return max(1, min(HOST_CALLS, math.ceil(0.1 / max(self._call_s or 0.1, 1e-6))))

    def _last_slope_s(self) -> float | None:
        readings = self._last_readings()
        return median(map(_per_call_s, readings)) if readings else None

    def _last_readings(self) -> list[Reading]:
        """Those with as many calls as the last one: those before belong to the warm-up."""
        return [r for r in self._readings if r.calls == self._readings[-1].calls]

    def _enqueue_s(self) -> float:
        """What a call costs the host, while only a few calls are under way: a queue that is full makes it wait."""
        times = []
        for _ in range(READINGS):
            start = self._queue.now()
            self._queue.enqueue(4)
            times.append(self._queue.now() - start)
            self._queue.wait()
        return median(times) / 4 / 1e9

    def _off_line(self) -> float | None:
        """How far T(3k) is off the line through T(k) and T(2k), relative to k calls; None if noise hides it."""
        readings = self._last_readings() if self._readings else []
        if len(readings) < READINGS:
            return None
        first, second = [r.twice - r.once for r in readings], [r.thrice - r.twice for r in readings]
        slope, more, noise_ns = median(first), median(second), ERRORS * math.hypot(_error(first), _error(second))
        if noise_ns > MOST_NOISE * max(slope, more):
            return None
        off = (more - slope) / max(slope, more)
        if abs(more - slope) > OFF_LINE * max(slope, more) + noise_ns:
            raise ClockFault(
                f"time does not grow evenly with the calls: of {readings[-1].calls}, twice and three times as many, "
                f"the second take {units_us(slope)}, and the third {units_us(more)}; {OFF_LINE:.0%} and a noise of "
                f"{units_us(noise_ns)} are allowed"
            )
        return float(f"{off:.4g}")

    def _fetch_growth(self) -> float:
        """By how much reading the result takes longer after more calls, per call and relative to it."""
        assert self._call_s is not None, "calls were timed"
        if self.clock == "awaited":
            few, more = 0, 1
        else:
            few = max(1, self._readings[-1].calls if self._readings else 1)
            more = 3 * few
        times: dict[int, list[int]] = {few: [], more: []}
        for _ in range(READINGS):
            for calls in times:
                self._queue.enqueue(calls)
                self._queue.wait()
                start = self._queue.now()
                self._queue.fetch()
                times[calls].append(self._queue.now() - start)
        # The shortest ones: other programs only add to them.
        hidden_s = (min(times[more]) - min(times[few])) / (more - few) / 1e9
        # With a wait that does not wait, a call seems to take no longer than giving the order.
        seems_s = self._last_slope_s() or self._call_s
        growth = hidden_s / (seems_s + max(0.0, hidden_s))
        if growth > HIDDEN:
            raise ClockFault(
                f"the wait returns before the calls are done: after it, reading the result takes {hidden_s * 1e6:.3g} "
                f"µs longer for each call, which seemed to take {seems_s * 1e6:.3g} µs"
            )
        return float(f"{growth:.4g}")

    def _check_count(self) -> None:
        made = self._queue.count(COUNTED)
        if made is not None and made != COUNTED:
            raise ClockFault(f"the device does not make every call: of {COUNTED} calls that add 1, it made {made}")

    def _check_alone(self) -> None:
        """`ClockFault` if calls in a row take far less time than one alone, less what an empty call costs."""
        empty = self._queue.empty()
        if self.clock == "awaited" or empty is None or self._call_s is None:
            return
        alone_ns = min(_awaited_ns(self._queue, 1) for _ in range(READINGS))
        alone_s = (alone_ns - min(_awaited_ns(empty, 1) for _ in range(READINGS))) / 1e9
        if alone_s >= ALONE_S and self._call_s < LEAST_OF_ALONE * alone_s:
            raise ClockFault(
                f"calls overlap, or are left out: in a row each takes {self._call_s * 1e6:.4g} µs, alone "
                f"{alone_s * 1e6:.4g} µs"
            )


def units_us(nanoseconds: float) -> str:
    """Microseconds for a message."""
    return f"{nanoseconds / 1e3:.4g} µs"


def _awaited_ns(queue: Queue, calls: int) -> int:
    start = queue.now()
    queue.enqueue(calls)
    queue.wait()
    elapsed: int = queue.now() - start
    return elapsed


def _run_ns(program: Callable[[], object], queue: Queue) -> int:
    start = queue.now()
    program()
    queue.wait()
    elapsed: int = queue.now() - start
    return elapsed


def _reading(queue: Queue, calls: int) -> Reading:
    return Reading(calls, *(_awaited_ns(queue, n * calls) for n in (1, 2, 3)))


def _per_call_s(reading: Reading) -> float:
    return max(1.0, (reading.thrice - reading.once) / 2) / reading.calls / 1e9


def _turns(calls: int) -> int:
    """The power of two that is nearest, because each number of turns is a program of its own."""
    return min(MOST_TURNS, 2 ** max(0, round(math.log2(max(1, calls)))))


def _each(seconds: float | None, sets: int) -> float | None:
    return None if seconds is None else float(f"{seconds / sets:.7g}")


def _error(values: Sequence[float]) -> float:
    """Standard error of the median, from the median deviation (of a normal distribution, 1 / 1.4826 of the standard
    deviation, whose error is 1.2533 times that of the mean)."""
    middle = median(values)
    return 1.4826 * 1.2533 * median(abs(v - middle) for v in values) / math.sqrt(len(values))
