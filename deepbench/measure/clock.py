"""The clock: warm up until flat, take samples of 1–2 ms with evidence beside them, stop when sure.

`docs/method.md` argues every number here.
"""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import asdict, dataclass
from statistics import median
from time import clock_gettime_ns, perf_counter, process_time_ns
from typing import Any, NamedTuple, Protocol

from deepbench.core import stats
from deepbench.plan.modes import Rules

# Warm enough: the medians of the last two blocks of samples differ by less than this share.
FLAT = 0.02
BLOCK = 5

# The interval of a median shrinks as 1/sqrt(samples): doubling them should give 0.71 of the width. When it keeps
# more than this, twice in a row, more samples will not help.
SHRINKS = 0.9


class Evidence(NamedTuple):
    """CPU nanoseconds by thread and involuntary switches, so far; seconds stolen from this machine."""

    cpu_ns: dict[int, int]
    involuntary_switches: int
    steal_s: float | None


class Clock(Protocol):
    """What a sample reads: the tests put a scripted one in its place."""

    turn: int
    """Calls in one turn: more than one where kernels on different buffers take turns, so that caches are cold."""

    def run(self, turns: int) -> int:
        """Make so many turns; nanoseconds they took."""

    def evidence(self) -> Evidence | None:
        """What disturbs a sample, so far; None where nothing can be told, as on a device's own clock."""

    def now(self) -> float:
        """Seconds of a monotonic clock."""


class SystemClock:
    """The real clock around a timer of `native.callloop`."""

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
        """See `Clock.evidence`. Steal is counted in ticks of 10 ms over all CPUs, so it is coarse."""
        switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        stolen = None
        if self._stat is not None:
            # cpu user nice system idle iowait irq softirq steal …
            stolen = int(os.pread(self._stat, 256, 0).split()[8]) / self._ticks_per_s
        return Evidence(_cpu_ns(), switches, stolen)


class DeviceClock(SystemClock):
    """The clock of a device: what happens on the host does not disturb it."""

    def evidence(self) -> Evidence | None:
        """None: see `Clock.evidence`."""
        return None


# Linux makes the id of a thread's CPU clock from the thread's number (include/linux/posix-timers_types.h).
_CLOCK_SCHED, _CLOCK_PER_THREAD = 2, 4


