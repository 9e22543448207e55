"""What a machine can do at most, and which limit each case is closest to.

A limit is the result of a short probe (`measure/probes.py`). There are four kinds: `compute`, the highest rate that any
library reaches in a precision; `memory`, the rate at which our own loops read a working set of some size, or at which a
device copies; `call`, the fixed cost of a library's calls; and `threads`, the time of a case with fewer threads. Result
files contain them.

Compute and memory limits form the roofline of Williams, Waterman, Patterson (CACM 2009). A rate above the measured peak
is an error: the kernel did not do the work, or the clock was wrong (`results/peaks.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from deepbench.core import units
from deepbench.core.case import Case, parse_case
from deepbench.core.errors import BadInput
from deepbench.judge.demand import Demand, demand_of, demand_of_bytes
from deepbench.judge.levels import FASTER_THAN_MEMORY, MEMORY, Level, Levels
from deepbench.results.file import ResultFile
from deepbench.results.peaks import Peaks
from deepbench.results.record import Limit, MemoryLimit, Record
from deepbench.results.summary import Summary, process_number
from deepbench.results.work import Work

# Working sets of memory probes, in bytes: from the smallest first-level cache to sizes that no cache holds.
COARSE = tuple(2**e for e in (14, 16, 18, 20, 22, 24, 25, 26, 28, 29))
FINE = tuple(2**e for e in range(14, 30))

# Bytes that are copied within the memory of a device, both arrays together. The largest cache of a device today holds
# 256 MiB.
DEVICE_BYTES = 2**30

# Reading so few bytes in one call takes the time that threads need to start and to wait for each other.
START_BYTES = 2**14

# Bytes that a pass reads for each number: the number and its position.
BYTES_PER_GATHER = 8

# Other programs that keep fewer CPUs busy than this do not count, as in comparisons.
OTHER_CPUS = 0.3

# On a machine of their own, threads are stopped a few times per second; next to a busy program 50 to 100 times.
MOST_STOPS_PER_S = 20

# A share above this is no rounding error: the limit was measured too low.
ABOVE = 1.02

# A limit is named only if it explains this share of the time. If it may, but was measured too low, none is known.
EXPLAINS, UNEXPLAINED, UNKNOWN = 0.5, "unexplained", "unknown"

# A case that takes longer than this is not measured again with one thread.
LONGEST_QUESTION_S = 0.25

# The name of the limit where a library spends more time on converting layouts than on anything else, and the note of a
# record with the seconds of the conversions in a call.
CONVERSION, CONVERSION_NOTE = "conversion", "conversion_s"

# What evidence calls a limit, if not by its name.
EVIDENCE = {"latency": "call overhead", CONVERSION: "layout conversions"}

# Why a limit was measured too low.
DISTURBED, TOO_SLOW = "other programs disturbed the probe", "the probe was slower than the case"


def key_of(limit: Limit) -> tuple[object, ...]:
    """What is limited: equal for several measurements of the same limit."""
    if limit["what"] == "compute":
        return limit["what"], limit["precision"], limit["device"], limit["threads"]
    return limit["what"], limit["case"]


def best(limits: Iterable[Limit]) -> dict[tuple[object, ...], Limit]:
    """The fastest measurement of each limit, by `key_of`."""
    fastest: dict[tuple[object, ...], Limit] = {}
    for limit in limits:
        key = key_of(limit)
        fastest[key] = max(fastest.get(key, limit), limit, key=speed_of)
    return fastest


def speed_of(limit: Limit) -> float:
    """Higher for the faster of two measurements of the same limit."""
    return limit["flop_per_s"] if limit["what"] == "compute" else 1 / limit["seconds"]


def is_disturbed(record: Record) -> bool:
    """Whether other programs slowed down the process of a record that has a measurement."""
    assert record["measurement"] is not None, "the caller has checked the status"
    return is_crowded(record) or process_number(record["measurement"]).disturbed


def is_crowded(record: Record) -> bool:
    """Whether other programs kept so many CPUs busy that the threads of this process could not all run.

    Then every sample waits for a time slice, and none looks unusual. A process that was sampled too shortly does not
    know the load of other programs, but the system had to stop its threads often.
    """
    measurement, process = record["measurement"], record["process"]
    if measurement is None:
        return False
    others, cpus = measurement.get("other_cpus"), process.get("cpus") if process else None
    if others is None:
        stops = sum(count or 0 for count in measurement["involuntary_switches"])
        return stops > 1 and stops > MOST_STOPS_PER_S * sum(measurement["samples_s"]) * measurement["calls_per_sample"]
    if not isinstance(cpus, list) or not cpus:
        return False
    return record["threads"] + others > len(cpus) + OTHER_CPUS


@dataclass(frozen=True)
class Bound:
    """The least seconds of a case by one limit."""

    seconds: float
    remark: str = ""
    doubt: str = ""
    """Why it may be too high, as the limit may have been measured too low; empty if it can be trusted."""


@dataclass(frozen=True)
class NearestLimit:
    """The limit that a case is closest to."""

    nearest: str
    """`compute`, `latency`, `parallelism`, `conversion`, or the level of the data: `memory`, `L1`, `L2`, `L3`.

    `latency` is the fixed cost of a call and of its dependent steps, `conversion` the time of layout conversions.
    """
    share: float | None
    """The time that the case would take at this limit, divided by its time; at most 1.

    For `parallelism`: the share of the time that more threads do not shorten. None: the limit was measured too low, and
    `evidence` says why.
    """
    intensity: float | None
    """Arithmetic intensity: FLOP per byte of minimum traffic; None if nothing is computed."""
    evidence: str
    """The same share for every limit, in words."""
    explains: bool
    """Whether it explains at least half of the time, or may: see `share`."""

    @property
    def name(self) -> str:
        """The limit, if it explains at least half of the time; `unknown` if it may; else `unexplained`."""
        if not self.explains:
            return UNEXPLAINED
        return UNKNOWN if self.share is None else self.nearest

    def __str__(self) -> str:
        if self.share is None:
            return f"{self.name} (no share of {self.nearest}: it was measured too low)"
        share = f"{self.nearest} {units.percent(self.share)}"
        return share if self.name == self.nearest else f"{self.name} ({share})"


@lru_cache(maxsize=2**17)
def _demand(text: str, inside: tuple[int, ...], algorithm: str) -> Demand | None:
    """What the case with this text needs; None if this version knows no such case."""
    try:
        return demand_of(parse_case(text), inside, algorithm)
    except BadInput:
        return None


class Limits:
    """The limits of one machine: peak rates, bandwidths and call times.

    `lines` are the limits it was built from, in order.
    """

    def __init__(self, lines: Iterable[Limit] = (), machine: Mapping[str, Any] | None = None) -> None:
        self.lines: list[Limit] = []
        self.peaks = Peaks()
        self.cpu = Levels((machine or {}).get("caches") or [])
        """The levels of memory of the CPU."""
        self._copies: dict[str, float] = {}
        self._gathers: dict[int, float] = {}
        self._starts: dict[int, float] = {}
        self._calls: dict[str, float] = {}
        self._times: dict[Work, dict[int, float]] = {}
        for line in lines:
            self.add(line)

    def add(self, line: Limit) -> None:
        """Include a limit that was just measured."""
        self.lines.append(line)
        threads, disturbed = line["threads"], bool(line.get("disturbed"))
        if line["what"] == "compute":
            self.peaks.include(line["precision"], line["device"], threads, line["flop_per_s"], disturbed)
        elif line["what"] == "memory":
            self._add_memory(line, threads, disturbed)
        elif disturbed:
            return  # a cost that was measured too high would explain everything
        elif line["what"] == "call":
            self._calls[line["case"]] = min(line["seconds"], self._calls.get(line["case"], line["seconds"]))
        else:
            with contextlib.suppress(BadInput):  # of a later version, or not ours
                work = Work.of_case(parse_case(line["case"])).without("threads")
                self._times.setdefault(work, {}).setdefault(threads, line["seconds"])

    def _add_memory(self, line: MemoryLimit, threads: int, disturbed: bool) -> None:
        kind, size, rate, seconds = line["kind"], line["bytes"], line["bytes_per_s"], line["seconds"]
        if line["device"] != "cpu":
            if kind == "copy" and size >= DEVICE_BYTES:
                self._copies[line["device"]] = max(rate, self._copies.get(line["device"], 0.0))
        elif kind == "read":  # copy and triad are for people
            if size <= START_BYTES and not disturbed and " passes=" not in line["case"]:
                self._starts[threads] = min(seconds, self._starts.get(threads, seconds))
            self.cpu.add(threads, size, rate, seconds, disturbed)
        elif kind == "gather" and not disturbed:
            self._gathers[threads] = max(rate / BYTES_PER_GATHER, self._gathers.get(threads, 0.0))

    def learn(self, s: Summary) -> None:
        """Remember the time of a checked result, for comparison with other numbers of threads.

        It does not raise a limit: a rate above the measured peak must be seen. A disturbed time says nothing.
        """
        if s.status == "ok" and s.estimate is not None and not s.is_group and not s.is_disturbed:
            self._times.setdefault(_any_threads(s.record), {})[s.record["threads"]] = s.estimate.time_s

    def has_fewer_threads(self, record: Record) -> bool:
        """Whether a time of the same work on the same library with fewer threads is known."""
        return self._fewer_threads(record) is not None

    def _fewer_threads(self, record: Record) -> tuple[int, float] | None:
        """The next smaller number of threads for which the time of this work is known, and the seconds."""
        times_s = self._times.get(_any_threads(record), {})
        return max((pair for pair in times_s.items() if pair[0] < record["threads"]), default=None)

    def peak(self, precision: str, device: str, threads: int) -> float | None:
        """FLOP/s, at least those of f32; None if unknown."""
        return self.peaks.of(precision, device, threads)

    def dram(self, threads: int, device: str = "cpu") -> float | None:
        """Bytes per second of memory itself: of the largest working set that was read; None if not measured.

        For other devices than the CPU: of a copy within the device's memory, with reads and writes.
        """
        return self.cpu.dram(threads) if device == "cpu" else self._copies.get(device)

    def levels(self, threads: int, device: str = "cpu") -> dict[str, float]:
        """Bytes per second of each level of memory that was measured, the fastest level first."""
        found = self.cpu.of(threads) if device == "cpu" else ()
        rates = {level.name: level.rate(level.below) for level in found}
        slowest = self.dram(threads, device)
        if slowest is not None:
            rates[MEMORY] = slowest
        return {name: rate for name, rate in rates.items() if rate is not None}

    def gathers(self, threads: int) -> float | None:
        """Numbers per second that so many threads read at positions that other data decide; None if unknown."""
        return self._gathers.get(threads)

    def disturbed(self, precisions: Iterable[str], threads: int, device: str = "cpu") -> list[str]:
        """Of the peaks of these precisions and the levels of memory: those that other programs made too low."""
        peaks = [p for p in precisions if self.peaks.is_disturbed(p, device, threads)]
        return [*peaks, *(self.levels(threads) if device == "cpu" and self.cpu.is_disturbed(threads) else ())]

    def call_times(self, threads: int, device: str = "cpu") -> list[float]:
        """Seconds of the fixed costs of calls of all libraries of a device, with so many threads."""
        found = []
        for text, seconds in self._calls.items():
            with contextlib.suppress(BadInput):  # of a later version, or not ours
                case = parse_case(text)
                if case.threads == threads and case.device == device:
                    found.append(seconds)
        return found

    def cache_bytes(self) -> int | None:
        """The smallest working set that is read no faster than memory, like all larger ones; None if not measured."""
        sizes = []
        for threads in self.cpu.threads:
            points = self.cpu.reads(threads)
            fast = [size for size, rate in points if rate > FASTER_THAN_MEMORY * (self.dram(threads) or 0.0)]
            if fast and len(points) >= len(COARSE):
                sizes.append(min(size for size, _ in points if size > max(fast)))
        return max(sizes, default=None)

    def nearest(self, summary: Summary) -> NearestLimit | None:
        """The limit that a measured case is closest to; None if too little is known."""
        if summary.status != "ok" or summary.estimate is None or summary.is_group:
            return None
        record, time_s = summary.record, summary.estimate.time_s
        threads, size = record["threads"], record["traffic_bytes"]
        bounds = self._bounds(record, time_s)
        if not bounds:
            return None
        bounds = {name: _doubted(bound, time_s) for name, bound in bounds.items()}
        nearest = max(bounds, key=lambda name: bounds[name].seconds)
        share, doubt = min(1.0, bounds[nearest].seconds / time_s), bounds[nearest].doubt
        evidence = [_evidence(name, bound, time_s) for name, bound in bounds.items()]
        if all(map(is_crowded, summary.rounds)):
            evidence.append("other programs kept CPUs busy")
        if known := self._fewer_threads(record):
            fewer, slowdown = known[0], known[1] / time_s
            evidence.append(f"{fewer} thread{'s are' if fewer > 1 else ' is'} {units.faster_or_slower(slowdown)}")
            serial = serial_share(slowdown, fewer, threads)
            # Where one thread already uses all of the memory's bandwidth, more threads cannot help.
            is_free = nearest == "compute" or share < EXPLAINS
            # Other programs slow several threads more than one.
            if is_free and serial > max(share, EXPLAINS) and not any(map(is_crowded, summary.rounds)):
                nearest, share, doubt = "parallelism", min(1.0, serial), ""
                remark = " (fewer threads are faster)" if serial > ABOVE else ""
                evidence.append(f"serial part {units.percent(share)}{remark}")
        intensity = record["flop"] / size if record["flop"] and size else None
        return NearestLimit(nearest, None if doubt else share, intensity, ", ".join(evidence), share >= EXPLAINS)

    def _bounds(self, r: Record, time_s: float) -> dict[str, Bound]:
        """The least seconds of a case that took `time_s`, by the name of the limit."""
        threads, device = r["threads"], r["device"]
        levels = self.cpu.of(threads) if device == "cpu" else self._device_levels(r)
        is_cold = r["settings"].get("cache", "hot") != "hot"
        stated = r["notes"].get("algorithm")
        algorithm = stated.lower() if isinstance(stated, str) else ""
        inside = tuple(level.below for level in levels)
        demand = _demand(r["case"], inside, algorithm)
        if demand is None:  # what the record states
            demand = replace(demand_of_bytes(r["traffic_bytes"], inside, is_cold), flop=r["least_flop"] or 0.0)
        found: dict[str, Bound] = {}
        peak = self.peak(r["precision"], device, threads)
        if demand.flop and peak:
            remark = f"{algorithm} algorithm" if demand.flop != r["least_flop"] else ""
            doubt = DISTURBED if self.peaks.is_disturbed(r["precision"], device, threads) else ""
            found["compute"] = Bound(demand.flop / peak, remark, doubt)
        doubt = DISTURBED if device == "cpu" and self.cpu.is_disturbed(threads) else ""
        for level, count in zip(levels, demand.crossing, strict=True):
            is_memory = is_cold and level.name == MEMORY and device == "cpu"
            rate = self.dram(threads) if is_memory else level.rate(demand.working_set)
            if count and rate:
                found[level.name] = Bound(count / rate, "", doubt)
        found = _with_conversions(found, r, time_s)
        gather_rate = self.gathers(threads) if device == "cpu" else None
        if demand.gathers and gather_rate and levels:
            bound, name = Bound(demand.gathers / gather_rate, "gathers"), levels[0].name
            found[name] = max(bound, found.get(name, bound), key=lambda b: b.seconds)
        if (latency := self._latency(demand, threads, time_s)) is not None:
            found["latency"] = latency
        return found

    def _latency(self, demand: Demand, threads: int, time_s: float) -> Bound | None:
        """The least seconds by the fixed cost of a call and of the steps that depend on each other.

        Threads that work on each step together start or wait for each other in each. If these waits would take longer
        than `time_s`, what the case took, the library has not let all threads work on each step.
        """
        call_s = self._calls.get(demand.call.text) if demand.call is not None else None
        steps, starts_s = demand.steps, self._starts.get(threads, 0.0) * demand.steps
        found = None
        if call_s is not None:
            found = Bound(call_s * demand.calls, f"{steps} steps" if steps > 1 and demand.calls != 1.0 else "")
        if steps > 1 and (found.seconds if found else 0.0) < starts_s <= time_s:
            return Bound(starts_s, f"{steps} starts of {threads} threads")
        return found

    def _device_levels(self, r: Record) -> tuple[Level, ...]:
        """The memory of a device, if its rate is known and the size of the cache above it, too."""
        rate, card = self._copies.get(r["device"]), r["library"] and r["library"].get("card")
        cache = card.get("cache_bytes") if isinstance(card, dict) else None
        return (Level(MEMORY, None, cache, ((DEVICE_BYTES, rate),)),) if rate and isinstance(cache, int) else ()


def _doubted(bound: Bound, time_s: float) -> Bound:
    """The bound, which the case has disproved if it was faster."""
    return replace(bound, doubt=bound.doubt or TOO_SLOW) if bound.seconds > ABOVE * time_s else bound


def _evidence(name: str, bound: Bound, time_s: float) -> str:
    """`compute 54 %`, `L1 at most 20 % (other programs disturbed the probe)`, `compute unknown (…)`."""
    share = bound.seconds / time_s
    most = "at most " if bound.doubt else ""
    value = "unknown" if bound.doubt and share >= EXPLAINS else most + units.percent(min(1.0, share))
    remarks = ", ".join(filter(None, [bound.remark, bound.doubt]))
    return f"{EVIDENCE.get(name, name)} {value}" + (f" ({remarks})" if remarks else "")


def _with_conversions(bounds: Mapping[str, Bound], r: Record, time_s: float) -> dict[str, Bound]:
    """The bounds of the kernel alone, with the time of the layout conversions that the library makes in each call.

    They run before and after the kernel, never at the same time, so their measured time adds to any bound of the
    kernel. Where they take longer than the bound, they are the limit.
    """
    seconds = r["notes"].get(CONVERSION_NOTE)
    if not isinstance(seconds, float) or not 0 < seconds <= time_s:
        return dict(bounds)
    share = units.percent(seconds / time_s)
    found: dict[str, Bound] = {CONVERSION: Bound(seconds)}
    for name, bound in bounds.items():
        both = bound.seconds + seconds
        if bound.seconds >= seconds:
            remark = ", ".join(filter(None, [bound.remark, f"with layout conversions, {share}"]))
            found[name] = replace(bound, seconds=both, remark=remark)
        else:
            found[name] = bound
            if both > found[CONVERSION].seconds:
                remark = f"with {name}, {units.percent(bound.seconds / time_s)}"
                found[CONVERSION] = Bound(both, remark, bound.doubt)
    return found


def serial_share(slowdown: float, fewer: int, threads: int) -> float:
    """The share of the time that more threads do not shorten, by Amdahl's law (1967).

    `slowdown` is the time with `fewer` threads over the time with `threads`. Above 1, fewer threads are faster.
    """
    return 1.0 - (slowdown - 1.0) / (threads / fewer - 1.0)


def of_file(file: ResultFile, summaries: Iterable[Summary]) -> Limits:
    """The limits that a result file contains, with the times of its checked results."""
    limits = Limits(file.limits, file.header["machine"])
    for s in summaries:
        limits.learn(s)
    return limits


def open_questions(limits: Limits, summaries: Iterable[Summary]) -> list[Case]:
    """Cases with one thread whose times would show whether more threads help; the least explained first.

    They are asked for the fastest library of each piece of work, if no limit explains its time and no time with fewer
    threads is known. `limits` must contain the times of these results.
    """
    fastest: dict[Work, Summary] = {}
    for s in summaries:
        if s.status == "ok" and s.estimate is not None and not s.is_group and s.record["device"] == "cpu":
            fastest[s.work] = min(fastest.get(s.work, s), s, key=lambda known: known.time_s)
    asked: list[tuple[float, Case]] = []
    for s in fastest.values():
        if any(map(is_crowded, s.rounds)):
            continue
        if s.record["threads"] > 1 and s.time_s <= LONGEST_QUESTION_S and not limits.has_fewer_threads(s.record):
            nearest = limits.nearest(s)
            if nearest is not None and nearest.name == UNEXPLAINED:
                asked.append((nearest.share or 0.0, replace(parse_case(s.record["case"]), threads=1)))
    return [case for _, case in sorted(asked, key=lambda pair: pair[0])]


def _any_threads(record: Record) -> Work:
    return Work.on_library(record).without("threads")
