"""Timing in one process: warm up until the times are flat, take samples of 1–2 ms, stop when the median is known.

Each sample carries evidence of what disturbed it. `docs/method.md` gives the reason for every number here.
"""

from __future__ import annotations

import contextlib
import os
import resource
from statistics import median
from time import clock_gettime_ns, perf_counter, process_time_ns
from typing import Any, Literal, NamedTuple, Protocol

from deepbench.core import stats
from deepbench.plan.modes import Rules
from deepbench.results.record import Measurement

# The warm-up ends when the medians of the last two blocks of samples differ by less than this share.
FLAT = 0.02
BLOCK = 5

# The interval of a median shrinks with the square root of the number of samples: twice as many give 0.71 of its width.
# When it keeps more than this share twice in a row, more samples will not help.
LEAST_SHRINKAGE = 0.9

Loop = Literal["native", "python"]
Stopped = Literal["sure", "unstable", "time", "first_call"]


class Evidence(NamedTuple):
    """Counters so far: CPU nanoseconds by thread, involuntary context switches, seconds stolen from this machine."""

    cpu_ns: dict[int, int]
    involuntary_switches: int
    steal_s: float | None


class Clock(Protocol):
    """What a sample reads. Tests replace it by a scripted one."""

    turn: int
    """Calls per turn: more than one where kernels on different buffers take turns, so that caches are cold."""

    def run(self, turns: int) -> int:
        """Run this many turns; the nanoseconds they took."""

    def evidence(self) -> Evidence | None:
        """Counters of disturbances; None where there are none, as on the clock of a device."""

    def now(self) -> float:
        """Seconds on a monotonic clock."""


