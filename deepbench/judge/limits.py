"""What a machine can do at most, and which limit each case is closest to.

A limit is the result of a short probe. There are three kinds: `compute`, the highest rate that any library reaches in
a precision; `memory`, the rate at which our own loops read a working set of some size; and `call`, the shortest call of
a library. Result files contain them, and earlier runs on a machine are remembered.

Compute and memory limits form the roofline of Williams, Waterman, Patterson (CACM 2009). A rate above the measured peak
is an error: the kernel did not do the work, or the clock was wrong.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast

from deepbench.core import units
from deepbench.core.backend import find_backend
from deepbench.core.case import Case, parse_case
from deepbench.core.op import all_ops, find_op
from deepbench.core.precision import PRECISIONS
from deepbench.machine import remembered
from deepbench.results.file import ResultFile
from deepbench.results.old_files import read_limit
from deepbench.results.peaks import F32, Peaks, excess_over_card
from deepbench.results.record import Limit, Record
from deepbench.results.schema import schema_error
from deepbench.results.summary import Summary, process_number
from deepbench.results.work import Work

Measure = Callable[[Case, int], Record]
"""Measures one round of a case in a fresh process."""

# Working sets of memory probes, in bytes: from the smallest first-level cache to sizes that no cache holds.
COARSE = tuple(2**e for e in (14, 16, 18, 20, 22, 24, 26, 28, 29))
FINE = tuple(2**e for e in range(14, 30))

# A rate above the peak causes further probes before it is judged, but at most so many per precision in so many
# seconds. Later ones may follow: a machine can be slow for minutes while other programs run.
MOST_PROBES, PROBES_WITHIN_S = 5, 60.0

# Duration of a memory or call probe, and the share of a run's budget that all of them may take.
PROBE_S, MOST_OF_BUDGET = 2.0, 0.05

# Other programs slow a probe down. Its limit is used for so long, then measured again.
DISTURBED_AGE = timedelta(hours=1)

# A cache level counts only if it is so many times faster than memory.
FASTER_THAN_MEMORY = 1.25

# A share above this is no rounding error: the evidence says why it can be above 100 %.
ABOVE = 1.02

# A limit is named only if it explains this share of the time.
EXPLAINS, UNEXPLAINED = 0.5, "unexplained"

# The fixed cost of a call limits a case that spends more than this share of its time on it.
CALL_SHARE = 0.5

# With fewer threads a case takes less than this many times as long: it is limited by too little parallelism.
NO_GAIN = 1.25


# ---- probes


@dataclass(frozen=True)
class Probe:
    """Cases that measure one limit: the fastest of them sets it."""

    what: Literal["compute", "memory", "call"]
    cases: tuple[Case, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """The limit that this probe measures; see `key_of`."""
        first = self.cases[0]
        if self.what == "compute":
            return self.what, first.precision.name, find_backend(first.backend).device, first.threads
        return self.what, first.text

    @property
    def title(self) -> str:
        """For progress displays."""
        first = self.cases[0]
        return f"peak rate in {first.precision.name}" if self.what == "compute" else f"limit: {first.text}"

    def measure(self, measure: Measure) -> Limit | None:
        """Run all cases; None if all of them failed."""
        found: list[Limit] = []
        failed = set()
        for case in self.cases:
            if case.backend not in failed:
                record = measure(case, 1)
                if record["status"] not in ("ok", "unsupported"):  # another shape may be supported
                    failed.add(case.backend)
                if limit := self.limit(record):
                    found.append(limit)
        return max(found, key=_speed, default=None)

    def limit(self, record: Record) -> Limit | None:
        """The limit that the record of one of the cases shows, by its fastest sample; None if it failed."""
        measurement, library = record["measurement"], record["library"]
        if record["status"] != "ok" or not measurement or not library:
            return None
        seconds, size = min(measurement["samples_s"]), record["traffic_bytes"]
        version = f"{library['name']} {library['version']}"
        fields: dict[str, Any]
        if self.what == "compute":
            fields = {name: record[name] for name in ("precision", "device")}
            fields |= {"flop_per_s": _rounded(record["flop"] / seconds), "library": version}
        elif self.what == "memory":
            fields = {"kind": record["problem"]["kind"], "bytes": size, "bytes_per_s": _rounded(size / seconds)}
        else:
            fields = {"backend": record["backend"], "library": version}
        line = {
            "what": self.what,
            **fields,
            "case": record["case"],
            "threads": record["threads"],
            "seconds": _rounded(seconds),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "disturbed": process_number(measurement).disturbed,
        }
        return cast(Limit, line)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def compute_probe(precision: str, device: str, threads: int, libraries: Iterable[str]) -> Probe:
    """The probe of the peak rate: every library and operation that has this precision on this device."""
    backends = [b for b in map(find_backend, libraries) if b.device == device and b.computes]
    return Probe(
        "compute",
        tuple(
            Case(op.name, problem, op.directions[0], PRECISIONS[precision], backend.name, threads)
            for op in all_ops().values()
            for backend in backends
            if backend.supports(op.name, precision, op.directions[0])
            for problem in (op.probes if device == "cpu" else op.device_probes)
        ),
    )


def memory_probe(kind: str, size: int, threads: int) -> Probe:
    """The probe of reading, copying or combining (`read`, `copy`, `triad`) arrays of `size` bytes in total."""
    arrays = {"read": 1, "copy": 2, "triad": 3}[kind]
    n = max(2, size // (4 * arrays) // 2 * 2)
    return Probe("memory", (parse_case(f"memory kind={kind} n={n} forward f32 loops threads={threads}"),))


def probes_for(cases: Iterable[Case], libraries: Sequence[str], sizes: Sequence[int] = COARSE) -> list[Probe]:
    """All probes that a run of these cases needs.

    `libraries` are those available by default: they set the peaks, and on the CPU the limits of their calls.
    """
    peaks: set[tuple[str, str, int]] = set()
    calls: dict[tuple[str, int], None] = {}
    for case in cases:
        backend = find_backend(case.backend)
        if backend.computes and not find_op(case.op).is_group:
            peaks.add((case.precision.name, backend.device, case.threads))
            if backend.device == "cpu" and backend.name in libraries:
                calls[backend.name, case.threads] = None
    with_f32 = [(name, device, n) for precision, device, n in sorted(peaks) for name in (F32, precision)]
    return _probes(dict.fromkeys(with_f32), calls, libraries, sizes)


def all_probes(threads: Iterable[int], libraries: Sequence[str], sizes: Sequence[int]) -> list[Probe]:
    """The probes of every limit of the CPU, for these numbers of threads."""
    threads = list(threads)
    peaks = [(precision, "cpu", n) for n in threads for precision in PRECISIONS]
    probes = _probes(peaks, [(name, n) for n in threads for name in libraries], libraries, sizes)
    if "loops" in libraries:
        probes += [memory_probe(kind, FINE[-1], n) for n in threads for kind in ("copy", "triad")]
    return probes


def _probes(
    peaks: Iterable[tuple[str, str, int]],
    calls: Iterable[tuple[str, int]],
    libraries: Sequence[str],
    sizes: Sequence[int],
) -> list[Probe]:
    calls = list(calls)
    threads = dict.fromkeys(n for _, n in calls) if "loops" in libraries else {}
    probes = [compute_probe(*peak, libraries) for peak in peaks]
    probes += [memory_probe("read", size, n) for n in threads for size in sizes]
    # The shortest call is a product of two numbers.
    shortest = "gemm m=1 n=1 k=1 a_t=0 b_t=0 forward f32"
    supported = [(name, n) for name, n in calls if find_backend(name).supports("gemm", F32, "forward")]
    probes += [Probe("call", (parse_case(f"{shortest} {name} threads={n}"),)) for name, n in supported]
    return [probe for probe in probes if probe.cases]


def missing(
    probes: Iterable[Probe], in_file: Sequence[Limit], earlier: Iterable[Limit], budget_s: float | None = None
) -> list[Probe]:
    """The probes whose limits are still unknown.

    Peaks are measured for every file, even if earlier runs measured them, because libraries and clocks change. With a
    budget, memory and call probes are made all together or not at all.
    """
    usable = (n for n in [*in_file, *earlier] if not n.get("disturbed") or _age(n) < DISTURBED_AGE)
    known, measured = set(map(key_of, usable)), set(map(key_of, in_file))
    unknown = [p for p in probes if p.key not in (measured if p.what == "compute" else known)]
    others = sum(p.what != "compute" for p in unknown)
    if budget_s is not None and others * PROBE_S > MOST_OF_BUDGET * budget_s:
        return [p for p in unknown if p.what == "compute"]
    return unknown


# ---- limits


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
        fastest[key] = max(fastest.get(key, limit), limit, key=_speed)
    return fastest


def _speed(limit: Limit) -> float:
    return limit["flop_per_s"] if limit["what"] == "compute" else 1 / limit["seconds"]


def _age(limit: Limit) -> timedelta:
    try:
        return datetime.now(UTC) - datetime.fromisoformat(limit["at"])
    except (ValueError, TypeError):  # a file may contain any text
        return timedelta.max


def recall(machine: Mapping[str, Any]) -> list[Limit]:
    """The limits that earlier runs measured on this machine. Lines that do not fit the schema are ignored."""
    # Earlier versions kept compute limits under `peaks`.
    lines = [{"limit": line} for name in ("limits", "peaks") for line in remembered.remembered(machine, name)]
    return [limit for line in lines if schema_error(line) is None and (limit := read_limit(line))]


def remember(machine: Mapping[str, Any], limit: Limit) -> None:
    """Keep a limit for later runs on this machine."""
    remembered.remember(machine, "limits", limit)


@dataclass(frozen=True)
class NearestLimit:
    """The limit that a case is closest to."""

    nearest: str
    """`compute`, `memory`, `L1`, `L2`, `L3`, `latency` (the fixed cost of a call) or `parallelism`."""
    share: float
    """The time that the case would take at this limit, divided by its time; above 1 it is faster than the limit."""
    intensity: float | None
    """Arithmetic intensity: FLOP per byte of minimum traffic; None if nothing is computed."""
    evidence: str
    """The same share for every limit, in words."""

    @property
    def name(self) -> str:
        """The limit, if it explains at least half of the time; else `unexplained`."""
        explains = self.share >= EXPLAINS or self.nearest == "parallelism"
        return self.nearest if explains else UNEXPLAINED

    def __str__(self) -> str:
        share = f"{self.nearest} {units.percent(self.share)}"
        return share if self.name == self.nearest else f"{self.name} ({share})"


class Limits:
    """The limits of one machine: peak rates, bandwidths and call times.

    `lines` are the limits it was built from, in order.
    """

    def __init__(self, lines: Iterable[Limit] = (), machine: Mapping[str, Any] | None = None) -> None:
        self.lines: list[Limit] = []
        self._caches = (machine or {}).get("caches") or []
        self.peaks = Peaks()
        self._reads: dict[int, list[tuple[int, float]]] = {}
        self._sorted_reads: dict[int, tuple[list[int], list[float]]] = {}
        self._dram: dict[int, tuple[int, float]] = {}
        self._calls: dict[tuple[str, int], float] = {}
        self._times: dict[Work, dict[int, float]] = {}
        for line in lines:
            self.add(line)

    def add(self, line: Limit) -> None:
        """Include a limit that was just measured."""
        self.lines.append(line)
        if line["what"] == "compute":
            self.peaks.include(line["precision"], line["device"], line["threads"], line["flop_per_s"])
        elif line["what"] == "call":
            key = line["backend"], line["threads"]
            self._calls[key] = min(line["seconds"], self._calls.get(key, line["seconds"]))
        elif line["kind"] == "read":  # the others are for people
            point = line["bytes"], line["bytes_per_s"]
            self._add_read(line["threads"], point)
            self._dram[line["threads"]] = max(point, self._dram.get(line["threads"], point))

    def learn(self, s: Summary) -> None:
        """Remember the time of a checked result, for comparison with other numbers of threads.

        It does not raise a limit: a rate above the measured peak must be seen.
        """
        if s.status == "ok" and s.estimate is not None and not s.is_group:
            self._times.setdefault(_any_threads(s.record), {})[s.record["threads"]] = s.estimate.time_s

    def _add_read(self, threads: int, point: tuple[int, float]) -> None:
        self._reads.setdefault(threads, []).append(point)
        self._sorted_reads.pop(threads, None)

    def peak(self, precision: str, device: str, threads: int) -> float | None:
        """FLOP/s, at least those of f32; None if unknown."""
        return self.peaks.of(precision, device, threads)

    def memory(self, size: int, threads: int) -> float | None:
        """Bytes per second for a working set of `size` bytes: the highest rate of any as large or larger."""
        slowest = self.dram(threads)
        if slowest is None:
            return None
        if threads not in self._sorted_reads:
            points = sorted(self._reads[threads])
            highest = list(itertools.accumulate((rate for _, rate in reversed(points)), max))[::-1]
            self._sorted_reads[threads] = [read_size for read_size, _ in points], highest
        sizes, highest = self._sorted_reads[threads]
        at = bisect.bisect_left(sizes, size)
        return max(slowest, highest[at]) if at < len(sizes) else slowest

    def dram(self, threads: int) -> float | None:
        """Bytes per second of memory itself: of the largest working set that was read."""
        return self._dram[threads][1] if threads in self._dram else None

    def level(self, size: int, threads: int) -> str:
        """`L1`, `L2`, `L3` or `memory`: the level that holds a working set of `size` bytes.

        A cache that the CPU claims to have counts only if it is measurably faster than memory.
        """
        rate, slowest = self.memory(size, threads), self.dram(threads)
        if rate is None or slowest is None or rate < FASTER_THAN_MEMORY * slowest:
            return "memory"
        for cache in sorted(self._caches, key=lambda c: c["level"]):
            copies = -(-threads // _cpu_count(cache.get("shared_by") or ""))
            if size <= cache["bytes"] * copies:
                return f"L{cache['level']}"
        return "memory"

    def levels(self, threads: int) -> dict[str, float]:
        """Bytes per second of each level of memory, the fastest level first."""
        rates: dict[str, float] = {}
        for size in FINE:
            rate = self.memory(size, threads)
            if rate is not None:
                name = self.level(size, threads)
                rates[name] = max(rate, rates.get(name, 0.0)) if name != "memory" else self.dram(threads) or rate
        return rates

    def cache_bytes(self) -> int | None:
        """The smallest working set that is read no faster than memory, like all larger ones; None if not measured."""
        sizes = []
        for threads, points in self._reads.items():
            fast = [size for size, rate in points if rate > FASTER_THAN_MEMORY * self._dram[threads][1]]
            if fast and len(points) >= len(COARSE):
                sizes.append(min(size for size, _ in points if size > max(fast)))
        return max(sizes, default=None)

    def nearest(self, summary: Summary) -> NearestLimit | None:
        """The limit that a measured case is closest to; None if too little is known."""
        if summary.status != "ok" or summary.estimate is None or summary.is_group:
            return None
        r, time_s = summary.record, summary.estimate.time_s
        size, threads, device = r["traffic_bytes"], r["threads"], r["device"]
        peak = self.peak(r["precision"], device, threads)
        cold = r["settings"].get("cache", "hot") != "hot"
        rate = (self.dram(threads) if cold else self.memory(size, threads)) if device == "cpu" else None
        times = {
            "compute": r["least_flop"] / peak if r["least_flop"] and peak else None,
            "memory" if cold else self.level(size, threads): size / rate if rate else None,
        }
        shares = {name: t / time_s for name, t in times.items() if t is not None}
        if not shares:
            return None
        name = max(shares, key=lambda n: shares[n])
        above = " (the probe of this limit was slower)" if shares[name] > ABOVE else ""
        share = shares[name]
        evidence = [f"{n} {units.percent(s)}{above if n == name else ''}" for n, s in shares.items()]
        call_s = self._calls.get((r["backend"], threads))
        if call_s is not None:
            call_share = call_s / time_s
            evidence.append(f"call overhead {units.percent(call_share)}")
            if call_share > CALL_SHARE:
                name, share = "latency", call_share
        times_s = self._times.get(_any_threads(r), {})
        fewer = max((n for n in times_s if n < threads), default=None)
        if fewer is not None and name != "latency":
            slowdown = times_s[fewer] / time_s
            evidence.append(f"{slowdown:.2f}× the time with {fewer} thread{'s' if fewer > 1 else ''}")
            if slowdown < NO_GAIN and name == "compute":
                name = "parallelism"
        return NearestLimit(name, share, r["flop"] / size if r["flop"] and size else None, ", ".join(evidence))


def of_file(file: ResultFile, summaries: Iterable[Summary]) -> Limits:
    """The limits that a result file contains, with the times of its checked results."""
    limits = Limits(file.limits, file.header["machine"])
    for s in summaries:
        limits.learn(s)
    return limits


def complete(
    limits: Limits,
    cases: Iterable[Case],
    libraries: Sequence[str],
    machine: Mapping[str, Any],
    measure: Measure,
    keep: Callable[[Limit], None],
    progress: Callable[[str], None],
    budget_s: float | None = None,
) -> None:
    """Add all limits that these cases need, from earlier runs on this machine or by probes.

    `libraries` are the available default libraries, `budget_s` is the time that the whole run may take. `keep` stores a
    limit in the file, and `progress` receives the title of each probe before it runs.
    """
    cases, earlier = list(cases), recall(machine)
    for probe in missing(probes_for(cases, libraries), limits.lines, earlier, budget_s):
        progress(probe.title)
        line = probe.measure(measure)
        if line is not None:
            limits.add(line)
            keep(line)
            if line["what"] != "compute":
                remember(machine, line)
    needed = {probe.key for probe in probes_for(cases, libraries, FINE)}
    for key, line in best([*limits.lines, *earlier]).items():
        if key in needed and line not in limits.lines:
            limits.add(line)
            keep(line)


# ---- judgement


def judge_rate(
    record: Record, limits: Limits, libraries: Sequence[str], measure: Measure, keep: Callable[[Limit], None]
) -> Record:
    """The record, with status `wrong` if its rate is above the peak even after further probes of these libraries.

    `limits` must come from probes alone; further probes are added to it and given to `keep`.
    """
    place = precision, device, threads = record["precision"], record["device"], record["threads"]

    def may_probe() -> bool:
        recent = timedelta(seconds=PROBES_WITHIN_S)
        return sum(key_of(n) == ("compute", *place) and _age(n) < recent for n in limits.lines) < MOST_PROBES

    excess = excess_over_card(record)
    if excess is None:
        excess = limits.peaks.excess(record)
        while excess is not None and may_probe():
            for name in dict.fromkeys((F32, precision)):
                line = compute_probe(name, device, threads, libraries).measure(measure)
                if line is not None:
                    limits.add(line)
                    keep(line)
            excess = limits.peaks.excess(record)
            if line is None:
                break  # no library can be probed in this precision any more
    return record if excess is None else {**record, "status": "wrong", "reason": excess}


def _any_threads(record: Record) -> Work:
    return Work.on_library(record).without("threads")


def _cpu_count(cpus: str) -> int:
    """How many CPUs a list such as `0-3,8` names, at least 1."""
    count = 0
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            count += (int(last) - int(first) if last.isdecimal() else 0) + 1
    return max(1, count)