def _cpu_ns() -> dict[int, int]:
    """CPU nanoseconds of each thread of this process.

    The process's own clock counts other running threads only at each tick of 1 to 10 ms, longer than a sample. It
    stands in, as thread 0, where the system does not list threads.
    """
    try:
        threads = [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:  # not Linux
        return {0: process_time_ns()}
    found = {}
    for thread in threads:
        with contextlib.suppress(OSError):  # it has just ended
            found[thread] = clock_gettime_ns((~thread << 3) | _CLOCK_SCHED | _CLOCK_PER_THREAD)
    return found


@dataclass(frozen=True)
class Measurement:
    """What the clock said in one process. The lists have one entry a sample."""

    samples_s: list[float]
    """Seconds a call."""
    calls_per_sample: int
    cpu_s: list[float | None]
    """CPU seconds of all threads during the sample; None on a device's own clock, as the two below."""
    involuntary_switches: list[int | None]
    steal_s: list[float | None]
    first_call_s: float
    warm_up_calls: int
    warm_up_s: float
    stopped: str
    """Why: `sure`, `unstable`, `time`, or `first_call` (the first call is the only sample)."""
    loop: str
    """`native` or `python`."""
    device: dict[str, Any] | None = None
    """What the device said: which of its clocks, conditions before and after, the time that the host sees."""

    def as_dict(self) -> dict[str, Any]:
        """As a record keeps it."""
        return asdict(self)


class Sample(NamedTuple):
    """One reading: seconds a call, and the evidence beside it."""

    call_s: float
    cpu_s: float | None
    involuntary_switches: int | None
    steal_s: float | None


def take_sample(clock: Clock, turns: int) -> Sample:
    """Make so many turns between two looks at the evidence."""
    before = clock.evidence()
    elapsed = clock.run(turns)
    after = clock.evidence()
    # A clock that does not advance would make an endless rate: a nanosecond is the least it can mean.
    call_s = float(f"{max(elapsed, 1) / turns / clock.turn / 1e9:.7g}")
    if before is None or after is None:
        return Sample(call_s, None, None, None)
    steal = None
    if before.steal_s is not None and after.steal_s is not None:
        steal = max(0.0, round(after.steal_s - before.steal_s, 3))
    # A thread that began in between has used all its time since; what one that ended used is lost.
    cpu_s = sum(ns - before.cpu_ns.get(thread, 0) for thread, ns in after.cpu_ns.items()) / 1e9
    return Sample(call_s, round(cpu_s, 9), after.involuntary_switches - before.involuntary_switches, steal)


def measure_kernel(clock: Clock, rules: Rules, first: Sample, loop: str) -> Measurement:
    """Warm up, sample, stop. `first` is the very first call, whose answer was checked before."""
    if rules.first_call_counts_s is not None and first.call_s > rules.first_call_counts_s:
        samples, turns, warm_up_turns, warm_up_s, stopped = [first], 1, 0, 0.0, "first_call"
    else:
        turns, warm_up_turns, warm_up_s = _warm_up(clock, rules, first.call_s)
        samples, stopped = _sample(clock, rules, turns)
    return Measurement(
        [s.call_s for s in samples],
        1 if stopped == "first_call" else turns * clock.turn,
        [s.cpu_s for s in samples],
        [s.involuntary_switches for s in samples],
        [s.steal_s for s in samples],
        first.call_s,
        warm_up_turns * clock.turn,
        round(warm_up_s, 6),
        stopped,
        loop,
    )


def _warm_up(clock: Clock, rules: Rules, first_call_s: float) -> tuple[int, int, float]:
    """Run until two blocks of samples agree; returns turns in a sample, turns made and seconds spent.

    A kernel so long that one call fills the warm-up was warmed by its first call. A first call may also be long
    because the library loads, so a second one decides, unless that alone would double the time of a long run.
    """
    start, made, turns = clock.now(), 0, 1
    if first_call_s >= rules.most_s:
        return 1, 0, 0.0
    if first_call_s >= rules.warm_up_s:
        made = 1
        if clock.run(1) / 1e9 / clock.turn >= rules.warm_up_s:
            return 1, made, clock.now() - start
    blocks: list[float] = []
    while True:
        times: list[float] = []
        while len(times) < BLOCK and (not times or clock.now() - start < rules.warm_up_s):
            times.append(clock.run(turns) / 1e9 / turns)
            made += turns
        blocks.append(median(times))
        spent = clock.now() - start
        wanted = max(1, round(rules.sample_s / max(blocks[-1], 1e-9)))
        flat = len(blocks) > 1 and abs(blocks[-1] / max(blocks[-2], 1e-12) - 1) < FLAT
        settled = turns == wanted or 0.8 < turns / wanted < 1.25
        turns = turns if settled else wanted
        if (flat and settled) or spent >= rules.warm_up_s:
            return turns, made, spent


def _sample(clock: Clock, rules: Rules, turns: int) -> tuple[list[Sample], str]:
    """Take samples until the rules say stop, and say why. The interval is looked at when samples have doubled."""
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
        chosen = _clean(samples, turns * clock.turn)
        interval = stats.median_interval(chosen)
        if interval is None:
            continue
        width = (interval[1] - interval[0]) / median(chosen)
        if width <= rules.target:
            return samples, "sure"
        not_shrinking = not_shrinking + 1 if width > SHRINKS * widths[-1] else 0
        if not_shrinking == 2:
            return samples, "unstable"
        widths.append(width)


def _clean(samples: list[Sample], calls: int) -> list[float]:
    times = [s.call_s for s in samples]
    flags = stats.undisturbed(
        times,
        [s.cpu_s for s in samples],
        [s.involuntary_switches for s in samples],
        [s.steal_s for s in samples],
        calls,
    )
    return [t for t, ok in zip(times, flags, strict=True) if ok]