class SystemClock:
    """The clock of this machine around a timer of `native.callloop`."""

    def __init__(self, timer: Any, turn: int = 1) -> None:
        self.run = timer
        self.turn = turn
        self.now = perf_counter
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        try:
            self._stat: int | None = os.open("/proc/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # not Linux, or hidden by the container
            self._stat = None

    def evidence(self) -> Evidence | None:
        """See `Clock.evidence`. Steal is coarse: the system counts it in ticks of 10 ms over all CPUs."""
        switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        stolen = None
        if self._stat is not None:
            # cpu user nice system idle iowait irq softirq steal …
            stolen = int(os.pread(self._stat, 256, 0).split()[8]) / self._ticks_per_s
        return Evidence(_cpu_ns(), switches, stolen)


class DeviceClock(SystemClock):
    """The clock of a device, which programs on the host do not disturb."""

    def evidence(self) -> Evidence | None:
        """None: see `Clock.evidence`."""
        return None


# Linux derives the ID of a thread's CPU clock from the thread's number (include/linux/posix-timers_types.h).
_CLOCK_SCHED, _CLOCK_PER_THREAD = 2, 4


def _cpu_ns() -> dict[int, int]:
    """CPU nanoseconds of each thread of this process; of all together as thread 0 where threads are not listed.

    The CPU clock of the process is no substitute: it is updated for other running threads only at each tick of 1 to
    10 ms, which is longer than a sample.
    """
    try:
        threads = [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:  # not Linux
        return {0: process_time_ns()}
    times = {}
    for thread in threads:
        with contextlib.suppress(OSError):  # the thread has ended
            times[thread] = clock_gettime_ns((~thread << 3) | _CLOCK_SCHED | _CLOCK_PER_THREAD)
    return times


class Sample(NamedTuple):
    """One reading: seconds per call, and what disturbed it."""

    call_s: float
    cpu_s: float | None
    involuntary_switches: int | None
    steal_s: float | None


def take_sample(clock: Clock, turns: int) -> Sample:
    """Run this many turns, and read the counters before and after."""
    before = clock.evidence()
    elapsed = clock.run(turns)
    after = clock.evidence()
    # At least a nanosecond: a clock that does not advance would give an infinite rate.
    call_s = float(f"{max(elapsed, 1) / turns / clock.turn / 1e9:.7g}")
    if before is None or after is None:
        return Sample(call_s, None, None, None)
    steal = None
    if before.steal_s is not None and after.steal_s is not None:
        steal = max(0.0, round(after.steal_s - before.steal_s, 3))
    # A thread that started in between used all of its time since then. The time of one that ended is lost.
    cpu_s = sum(ns - before.cpu_ns.get(thread, 0) for thread, ns in after.cpu_ns.items()) / 1e9
    return Sample(call_s, round(cpu_s, 9), after.involuntary_switches - before.involuntary_switches, steal)


def measure_kernel(clock: Clock, rules: Rules, first: Sample, loop: Loop) -> Measurement:
    """Warm up and sample until a reason to stop. `first` is the very first call, whose result has been checked."""
    if rules.first_call_counts_s is not None and first.call_s > rules.first_call_counts_s:
        samples, turns, warm_up_turns, warm_up_s = [first], 1, 0, 0.0
        stopped: Stopped = "first_call"
    else:
        turns, warm_up_turns, warm_up_s = _warm_up(clock, rules, first.call_s)
        samples, stopped = _sample(clock, rules, turns)
    return {
        "samples_s": [s.call_s for s in samples],
        "calls_per_sample": 1 if stopped == "first_call" else turns * clock.turn,
        "cpu_s": [s.cpu_s for s in samples],
        "involuntary_switches": [s.involuntary_switches for s in samples],
        "steal_s": [s.steal_s for s in samples],
        "first_call_s": first.call_s,
        "warm_up_calls": warm_up_turns * clock.turn,
        "warm_up_s": round(warm_up_s, 6),
        "stopped": stopped,
        "loop": loop,
        "device": None,
    }


def _warm_up(clock: Clock, rules: Rules, first_call_s: float) -> tuple[int, int, float]:
    """Run until two blocks of samples agree; the turns per sample, the turns run and the seconds spent.

    Where one call is as long as the warm-up, the first call was the warm-up. A first call may also be long because the
    library loads, so a second call decides, unless that would double the time of a long run.
    """
    start, total, turns = clock.now(), 0, 1
    if first_call_s >= rules.most_s:
        return 1, 0, 0.0
    if first_call_s >= rules.warm_up_s:
        total = 1
        if clock.run(1) / 1e9 / clock.turn >= rules.warm_up_s:
            return 1, total, clock.now() - start
    blocks: list[float] = []
    while True:
        times: list[float] = []
        while len(times) < BLOCK and (not times or clock.now() - start < rules.warm_up_s):
            times.append(clock.run(turns) / 1e9 / turns)
            total += turns
        blocks.append(median(times))
        spent = clock.now() - start
        wanted = max(1, round(rules.sample_s / max(blocks[-1], 1e-9)))
        flat = len(blocks) > 1 and abs(blocks[-1] / max(blocks[-2], 1e-12) - 1) < FLAT
        settled = turns == wanted or 0.8 < turns / wanted < 1.25
        turns = turns if settled else wanted
        if (flat and settled) or spent >= rules.warm_up_s:
            return turns, total, spent


def _sample(clock: Clock, rules: Rules, turns: int) -> tuple[list[Sample], Stopped]:
    """Take samples until the rules say stop; the samples and the reason. Looks at each doubling of their number."""
    start, look, widths = clock.now(), rules.least_samples, [float("inf")]
    samples: list[Sample] = []
    not_shrinking = 0
    while True:
        samples.append(take_sample(clock, turns))
        spent = clock.now() - start
        if spent >= rules.most_s:
            return samples, "time"
        if len(samples) < look or spent < rules.least_s:
            continue
        look = 2 * len(samples)
        undisturbed = _undisturbed(samples, turns * clock.turn)
        interval = stats.median_interval(undisturbed)
        if interval is None:
            continue
        width = (interval[1] - interval[0]) / median(undisturbed)
        if width <= rules.target:
            return samples, "sure"
        not_shrinking = not_shrinking + 1 if width > LEAST_SHRINKAGE * widths[-1] else 0
        if not_shrinking == 2:
            return samples, "unstable"
        widths.append(width)


def _undisturbed(samples: list[Sample], calls: int) -> list[float]:
    times = [s.call_s for s in samples]
    flags = stats.undisturbed(
        times,
        [s.cpu_s for s in samples],
        [s.involuntary_switches for s in samples],
        [s.steal_s for s in samples],
        calls,
    )
    return [t for t, ok in zip(times, flags, strict=True) if ok]
