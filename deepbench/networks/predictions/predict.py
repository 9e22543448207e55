"""The time of a traced step from the measured times of its kernels.

    step = Σ kernels + Σ other operators + operators · overhead

A kernel costs what it costs alone, between its times with its operands in caches (`cache=hot`) and in memory
(`cache=cold`): the share of its bytes that the step has not touched for more bytes than the caches hold comes from
memory. Other operators cost what an addition of as many bytes costs in the same library. The overhead is what the
framework needs for each operator besides, such as the Python code of modules and the graph for gradients.

What is not modelled: operators that run at the same time, memory that the system has to clear first, and clocks that
differ between the measurements of kernels and the step.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from deepbench.core.case import Case, parse_pattern
from deepbench.core.times import NOTHING, Time
from deepbench.networks.traces.trace import Trace, TracedCall
from deepbench.plan.cases import Choices, expand
from deepbench.plan.suites import Entry
from deepbench.results.summary import Summary

# Additions of so many numbers say what operators cost of which only the bytes are known.
YARDSTICK = tuple(2**e for e in (8, 12, 15, 18, 20, 22, 24))
YARDSTICK_BYTES = 12

# A kernel whose operands come from memory for a smaller share of its bytes is measured in caches only, and one with a
# larger share than one minus this from memory only.
NEGLIGIBLE = 0.02

# A time of too few samples for an interval may be off by this share.
FEW_SAMPLES = 0.1

# What the method itself may be off by, at 95 %: Student's t of three degrees of freedom, times the root mean square
# error of the three networks on which the method was fixed (docs/prediction.md).
MODEL_ERROR = 0.031

# With a larger share of disturbed or uneven kernels, nothing is concluded from a prediction.
MOST_DISTURBED = 0.1

# Real steps next to a kernel differ from the usual step by a few percent for no reason that lasts. With a larger
# difference the machine had another speed.
SAME_SPEED = 0.1

# Operations without which a sum of times is not a prediction: their work is not proportional to their bytes.
DOMINANT = ("gemm", "linear", "batched_gemm", "grouped_gemm", "conv", "attention", "recurrent", "weight_only_gemm")


@dataclass(frozen=True)
class Need:
    """A kernel of a step, and how its calls find their operands."""

    kernel: str
    count: int
    cold_calls: float
    """The sum over its calls of the share of their bytes that come from memory."""
    hot: Case | None
    """What is measured; None if the library does not serve it."""
    cold: Case | None
    places: tuple[str, ...]
    bytes: int
    """Of one call."""
    operators: int
    """How many operators the framework runs for one call."""

    @property
    def is_chain(self) -> bool:
        """Whether the framework runs a chain of operators in place of the kernel."""
        return self.operators > 1

    @property
    def cold_share(self) -> float:
        return self.cold_calls / self.count

    @property
    def cases(self) -> tuple[Case, ...]:
        """What must be measured: in one state of the caches, or in both."""
        if self.hot is None or self.cold is None or self.is_chain:
            return ()
        chosen = [self.hot] if self.cold_share < 1 - NEGLIGIBLE else []
        return tuple(chosen + ([self.cold] if self.cold_share > NEGLIGIBLE else []))


@dataclass(frozen=True)
class Speed:
    """The usual real step over those next to a kernel: by this factor the kernel would have taken another time.

    `low` and `high` are the ends of the factors by which single steps next to it differ from the usual one.
    """

    factor: float = 1.0
    low: float = 1.0
    high: float = 1.0

    @property
    def is_same(self) -> bool:
        """Whether the machine had its usual speed."""
        return self.low >= 1 - SAME_SPEED and self.high <= 1 + SAME_SPEED

    def of(self, time: Time) -> Time:
        """The time at the usual speed.

        At another speed not all kernels are slower by the same factor: other programs take memory bandwidth from one,
        and a CPU from another. So the interval reaches from the time as it was measured to that by all of the factor.
        """
        if self.is_same:
            return time.times(self.factor)
        low_s = None if time.low_s is None else time.low_s * min(self.low, 1.0)
        high_s = None if time.high_s is None else time.high_s * max(self.high, 1.0)
        return Time(time.seconds * self.factor, low_s, high_s, time.is_bound, True)


@dataclass(frozen=True)
class KernelShare:
    """A part of the time of a step: all calls of one kernel."""

    need: Need
    time: Time | None
    """Of all its calls; None if it was not measured."""
    how: str
    """`measured`, `from its bytes`, or why it has no time."""
    flop: int = 0
    """Of all its calls."""

    @property
    def disturbed(self) -> bool:
        """Whether other programs disturbed its measurement, so that its time is an upper bound."""
        return self.time is not None and self.time.is_bound

    @property
    def uneven(self) -> bool:
        """Whether the machine had another speed while it was measured."""
        return self.time is not None and self.time.is_uneven


@dataclass(frozen=True)
class Prediction:
    """The time of a step and what it consists of."""

    trace: Trace
    library: str
    threads: int
    parts: tuple[KernelShare, ...]
    """The longest first."""
    others: Time | None
    """Operators that are no operation of ours; None if their bytes say nothing, because no addition has a time."""
    overhead: Time | None
    """Of the framework; None if it is unknown."""

    @property
    def missing(self) -> tuple[KernelShare, ...]:
        """Kernels without a time."""
        return tuple(part for part in self.parts if part.time is None)

    @property
    def known(self) -> Time:
        """The sum of what is known: the step takes at least so long, if anything is missing.

        The interval includes what the method itself may be off by.
        """
        total = NOTHING
        for time in (self.others, self.overhead, *(part.time for part in self.parts)):
            if time is not None:
                total = total.plus(time)
        return total.widened(MODEL_ERROR)

    @property
    def time(self) -> Time | None:
        """The predicted time; None where a kernel is missing."""
        return None if self.missing else self.known

    @property
    def disturbed(self) -> tuple[KernelShare, ...]:
        """Kernels whose measurement other programs disturbed."""
        return tuple(part for part in self.parts if part.disturbed)

    @property
    def disturbed_share(self) -> float:
        """The share of them, and of other operators if additions were disturbed, in the known time."""
        return self._share(lambda time: time.is_bound)

    @property
    def uneven(self) -> tuple[KernelShare, ...]:
        """Kernels during whose measurement the machine had another speed."""
        return tuple(part for part in self.parts if part.uneven)

    @property
    def uneven_share(self) -> float:
        """The share of them, and of other operators if additions were uneven, in the known time."""
        return self._share(lambda time: time.is_uneven)

    def _share(self, counts: Callable[[Time], bool]) -> float:
        """The share of the known time that consists of such times of kernels and other operators."""
        known = self.known.seconds
        times = [*(part.time for part in self.parts), self.others]
        return sum(time.seconds for time in times if time and counts(time)) / known if known else 0.0

    @property
    def is_trusted(self) -> bool:
        """Whether conclusions may be drawn from it: disturbed or uneven kernels are at most a tenth of the time."""
        return self._share(lambda time: time.is_bound or time.is_uneven) <= MOST_DISTURBED

    def error(self, measured: Time | None) -> float | None:
        """Predicted over measured, less 1; None where one is missing, disturbed, or the prediction is not trusted."""
        if self.time is None or measured is None or measured.is_bound or not self.is_trusted:
            return None
        return self.time.seconds / measured.seconds - 1

    @property
    def measured_share(self) -> float:
        """The share of the known time that consists of measured kernels."""
        known = self.known.seconds
        return sum(p.time.seconds for p in self.parts if p.time and p.how == "measured") / known if known else 0.0


def cold_share(call: TracedCall, distances: Mapping[int, int], sizes: Sequence[int], capacity: int) -> float:
    """The share of the bytes of a call that were not touched for more bytes than the caches hold.

    All of them where the buffers are unknown: the kernels of most steps touch more than the caches hold.
    """
    if not sizes:
        return 1.0
    buffers = dict.fromkeys((*call.reads, *call.writes))
    total = sum(sizes[b] for b in buffers)
    far = sum(sizes[b] for b in buffers if distances.get(b, capacity + 1) + sizes[b] > capacity)
    return far / total if total else 0.0


def needs(trace: Trace, library: str, threads: int, capacity: int) -> list[Need]:
    """The kernels of a step with the cases that say what they cost; `capacity` is what the caches hold, in bytes."""
    found: dict[str, list[tuple[float, TracedCall]]] = {}
    for call, distances in zip(trace.calls, trace.reuse_distances, strict=True):
        if call.kernel is not None:
            share = cold_share(call, distances, trace.buffers, capacity)
            found.setdefault(call.kernel, []).append((share, call))
    made = []
    for kernel, calls in found.items():
        hot, cold = (_case(kernel, library, threads, state) for state in ("hot", "cold"))
        places = tuple(dict.fromkeys(call.where for _, call in calls))
        size = sum(call.bytes for _, call in calls) // len(calls)
        ran = max(call.operators for _, call in calls)
        made.append(Need(kernel, len(calls), sum(share for share, _ in calls), hot, cold, places, size, ran))
    return made


@cache
def _case(kernel: str, library: str, threads: int, state: str) -> Case | None:
    choices = Choices(backends=(library,), threads=(threads,), settings={"cache": (state,)})
    planned = expand([Entry(parse_pattern(kernel), None)], choices, threads)
    return planned[0].case if planned else None


def yardstick(library: str, threads: int) -> dict[tuple[str, int], Case]:
    """The additions that say what other operators cost: by state of the caches and bytes."""
    cases = {}
    for n in YARDSTICK:
        for state in ("hot", "cold"):
            case = _case(f"elementwise kind=add n={n} forward f32", library, threads, state)
            if case is not None:
                cases[state, n * YARDSTICK_BYTES] = case
    return cases


class Times:
    """The measured times of cases."""

    def __init__(self, summaries: Iterable[Summary], speeds: Mapping[str, Speed] | None = None) -> None:
        """`speeds`: how fast the machine was when a case was measured; the usual speed by default."""
        self._of = {s.record["case"]: s for s in summaries}
        self._speeds = speeds or {}

    def of(self, case: Case | None) -> Time | None:
        """The time of a case, an upper bound if it was disturbed; None without a trusted answer."""
        s = None if case is None else self._of.get(case.text)
        if case is None or s is None or s.estimate is None or not s.is_ranked:
            return None
        middle, low, high = s.estimate.time_s, s.estimate.low_s, s.estimate.high_s
        if low is None or high is None:
            low, high = middle * (1 - FEW_SAMPLES), middle * (1 + FEW_SAMPLES)
        time = Time.at_most(middle) if s.is_disturbed else Time(middle, low, high)
        return self._speeds.get(case.text, Speed()).of(time)

    def reason(self, case: Case | None, library: str) -> str:
        """Why a case has no time."""
        if case is None:
            return f"{library} does not serve it"
        s = self._of.get(case.text)
        return "not measured" if s is None else s.record["reason"] or s.status


def predict(
    trace: Trace,
    times: Times,
    library: str,
    threads: int,
    capacity: int,
    overhead_s: Time | None,
) -> Prediction:
    """The time of a step; `overhead_s` is what each operator costs besides its kernel."""
    price = _Price(times, library, threads)
    parts = [_part(need, times, price, library) for need in needs(trace, library, threads, capacity)]
    others: Time | None = NOTHING
    for call, distances in zip(trace.calls, trace.reuse_distances, strict=True):
        if call.kernel is None and others is not None:
            each = price.of(call.bytes, cold_share(call, distances, trace.buffers, capacity))
            others = None if each is None else others.plus(each)
    overhead = None if overhead_s is None else overhead_s.times(trace.operators)
    ordered = sorted(parts, key=lambda part: -(part.time.seconds if part.time else math.inf))
    return Prediction(trace, library, threads, tuple(ordered), others, overhead)


def _part(need: Need, times: Times, price: _Price, library: str) -> KernelShare:
    flop = need.hot.operation.flop(need.hot) * need.count if need.hot else 0
    if need.is_chain:
        how = "a chain of operators, from its bytes"
        return _from_bytes(need, price.of(need.bytes // need.operators, need.cold_share), need.operators, how, flop)
    hot, cold = times.of(need.hot), times.of(need.cold)
    if not need.cases or any(times.of(case) is None for case in need.cases):
        op = need.kernel.split()[0]
        # One state of the caches alone is used where it is all that there is.
        if known := hot or cold:
            return KernelShare(need, known.times(need.count), "in one state of caches", flop)
        if op not in DOMINANT:
            return _from_bytes(need, price.of(need.bytes, need.cold_share), 1, "from its bytes", flop)
        return KernelShare(need, None, times.reason(need.hot, library), flop)
    total = NOTHING
    for measured, calls in ((hot, need.count - need.cold_calls), (cold, need.cold_calls)):
        # A state with a negligible share was not measured: then all calls count in the other.
        if measured is not None:
            share = calls if hot is not None and cold is not None else need.count
            total = total.plus(measured.times(share))
    return KernelShare(need, total, "measured", flop)


def _from_bytes(need: Need, each: Time | None, operators: int, how: str, flop: int) -> KernelShare:
    """A kernel of which each of so many operators takes this time; without it, nothing is known."""
    if each is None:
        return KernelShare(need, None, "only its bytes are known, and no addition has a time", flop)
    return KernelShare(need, each.times(operators * need.count), how, flop)


class _Price:
    """What an operator costs of which only the bytes are known: between the additions of fewer and more bytes."""

    def __init__(self, times: Times, library: str, threads: int) -> None:
        self._points: dict[str, list[tuple[int, Time]]] = {"hot": [], "cold": []}
        for (state, size), case in sorted(yardstick(library, threads).items()):
            if (known := times.of(case)) is not None:
                self._points[state].append((size, known))

    def of(self, size: int, share: float) -> Time | None:
        """The time for so many bytes, of which a share comes from memory; None without additions."""
        hot, cold = (self._at(state, size) for state in ("hot", "cold"))
        if hot is None or cold is None:
            return hot or cold
        return hot.times(1 - share).plus(cold.times(share))

    def _at(self, state: str, size: int) -> Time | None:
        points = self._points[state]
        if not points:
            return None
        place = bisect.bisect_left([p for p, _ in points], size)
        if place == 0:
            return points[0][1]
        if place == len(points):
            last, time = points[-1]
            return time.times(size / last)
        (below, first), (above, second) = points[place - 1], points[place]
        share = (size - below) / (above - below)
        return first.times(1 - share).plus(second.times(share))
