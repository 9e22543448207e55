"""The clock for devices without events: what a call takes where the host gives orders and the device works later.

    slope      T(k), T(2k) and T(3k) are the times of so many calls with one wait at the end. What the host and the
               wait cost once is in all of them, so the time of a call is the slope of the line through them. A sample
               is T(n) less what the line has at no calls.
    loop       one program makes the call N times, another one 2N times: the difference is N calls, with no host.
    awaited    a call that takes 20 ms or longer is timed with its wait, which no longer counts.

Slope and loop are upper bounds: the slope has what the host or the driver adds to each call, and in a loop a compiler
may use slower code. Where the loop takes less, and really computes in every turn, it counts. Both are recorded.

A device or its interface may not do what this relies on. So the clock looks for it, and raises `ClockFault`, where

    the wait returns before the calls are done      reading the result after it then takes longer after more calls
    calls are merged or left out                    a program that adds 1 in each call has another sum
    calls overlap                                   calls in a row take far less time than one alone
    time does not grow with the calls               T(3k) lies off the line

Other programs only make readings longer. So lines go through the shortest of several, and no sample is a difference
of two readings, which could be too short. Readings that are compared are made in turn, or another program could run
during one kind of them only, and a device is doubted only where every one of several looks says so.
`docs/method.md` gives the reasons for the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

from deepbench.core.errors import ClockFault, Unsupported
from deepbench.core.kernel import Kernel, Queue

# Calls of this length are timed one by one, with their wait.
AWAITED_S = 20e-3
# Below it, a loop inside the program is tried: what the host adds to a call is up to 50 µs.
LOOP_BELOW_S = 0.5e-3
# The calls of the shortest reading of a line take about this long, and a program has at most so many turns.
LINE_S, MOST_TURNS = 1e-3, 2**14
# Calls before the first line.
WARM_S = 50e-3
# A sample is at least so many times as long as what the line has at no calls.
TIMES_CONSTANT = 20
# Readings of each kind; the shortest counts. Where the line is bent, further ones, up to so many.
READINGS, MOST_READINGS = 7, 35
# A fault is raised only if so many looks, each with readings of its own, all find it.
LOOKS = 4
# How far T(3k) may lie off the line, besides noise.
OFF_LINE = 0.02
# How much of a call may still be under way when the wait returns: an interface may tidy up beside. It is recorded.
HIDDEN = 0.2
# The time of a clock of the host that is too short to say anything.
RESOLUTION_NS = 300
# If usual readings are longer than the shortest by more than this share, only a line that is far off says something.
MOST_NOISE, FAR_OFF = 0.1, 0.3
# Calls of a program that counts them.
COUNTED = 50
# One call alone, less an empty call, takes at least this long where it is compared with calls in a row: below, it is
# not known well enough. Calls in a row may take this share of it: a device that idled may run slowly at first, and
# threads that slept are woken.
ALONE_S, LEAST_OF_ALONE = 0.2e-3, 0.6
# A loop that takes less than this share of what a call must take at least was moved out of the loop.
LEAST_OF_LOOP, LEAST_OF_KEPT_LOOP = 0.5, 0.02
# What an empty call costs varies: so many times as much may be in the slope of a call.
MOST_OF_EMPTY = 1.5
# Single calls, made and awaited: the time that a user sees.
HOST_CALLS = 20


class Line(NamedTuple):
    """The shortest nanoseconds of `calls`, twice and three times as many, each with one wait."""

    calls: int
    once: float
    twice: float
    thrice: float
    noise: float
    """By what share usual readings are longer than the shortest."""

    @property
    def slope_s(self) -> float:
        """Seconds per call."""
        return max(1.0, (self.thrice - self.once) / 2) / self.calls / 1e9

    @property
    def constant_ns(self) -> float:
        """What no calls would take."""
        return max(0.0, self.once - (self.thrice - self.once) / 2)

    @property
    def off(self) -> float:
        """How much longer the last third of the calls takes than the second, relative to the longer of the two."""
        second, third = self.twice - self.once, self.thrice - self.twice
        return (third - second) / max(second, third, 1.0)


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
        raise Unsupported("no group of processes runs on a device without events")

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

    def rest(self) -> None:
        for queue in self._queues:
            queue.rest()

    def empty(self) -> Queue | None:
        return self._queues[0].empty()

    def count(self, calls: int) -> int | None:
        return self._queues[0].count(calls)


class SlopeTimer:
    """Repeats → nanoseconds on the device, as the host can tell."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._call_s: float | None = None
        self._line: Line | None = None
        self._loop: Line | None = None
        self._empty: Line | None = None
        self._refused: str | None = None
        self._empty_alone_ns: float | None = None
        self._programs: dict[int, Callable[[], object]] = {}
        self._factor = 1.0
        self.clock = "awaited"
        """How the last sample was taken: `slope`, `loop` or `awaited`."""

    @property
    def share(self) -> float:
        """The calls of a sample, as a share of all calls that it took to time them."""
        return 1 / self._factor

    def once(self, calls: int = 1) -> int:
        """Nanoseconds of so many calls with their wait, without any further call."""
        elapsed = _awaited_ns(self._queue, calls)
        if self._call_s is None:
            self._call_s = elapsed / calls / 1e9
        return elapsed

    def __call__(self, repeats: int) -> int:
        self._factor = 1
        if self._call_s is None:
            self.once()
        if (self._call_s or 0.0) >= AWAITED_S:
            self.clock = "awaited"
            elapsed: float = _awaited_ns(self._queue, repeats)
        else:
            if self._line is None:
                self._draw_lines()
            elapsed = self._of_loop(repeats) if self.clock == "loop" else self._of_slope(repeats)
        self._call_s = max(1.0, elapsed) / repeats / 1e9
        return max(1, round(elapsed))

    def _of_slope(self, repeats: int) -> float:
        assert self._line is not None, "it was drawn first"
        self.clock, constant_ns = "slope", self._constant_ns(self._line)
        least_ns = TIMES_CONSTANT * self._line.constant_ns
        self._factor = max(1, math.ceil(least_ns / (repeats * self._line.slope_s * 1e9)))
        elapsed = _awaited_ns(self._queue, self._factor * repeats) - constant_ns
        return max(1.0, elapsed / self._factor)

    def _of_loop(self, repeats: int) -> float:
        assert self._loop is not None, "it was drawn first"
        # A program of as many turns is there: each number of turns would be another one.
        turns = self._loop.calls
        runs = max(1, round(repeats / turns))
        # A program alone costs what an empty call alone costs. Noise in the two points of this line may not lift it: a
        # sample would be too short.
        empty, constant_ns = self._queue.empty(), self._loop.constant_ns
        if empty is not None:
            constant_ns = min(constant_ns, self._empty_ns(empty))
        elapsed = sum(self._program_ns(turns) - constant_ns for _ in range(runs))
        self._factor = runs * turns / repeats
        return max(1.0, elapsed * repeats / (runs * turns))

    def _constant_ns(self, line: Line) -> float:
        """What no calls take. Where noise may have lifted the line, no more than an empty call alone."""
        empty = self._queue.empty()
        if empty is None or line.noise <= MOST_NOISE:
            return line.constant_ns
        return min(line.constant_ns, self._empty_ns(empty))

    def _empty_ns(self, empty: Queue) -> float:
        """What an empty call alone takes."""
        if self._empty_alone_ns is None:
            self._empty_alone_ns = min(_awaited_ns(empty, 1) for _ in range(READINGS))
        return self._empty_alone_ns

    # ---- slope or loop

    def _draw_lines(self) -> None:
        """The line of calls, that of empty calls, and that of the loop, which counts if it takes less."""
        self._warm_up()
        calls = 1
        while (elapsed := self._shortest_ns(calls)) < LINE_S * 1e9 and calls < MOST_TURNS:
            calls = min(MOST_TURNS, max(2 * calls, math.ceil(calls * LINE_S * 1e9 / max(elapsed, 1) / 2)))
        self._line = line = _line(lambda n: _awaited_ns(self._queue, n), calls)
        self.clock = "slope"
        if line.slope_s >= LOOP_BELOW_S:
            return
        if (empty := self._queue.empty()) is not None:
            self._empty = _line(lambda n: _awaited_ns(empty, n), calls)
        turns = _turns(calls)
        if not self._has_program(turns):
            return
        while (elapsed := self._program_ns(turns)) < LINE_S * 1e9 and turns < MOST_TURNS:
            more = _turns(math.ceil(turns * LINE_S * 1e9 / max(elapsed, 1)))
            turns = min(MOST_TURNS, max(2 * turns, min(more, 16 * turns)))
        self._loop = _line(self._program_ns, turns, most=2)
        self._refused = self._why_not_loop(self._loop, line)
        if self._refused is None and self._loop.slope_s < line.slope_s:
            self.clock = "loop"

    def _warm_up(self) -> None:
        """Keep the device busy: after idling, its clocks may be low."""
        calls, begin = 1, self._queue.now()
        while (spent_s := (self._queue.now() - begin) / 1e9) < WARM_S:
            _awaited_ns(self._queue, calls)
            if spent_s < WARM_S / 4:
                calls = min(MOST_TURNS, 2 * calls)
        self._queue.fetch()  # which waits even where `wait` does not

    def _shortest_ns(self, calls: int) -> int:
        return min(_awaited_ns(self._queue, calls) for _ in range(3))

    def _why_not_loop(self, loop: Line, line: Line) -> str | None:
        """Why the loop may not compute in every turn; None if it does."""
        kept = self._queue.keeps_loop()
        if kept is False:
            return "the compiler moved the work out of the loop"
        if self._empty is None:
            return None if kept else "nothing shows that it computes in every turn"
        least_s = line.slope_s - MOST_OF_EMPTY * self._empty.slope_s
        # Where the program shows it, only a time of next to nothing is doubted: the slope may have been disturbed.
        if loop.slope_s < (LEAST_OF_KEPT_LOOP if kept else LEAST_OF_LOOP) * least_s:
            return (
                f"a turn takes {loop.slope_s * 1e6:.3g} µs, and a call takes at least {least_s * 1e6:.3g} µs more than "
                "one that computes nothing, so it does not compute in every turn"
            )
        return None if kept or least_s > 0 else "calls are too short to show that it computes in every turn"

    def _has_program(self, turns: int) -> bool:
        if turns not in self._programs:
            made = self._queue.loop(turns)
            if made is None:
                return False
            self._programs[turns] = made
            _run_ns(made, self._queue)  # the first run of a program may prepare it
        return True

    def _program_ns(self, turns: int) -> int:
        """Nanoseconds of one program of so many turns."""
        if not self._has_program(turns):
            raise ClockFault("the loop inside the program was there, and is not any more")
        return _run_ns(self._programs[turns], self._queue)

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
        return {
            "clock": self.clock,
            "fallback": None,
            "during": None,
            "host_call_s": [float(f"{max(ns, 1) / 1e9 / sets:.7g}") for ns in alone],
            "queue": {
                "slope_s": _each(self._line, sets),
                "loop_s": _each(self._loop if self._refused is None else None, sets),
                "enqueue_s": self._enqueue_s() / sets,
                "empty_s": _each(self._empty, sets),
                "off_line": off_line,
                "fetch_growth": growth,
                "refused": self._refused,
            },
        }

    def _host_calls(self) -> int:
        return max(1, min(HOST_CALLS, math.ceil(0.1 / max(self._call_s or 0.1, 1e-6))))

    def _enqueue_s(self) -> float:
        """What a call costs the host, while only a few calls are under way: a queue that is full makes it wait."""
        times = []
        # Calls of seconds are given a few times only.
        for _ in range(READINGS if (self._call_s or 0.0) < AWAITED_S else 1):
            start = self._queue.now()
            self._queue.enqueue(4)
            times.append(self._queue.now() - start)
            self._queue.wait()
            self._queue.rest()
        return median(times) / 4 / 1e9

    def _off_line(self) -> float | None:
        """How far T(3k) is off the line through T(k) and T(2k), relative to k calls; None if noise hides it."""
        if self.clock == "awaited" or self._line is None:
            return None
        earlier: Line | None = self._line
        for _ in range(LOOKS):
            line = _line(lambda n: _awaited_ns(self._queue, n), self._line.calls, earlier)
            self._line, earlier = line, None
            if line.noise > MOST_NOISE and abs(line.off) < max(FAR_OFF, line.noise):
                return None
            # Other programs only make readings longer, the longest ones most, also where the host is too slow for a
            # device.
            if line.off > OFF_LINE and line.noise > OFF_LINE:
                return None
            if abs(line.off) <= OFF_LINE + line.noise:
                return float(f"{line.off:.4g}")
        raise ClockFault(
            f"time does not grow evenly with the calls: {line.calls} take {_us(line.once)}, twice as many "
            f"{_us(line.twice)}, three times as many {_us(line.thrice)}"
        )

    def _fetch_growth(self) -> float:
        """By how much reading the result takes longer after more calls, per call and relative to it."""
        assert self._call_s is not None, "calls were timed"
        few = 0
        if self.clock != "awaited" and self._line is not None:
            few = max(self._line.calls, math.ceil(LINE_S / 2 / self._line.slope_s))
        more = max(1, 3 * few)
        # With a wait that does not wait, a call seems to take no longer than giving the order.
        seems_s = self._call_s if self._line is None or self.clock == "awaited" else self._line.slope_s
        times: dict[int, list[int]] = {few: [], more: []}
        for _ in range(LOOKS if few else 1):  # calls of 20 ms or more take too long for several looks
            for _ in range(READINGS):
                for calls in times:
                    self._queue.enqueue(calls)
                    self._queue.wait()
                    start = self._queue.now()
                    self._queue.fetch()
                    times[calls].append(self._queue.now() - start)
                    self._queue.rest()
            # The shortest ones: other programs only add to them.
            hidden_ns = max(0.0, min(times[more]) - min(times[few]) - RESOLUTION_NS)
            hidden_s = hidden_ns / (more - few) / 1e9
            growth = hidden_s / (seems_s + hidden_s)
            if growth <= HIDDEN:
                return float(f"{growth:.4g}")
        raise ClockFault(
            f"the wait returns before the calls are done: after it, reading the result takes {hidden_s * 1e6:.3g} "
            f"µs longer for each call, which seemed to take {seems_s * 1e6:.3g} µs"
        )

    def _check_count(self) -> None:
        made = self._queue.count(COUNTED)
        if made is not None and made != COUNTED:
            raise ClockFault(f"the device does not make every call: of {COUNTED} calls that add 1, it made {made}")

    def _check_alone(self) -> None:
        """`ClockFault` if calls in a row take far less time than one alone, less what an empty call costs."""
        empty = self._queue.empty()
        if self.clock == "awaited" or empty is None or self._line is None:
            return
        calls = self._line.calls
        for _ in range(LOOKS):
            alone_ns = empty_ns = once_ns = thrice_ns = math.inf
            for _ in range(READINGS):
                alone_ns = min(alone_ns, _awaited_ns(self._queue, 1))
                empty_ns = min(empty_ns, _awaited_ns(empty, 1))
                once_ns = min(once_ns, _awaited_ns(self._queue, calls))
                thrice_ns = min(thrice_ns, _awaited_ns(self._queue, 3 * calls))
            alone_s = (alone_ns - empty_ns) / 1e9
            row_s = max(self._line.slope_s, (thrice_ns - once_ns) / 2 / calls / 1e9)
            if alone_s < ALONE_S or row_s >= LEAST_OF_ALONE * alone_s:
                return
        raise ClockFault(
            f"calls overlap, or are left out: in a row each takes {row_s * 1e6:.4g} µs, alone {alone_s * 1e6:.4g} µs"
        )


