"""Timing in one process: warm up until the times are flat, take samples of 1–2 ms, stop when the median is known.

Each sample carries evidence of what disturbed it. `docs/method.md` gives the reason for every number here.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
from collections.abc import Iterable, Mapping
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

# Without a warm-up, one sample is not enough if it differs from the first call by more than this factor.
AGREES = 1.25

# Unmeasured calls at the start of a slice: for about this long, at least one, at most so many.
UNMEASURED_S, MOST_UNMEASURED = 1e-3, 10_000

Loop = Literal["native", "python"]
Stopped = Literal["sure", "unstable", "time", "first_call"]


class Evidence(NamedTuple):
    """Counters so far: CPU nanoseconds by thread, involuntary context switches, seconds stolen from this machine."""

    cpu_ns: dict[int, int]
    involuntary_switches: int
    steal_s: float | None
    queued_ns: dict[int, int] | None = None
    """Nanoseconds by thread in which it could have run, but something else had the CPU; None: the system does not tell.
    A thread that sleeps or waits for another thread is in no queue."""


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
        self._queues: dict[int, int] | None = {}

    @property
    def share(self) -> float:
        """The calls of a sample, as a share of all calls that it took to time them (`native/slope.py`)."""
        share: float = getattr(self.run, "share", 1.0)
        return share

    def evidence(self) -> Evidence | None:
        """See `Clock.evidence`. Steal is coarse: the system counts it in ticks of 10 ms over all CPUs."""
        switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        stolen = None
        if self._stat is not None:
            # cpu user nice system idle iowait irq softirq steal …
            stolen = int(os.pread(self._stat, 256, 0).split()[8]) / self._ticks_per_s
        cpu_ns = _cpu_ns()
        return Evidence(cpu_ns, switches, stolen, self._queued_ns(cpu_ns))

    def _queued_ns(self, threads: Iterable[int]) -> dict[int, int] | None:
        """See `Evidence.queued_ns`. Files stay open, because opening one takes longer than reading it."""
        files, times = self._queues, dict[int, int]()
        if files is None:
            return None
        for thread in threads:
            try:
                if thread not in files:
                    files[thread] = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
                times[thread] = int(os.pread(files[thread], 64, 0).split()[1])
            except ProcessLookupError:  # the thread has ended
                os.close(files.pop(thread))
            except (OSError, ValueError, IndexError):  # not Linux, not in this kernel, or too many open files
                self._queues = None
                return None
        return times


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
    queued_s: float | None = None


def take_sample(clock: Clock, turns: int) -> Sample:
    """Run this many turns, and read the counters before and after."""
    before = clock.evidence()
    elapsed = clock.run(turns)
    after = clock.evidence()
    # At least a nanosecond: a clock that does not advance would give an infinite rate.
    call_s = float(f"{max(elapsed, 1) / turns / clock.turn / 1e9:.7g}")
    if before is None or after is None:
        return Sample(call_s, None, None, None)
    share, steal = getattr(clock, "share", 1.0), None
    if before.steal_s is not None and after.steal_s is not None:
        steal = max(0.0, round(after.steal_s - before.steal_s, 3))
    queued_s = None
    if before.queued_ns is not None and after.queued_ns is not None:
        queued_s = round(share * _difference_s(before.queued_ns, after.queued_ns), 9)
    cpu_s = round(share * _difference_s(before.cpu_ns, after.cpu_ns), 9)
    switches = math.ceil(share * (after.involuntary_switches - before.involuntary_switches))
    return Sample(call_s, cpu_s, switches, steal, queued_s)


def _difference_s(before: Mapping[int, int], after: Mapping[int, int]) -> float:
    """Seconds of all threads. One that started in between had all of its time since then; of one that ended, none."""
    return sum(max(0, ns - before.get(thread, 0)) for thread, ns in after.items()) / 1e9


class Sampler:
    """The samples of one process: warmed up at the start, then taken slice by slice until a reason to stop.

    Between two slices other processes may run, so each slice begins with some calls that are not measured. `first` is
    the very first call, whose result has been checked. It may be the only sample, or the warm-up of a long kernel, only
    if it is typical: it loaded nothing (`is_typical`), and its evidence shows no other program.
    """

    def __init__(self, clock: Clock, rules: Rules, first: Sample, loop: Loop, is_typical: bool = True) -> None:
        self._clock, self._rules, self._first, self._loop = clock, rules, first, loop
        self._samples: list[Sample] = []
        self._slices: list[int] = []
        self._look, self._widths, self._not_shrinking = rules.least_samples, [float("inf")], 0
        self.stopped: Stopped | None = None
        """The reason to stop; None while there is none. Further slices may follow, to be compared with rivals."""
        self.spent_s = 0.0
        """Seconds of all slices."""
        self.calls = 0
        """Calls in all slices, those that were not measured included."""
        is_typical = is_typical and bool(_undisturbed([first], 1))
        counts = rules.first_call_counts_s is not None and first.call_s > rules.first_call_counts_s
        if counts and is_typical:
            self._turns, self._warm_up_turns, self._warm_up_s = 1, 0, 0.0
            self._samples, self._slices, self.stopped = [first], [0], "first_call"
        else:
            self._turns, self._warm_up_turns, self._warm_up_s = _warm_up(clock, rules, first.call_s, is_typical)

    @property
    def is_done(self) -> bool:
        """Whether it takes no further samples, even if rivals do."""
        out_of_time = self.spent_s >= self._rules.most_s and not self._needs_repetition()
        return self.stopped == "first_call" or out_of_time

    def slice(self, number: int, seconds: float | None) -> None:
        """Take samples for this many seconds, at least one; None: until there is a reason to stop."""
        clock, before_s = self._clock, self.spent_s
        if seconds is not None:
            self._return_to_work(seconds)
        begin = clock.now()
        while True:
            self._samples.append(take_sample(clock, self._turns))
            self._slices.append(number)
            self.calls += self._turns * clock.turn
            in_slice_s = clock.now() - begin
            self.spent_s = before_s + in_slice_s
            self.stopped = self.stopped or self._reason_to_stop()
            if self.stopped if seconds is None else in_slice_s >= seconds:
                return

    def _return_to_work(self, seconds: float) -> None:
        """Make calls that are not measured: caches, branch predictors and waiting threads belonged to others."""
        call_s = self._samples[-1].call_s if self._samples else self._first.call_s
        turns = min(MOST_UNMEASURED, max(1, round(UNMEASURED_S / max(call_s * self._clock.turn, 1e-9))))
        if call_s * self._clock.turn < seconds:
            self._clock.run(turns)
            self.calls += turns * self._clock.turn

    def _reason_to_stop(self) -> Stopped | None:
        """Looks at each doubling of the number of samples."""
        samples, rules = self._samples, self._rules
        if self.spent_s >= rules.most_s and not self._needs_repetition():
            return "time"
        if len(samples) < self._look or self.spent_s < rules.least_s:
            return None
        self._look = 2 * len(samples)
        undisturbed = _undisturbed(samples, self._turns * self._clock.turn)
        interval = stats.median_interval(undisturbed)
        if interval is None:
            return None
        width = (interval[1] - interval[0]) / median(undisturbed)
        if width <= rules.target:
            return "sure"
        self._not_shrinking = self._not_shrinking + 1 if width > LEAST_SHRINKAGE * self._widths[-1] else 0
        self._widths.append(width)
        return "unstable" if self._not_shrinking == 2 else None

    def _needs_repetition(self) -> bool:
        """Whether the samples so far are too doubtful to end here, and more may still help."""
        samples = self._samples
        if self.spent_s >= self._rules.patience * self._rules.most_s:
            return False
        if len(samples) < stats.MIN_UNDISTURBED and self._warm_up_turns == 0:
            ratio = samples[0].call_s / self._first.call_s
            if not 1 / AGREES < ratio < AGREES:
                return True
        # With fewer, `stats.process_median` would call the process disturbed.
        wanted = min(stats.MIN_UNDISTURBED, len(samples))
        calls = self._turns * self._clock.turn
        if len(samples) < self._rules.least_samples:  # so few may all be disturbed, which then looks usual
            switches = [s.involuntary_switches for s in samples]
            if len(samples) - sum(stats.interrupted([s.call_s for s in samples], switches, calls)) < wanted:
                return True
        return len(_undisturbed(samples, calls)) < wanted

    def measurement(self) -> Measurement:
        """What was measured."""
        samples, turn = self._samples, self._clock.turn
        assert self.stopped is not None, "there is a reason to stop"
        return {
            "samples_s": [s.call_s for s in samples],
            "slices": self._slices,
            "calls_per_sample": 1 if self.stopped == "first_call" else self._turns * turn,
            "cpu_s": [s.cpu_s for s in samples],
            "involuntary_switches": [s.involuntary_switches for s in samples],
            "steal_s": [s.steal_s for s in samples],
            "queued_s": [s.queued_s for s in samples],
            "first_call_s": self._first.call_s,
            "warm_up_calls": self._warm_up_turns * turn,
            "warm_up_s": round(self._warm_up_s, 6),
            "stopped": self.stopped,
            "loop": self._loop,
            "device": None,
        }


def measure_kernel(clock: Clock, rules: Rules, first: Sample, loop: Loop, is_typical: bool = True) -> Measurement:
    """Warm up and sample without pause until a reason to stop."""
    sampler = Sampler(clock, rules, first, loop, is_typical)
    if sampler.stopped is None:
        sampler.slice(0, None)
    return sampler.measurement()


def _warm_up(clock: Clock, rules: Rules, first_call_s: float, is_typical: bool) -> tuple[int, int, float]:
    """Run until two blocks of samples agree; the turns per sample, the turns run and the seconds spent.

    Where one call is as long as the warm-up, a typical first call was the warm-up. A first call may also be long
    because the library loads or because other programs run, so another call decides. A disturbed one does not.
    """
    start, total, turns = clock.now(), 0, 1
    if first_call_s >= rules.most_s and is_typical:
        return 1, 0, 0.0
    if first_call_s >= rules.warm_up_s:
        while True:
            again = take_sample(clock, 1)
            total += 1
            if again.call_s < rules.warm_up_s:
                break
            spent = clock.now() - start
            if _undisturbed([again], clock.turn) or spent >= rules.patience * rules.most_s:
                return 1, total, spent
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


def _undisturbed(samples: list[Sample], calls: int) -> list[float]:
    times = [s.call_s for s in samples]
    flags = stats.undisturbed(
        times,
        [s.cpu_s for s in samples],
        [s.involuntary_switches for s in samples],
        [s.steal_s for s in samples],
        calls,
        [s.queued_s for s in samples],
    )
    return [t for t, ok in zip(times, flags, strict=True) if ok]