def _us(nanoseconds: float) -> str:
    """Microseconds for a message."""
    return f"{nanoseconds / 1e3:.4g} µs"


def _awaited_ns(queue: Queue, calls: int) -> int:
    return _run_ns(lambda: queue.enqueue(calls), queue)


def _run_ns(program: Callable[[], object], queue: Queue) -> int:
    elapsed = queue.elapsed(program)
    queue.rest()
    return elapsed


def _line(reading: Callable[[int], float], calls: int, earlier: Line | None = None, most: int = 3) -> Line:
    """A line through the shortest of several readings, and of those of an earlier line.

    With `most=2`, T(3k) is not read but lies on the line. As long as the line is bent, or a block of readings makes it
    shorter, there may be further ones.
    """
    times: dict[int, list[float]] = {n: [] for n in range(1, most + 1)}
    if earlier is not None:
        times = {n: [shortest] for n, shortest in zip(times, earlier[1:], strict=False)}
    line: Line | None = None
    for _ in range(MOST_READINGS // READINGS):
        for _ in range(READINGS):
            for n, found in times.items():
                found.append(reading(n * calls))
        shortest = {n: min(found) for n, found in times.items()}
        noise = max(median(found) / max(shortest[n], 1.0) - 1 for n, found in times.items())
        before, thrice = line, shortest.get(3, 2 * shortest[2] - shortest[1])
        line = Line(calls, shortest[1], shortest[2], thrice, noise)
        is_settled = noise <= MOST_NOISE or (before is not None and before.thrice <= (1 + OFF_LINE) * line.thrice)
        if line.twice > line.once and abs(line.off) <= OFF_LINE and is_settled:
            break
    assert line is not None, "there is at least one block of readings"
    return line


def _turns(calls: int) -> int:
    """The power of two that is nearest, because each number of turns is a program of its own."""
    return min(MOST_TURNS, 1 << max(0, round(math.log2(max(1, calls)))))


def _each(line: Line | None, sets: int) -> float | None:
    return None if line is None else float(f"{line.slope_s / sets:.7g}")
