"""What a machine can do at most, and which limit each case is closest to.

A limit is the result of a short probe. There are four kinds: `compute`, the highest rate that any library reaches in a
precision; `memory`, the rate at which our own loops read a working set of some size, or at which a device copies;
`call`, the fixed cost of a library's calls; and `threads`, the time of a case with fewer threads. Result files contain
them, and earlier runs on a machine are remembered, except the last kind.

Compute and memory limits form the roofline of Williams, Waterman, Patterson (CACM 2009). A rate above the measured peak
is an error: the kernel did not do the work, or the clock was wrong.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any, Literal, cast

from deepbench.core import units
from deepbench.core.backend import find_backend
from deepbench.core.case import RUN_SETTINGS, Case, parse_case
from deepbench.core.errors import BadInput
from deepbench.core.op import Op, all_ops, find_op
from deepbench.core.precision import PRECISIONS
from deepbench.judge.levels import FASTER_THAN_MEMORY, MEMORY, Level, Levels
from deepbench.machine import remembered
from deepbench.ops.memory import REPEATABLE, STREAMS
from deepbench.results.file import ResultFile
from deepbench.results.peaks import F32, Peaks, excess_over_card
from deepbench.results.record import Limit, Record, ThreadsLimit
from deepbench.results.schema import schema_error
from deepbench.results.summary import Summary, process_number
from deepbench.results.work import Work

Measure = Callable[[Case, int], Record]
"""Measures one round of a case in a fresh process."""

# Working sets of memory probes, in bytes: from the smallest first-level cache to sizes that no cache holds.
COARSE = tuple(2**e for e in (14, 16, 18, 20, 22, 24, 25, 26, 28, 29))
FINE = tuple(2**e for e in range(14, 30))

# A rate above the peak causes further probes before it is judged, but at most so many per precision in so many
# seconds. Later ones may follow: a machine can be slow for minutes while other programs run.
MOST_PROBES, PROBES_WITHIN_S = 5, 60.0

# Bytes per thread that a call of a probe reads at least. The fastest cores read 500 GB/s from their first level.
PASS_BYTES = 48 * 2**20

# Bytes that are copied within the memory of a device, both arrays together. The largest cache of a device today holds
# 256 MiB.
DEVICE_BYTES = 2**30

# Bytes of the numbers and their positions that are gathered: both fit into every first-level cache.
GATHER_BYTES = 2**14

# Duration of a memory or call probe, and the share of a run's budget that all of them may take.
PROBE_S, MOST_OF_BUDGET = 0.5, 0.05

# Other programs that keep fewer CPUs busy than this do not count, as in comparisons.
OTHER_CPUS = 0.3

# On a machine of their own, threads are stopped a few times per second; next to a busy program 50 to 100 times.
MOST_STOPS_PER_S = 20

# Other programs slow a probe down. Its limit is used for so long, then measured again.
DISTURBED_AGE = timedelta(hours=1)

# The bandwidth of main memory that an earlier run measured is used for so long, even if it looked undisturbed.
RECENT_AGE = timedelta(hours=1)

# A share above this is no rounding error: the evidence says why it can be above 100 %.
ABOVE = 1.02

# A limit is named only if it explains this share of the time.
EXPLAINS, UNEXPLAINED = 0.5, "unexplained"

# A case that takes longer than this is not measured again with one thread.
LONGEST_QUESTION_S = 0.25

# The name of the limit where a library spends more time on converting layouts than on anything else, and the note of a
# record with the seconds of the conversions in a call.
CONVERSION, CONVERSION_NOTE = "conversion", "conversion_s"

# Reading so few bytes in one call takes the time that threads need to start and to wait for each other.
START_BYTES = 2**14

# Bytes that a pass reads for each number: the number and its position.
BYTES_PER_GATHER = 8

# Files of earlier versions know one fixed cost for all operations of a library: that of this product.
SHORTEST_CALL = "gemm m=1 n=1 k=1 a_t=0 b_t=0 forward f32 "

# What evidence calls a limit, if not by its name.
EVIDENCE = {"latency": "call overhead", CONVERSION: "layout conversions"}
ABOVE_REMARK = "the probe of this limit was slower"


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

    @property
    def is_for_every_file(self) -> bool:
        """Whether every file has a recent limit: peaks, and the bandwidth of main memory or of a device."""
        problem = self.cases[0].problem
        return self.what == "compute" or (self.what == "memory" and 4 * problem.n >= min(FINE[-1], DEVICE_BYTES // 2))

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
        passes = int(record["problem"].get("passes", 1))
        version = f"{library['name']} {library['version']}"
        fields: dict[str, Any]
        if self.what == "compute":
            fields = {name: record[name] for name in ("precision", "device")}
            fields |= {"flop_per_s": _rounded(record["flop"] / seconds), "library": version}
        elif self.what == "memory":
            fields = {
                "device": record["device"],
                "kind": record["problem"]["kind"],
                "bytes": size // passes,
                "bytes_per_s": _rounded(size / seconds),
            }
        else:
            fields = {"backend": record["backend"], "library": version}
        line = {
            "what": self.what,
            **fields,
            "case": record["case"],
            "threads": record["threads"],
            "seconds": _rounded(seconds),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "disturbed": _is_disturbed(record),
        }
        return cast(Limit, line)


def _is_disturbed(record: Record) -> bool:
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
    """The probe of reading, gathering, copying or combining arrays of `size` bytes in total.

    A call reads or gathers at least PASS_BYTES per thread, if necessary in several passes, so that it takes 100 µs or
    more: starting the threads then hardly matters.
    """
    arrays = sum(STREAMS[kind])
    n = max(2, size // (4 * arrays) // 2 * 2)
    passes = max(1, PASS_BYTES * threads // size) if kind in REPEATABLE else 1
    text = f"memory kind={kind} n={n} passes={passes} forward f32 loops threads={threads}"
    return Probe("memory", (parse_case(text),))


def copy_probe(backend: str) -> Probe:
    """The probe of a device's memory: copying DEVICE_BYTES / 2, which no cache of a device holds."""
    return Probe("memory", (parse_case(f"memory kind=copy n={DEVICE_BYTES // 8} forward f32 {backend} threads=1"),))


def start_probe(threads: int) -> Probe:
    """The probe of starting the threads and waiting for all of them: a read of two cache lines per thread."""
    return Probe("memory", (parse_case(f"memory kind=read n={32 * threads} forward f32 loops threads={threads}"),))


def call_case(case: Case) -> Case | None:
    """The case whose time is the fixed cost of a call of this one; None if its library has no such case.

    It has the smallest problem of the same kind, in f32 if the library has that, and the same settings.
    """
    op, backend = find_op(case.op), find_backend(case.backend)
    if op.is_group or not backend.computes or not op.flop(case):
        return None
    precision = PRECISIONS[F32] if backend.supports(case.op, F32, case.direction) else case.precision
    problem = op.smallest(case)
    unused = {*RUN_SETTINGS, *op.unused_settings(problem, case.direction, precision)}
    overrides = tuple((name, value) for name, value in case.overrides if name not in unused)
    return replace(case, problem=problem, precision=precision, overrides=overrides)


def probes_for(cases: Iterable[Case], libraries: Sequence[str], sizes: Sequence[int] = COARSE) -> list[Probe]:
    """All probes that a run of these cases needs.

    `libraries` are those available by default: they set the peaks, and the fixed costs of their calls are measured.
    """
    peaks: set[tuple[str, str, int]] = set()
    calls: dict[Case, None] = {}
    gathering: dict[int, None] = {}
    for case in cases:
        backend = find_backend(case.backend)
        if backend.computes and not find_op(case.op).is_group:
            peaks.add((case.precision.name, backend.device, case.threads))
            if backend.name in libraries and (smallest := call_case(case)):
                calls[smallest] = None
            if backend.device == "cpu" and find_op(case.op).gathers(case):
                gathering[case.threads] = None
    with_f32 = [(name, device, n) for precision, device, n in sorted(peaks) for name in (F32, precision)]
    reading = dict.fromkeys(n for _, device, n in sorted(peaks) if device == "cpu")
    devices = {device for _, device, _ in peaks if device != "cpu"}
    copying = [name for name in libraries if find_backend(name).device in devices and _copies(name)]
    return [
        *_probes(dict.fromkeys(with_f32), calls, reading, gathering, libraries, sizes),
        *map(copy_probe, copying),
    ]


def _copies(backend: str) -> bool:
    return find_backend(backend).supports("memory", F32, "forward")


def all_probes(threads: Iterable[int], libraries: Sequence[str], sizes: Sequence[int]) -> list[Probe]:
    """The probes of every limit of the CPU, for these numbers of threads."""
    threads = list(threads)
    peaks = [(precision, "cpu", n) for n in threads for precision in PRECISIONS]
    calls = [
        smallest
        for n in threads
        for name in libraries
        for op in all_ops().values()
        for direction in op.directions
        if find_backend(name).supports(op.name, F32, direction) and not op.is_group
        if (smallest := call_case(Case(op.name, op.smoke[0], direction, PRECISIONS[F32], name, n)))
    ]
    probes = _probes(peaks, calls, threads, threads, libraries, sizes)
    if "loops" in libraries:
        probes += [memory_probe(kind, FINE[-1], n) for n in threads for kind in ("copy", "triad")]
    return probes


def _probes(
    peaks: Iterable[tuple[str, str, int]],
    calls: Iterable[Case],
    reading: Iterable[int],
    gathering: Iterable[int],
    libraries: Sequence[str],
    sizes: Sequence[int],
) -> list[Probe]:
    probes = [compute_probe(*peak, libraries) for peak in peaks]
    if "loops" in libraries:
        probes += [memory_probe("read", size, n) for n in reading for size in sizes]
        probes += [start_probe(n) for n in reading if n > 1]
        probes += [memory_probe("gather", GATHER_BYTES, n) for n in gathering]
    probes += [Probe("call", (case,)) for case in dict.fromkeys(calls)]
    return [probe for probe in probes if probe.cases]


def missing(
    probes: Iterable[Probe], in_file: Sequence[Limit], earlier: Iterable[Limit], budget_s: float | None = None
) -> list[Probe]:
    """The probes whose limits are still unknown.

    Peaks are measured for every file, even if earlier runs measured them, and the bandwidth of main memory after an
    hour: libraries and clocks change, and a busy machine may have looked quiet. With a budget, other memory and call
    probes are made all together or not at all.
    """

    def is_usable(limit: Limit) -> bool:
        return not limit.get("disturbed") or remembered.age(limit) < DISTURBED_AGE

    earlier = [n for n in earlier if n["what"] != "compute" and is_usable(n)]
    known = {key_of(n) for n in in_file if n["what"] == "compute" or is_usable(n)}
    recent = known | {key_of(n) for n in earlier if remembered.age(n) < RECENT_AGE}
    known |= {key_of(n) for n in earlier}
    unknown = [p for p in probes if p.key not in (recent if p.is_for_every_file else known)]
    others = sum(not p.is_for_every_file for p in unknown)
    if budget_s is not None and others * PROBE_S > MOST_OF_BUDGET * budget_s:
        return [p for p in unknown if p.is_for_every_file]
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


def recall(machine: Mapping[str, Any]) -> list[Limit]:
    """The limits that earlier runs measured on this machine. Lines that do not fit the schema are ignored."""
    lines = remembered.remembered(machine, "limits")
    return [line for line in lines if schema_error({"limit": line}) is None]  # type: ignore[misc]


def remember(machine: Mapping[str, Any], limit: Limit) -> None:
    """Keep a limit for later runs on this machine."""
    remembered.remember(machine, "limits", limit)


@dataclass(frozen=True)
class Bound:
    """The least seconds of a case by one limit."""

    seconds: float
    remark: str = ""


@dataclass(frozen=True)
class NearestLimit:
    """The limit that a case is closest to."""

    nearest: str
    """`compute`, `latency`, `parallelism`, `conversion`, or the level of the data: `memory`, `L1`, `L2`, `L3`.

    `latency` is the fixed cost of a call and of its dependent steps, `conversion` the time of layout conversions.
    """
    share: float
    """The time that the case would take at this limit, divided by its time; above 1 it is faster than the limit.

    For `parallelism`: the share of the time that more threads do not shorten.
    """
    intensity: float | None
    """Arithmetic intensity: FLOP per byte of minimum traffic; None if nothing is computed."""
    evidence: str
    """The same share for every limit, in words."""

    @property
    def name(self) -> str:
        """The limit, if it explains at least half of the time; else `unexplained`."""
        return self.nearest if self.share >= EXPLAINS else UNEXPLAINED

    def __str__(self) -> str:
        share = f"{self.nearest} {units.percent(self.share)}"
        return share if self.name == self.nearest else f"{self.name} ({share})"


@dataclass(frozen=True)
class Demand:
    """What a case needs, counted from its text."""

    case: Case
    working_set: int
    """Bytes of all operands."""
    crossing: tuple[int, ...]
    """Least bytes that come from each level of memory."""
    flop: float | None
    """Operations that the algorithm cannot avoid."""
    gathers: int
    call: str | None
    """The text of the case whose time is the fixed cost of a call."""
    calls: float
    """How many times this cost is paid: more than once if the case has more dependent steps."""


@cache
def _knows_levels(kind: type[Op]) -> bool:
    """Whether an operation counts bytes per level; a plug-in for an earlier version does not."""
    return "capacity" in inspect.signature(kind.traffic_bytes).parameters


@lru_cache(maxsize=2**17)
def _demand(text: str, below: tuple[int, ...], is_cold: bool, algorithm: str) -> Demand | None:
    """What the case with this text needs, where levels hold so many bytes; None if this version knows no such case."""
    try:
        case = parse_case(text)
        op = find_op(case.op)
        every, size = op.traffic_bytes(case), op.operand_bytes(case)
        levels = _knows_levels(type(op))
        crossing = [0 if size <= held else op.traffic_bytes(case, held) if levels else every for held in below]
        if is_cold and crossing:
            crossing[-1] = max(crossing[-1], every)
        probe = call_case(case)
        return Demand(
            case,
            size,
            tuple(crossing),
            op.algorithm_flop(case, algorithm),
            op.gathers(case),
            probe.text if probe else None,
            op.steps(case) / op.steps(probe) if probe else 1.0,
        )
    except BadInput:
        return None


class Limits:
    """The limits of one machine: peak rates, bandwidths and call times.

    `lines` are the limits it was built from, in order.
    """

    def __init__(self, lines: Iterable[Limit] = (), machine: Mapping[str, Any] | None = None) -> None:
        self.lines: list[Limit] = []
        self.peaks = Peaks()
        self._levels = Levels((machine or {}).get("caches") or [])
        self._copies: dict[str, float] = {}
        self._gathers: dict[int, float] = {}
        self._starts: dict[int, float] = {}
        # Without those that other programs disturbed: a cost that was measured too high would explain everything.
        self._calls: dict[str, float] = {}
        self._shortest_calls: dict[tuple[str, int], float] = {}
        self._times: dict[Work, dict[int, float]] = {}
        for line in lines:
            self.add(line)

    def add(self, line: Limit) -> None:
        """Include a limit that was just measured."""
        self.lines.append(line)
        threads, disturbed = line["threads"], bool(line.get("disturbed"))
        if line["what"] == "compute":
            self.peaks.include(line["precision"], line["device"], threads, line["flop_per_s"], disturbed)
        elif disturbed and (line["what"] in ("call", "threads") or line.get("kind") == "gather"):
            return
        elif line["what"] == "call":
            self._calls[line["case"]] = min(line["seconds"], self._calls.get(line["case"], line["seconds"]))
            if line["case"].startswith(SHORTEST_CALL):
                key = line["backend"], threads
                self._shortest_calls[key] = min(line["seconds"], self._shortest_calls.get(key, line["seconds"]))
        elif line["what"] == "threads":
            try:
                work = Work.of_case(parse_case(line["case"])).without("threads")
            except BadInput:  # of a later version, or not ours
                return
            self._times.setdefault(work, {}).setdefault(threads, line["seconds"])
        elif line["device"] != "cpu":
            if line["kind"] == "copy" and line["bytes"] >= DEVICE_BYTES:
                self._copies[line["device"]] = max(line["bytes_per_s"], self._copies.get(line["device"], 0.0))
        elif line["kind"] == "read":  # copy and triad are for people
            if line["bytes"] <= START_BYTES and not disturbed and " passes=" not in line["case"]:
                self._starts[threads] = min(line["seconds"], self._starts.get(threads, line["seconds"]))
            self._levels.add(threads, line["bytes"], line["bytes_per_s"], line["seconds"], disturbed)
        elif line["kind"] == "gather":
            self._gathers[threads] = max(line["bytes_per_s"] / BYTES_PER_GATHER, self._gathers.get(threads, 0.0))

    def learn(self, s: Summary) -> None:
        """Remember the time of a checked result, for comparison with other numbers of threads.

        It does not raise a limit: a rate above the measured peak must be seen.
        """
        if s.status == "ok" and s.estimate is not None and not s.is_group:
            self._times.setdefault(_any_threads(s.record), {})[s.record["threads"]] = s.estimate.time_s

    def has_fewer_threads(self, record: Record) -> bool:
        """Whether a time of the same work on the same library with fewer threads is known."""
        return any(threads < record["threads"] for threads in self._times.get(_any_threads(record), {}))

    def peak(self, precision: str, device: str, threads: int) -> float | None:
        """FLOP/s, at least those of f32; None if unknown."""
        return self.peaks.of(precision, device, threads)

    def memory(self, size: int, threads: int) -> float | None:
        """Bytes per second for a working set of `size` bytes: the highest rate of any as large or larger."""
        return self._levels.memory(size, threads)

    def dram(self, threads: int, device: str = "cpu") -> float | None:
        """Bytes per second of memory itself: of the largest working set that was read; None if not measured.

        For other devices than the CPU: of a copy within the device's memory, with reads and writes.
        """
        return self._levels.dram(threads) if device == "cpu" else self._copies.get(device)

    def level(self, size: int, threads: int) -> str:
        """`L1`, `L2`, `L3` or `memory`: the level that holds a working set of `size` bytes."""
        return self._levels.holding(size, threads)

    def levels(self, threads: int, device: str = "cpu") -> dict[str, float]:
        """Bytes per second of each level of memory that was measured, the fastest level first."""
        found = self._levels.of(threads) if device == "cpu" else ()
        rates = {level.name: level.rate(level.below) for level in found}
        slowest = self.dram(threads, device)
        if slowest is not None:
            rates[MEMORY] = slowest
        return {name: rate for name, rate in rates.items() if rate is not None}

    def levels_of(self, threads: int, device: str = "cpu") -> tuple[Level, ...]:
        """The levels of memory of the CPU, the smallest first; none of other devices, whose caches are not measured."""
        return self._levels.of(threads) if device == "cpu" else ()

    def is_disturbed(self, threads: int) -> bool:
        """Whether other programs disturbed the probes of memory."""
        return self._levels.is_disturbed(threads)

    def call_times(self, threads: int, device: str = "cpu") -> list[float]:
        """Seconds of the fixed costs of calls of all libraries of a device, with so many threads."""
        found = []
        for text, seconds in self._calls.items():
            with contextlib.suppress(BadInput):  # of a later version, or not ours
                case = parse_case(text)
                if case.threads == threads and find_backend(case.backend).device == device:
                    found.append(seconds)
        return found

    def gathers(self, threads: int) -> float | None:
        """Numbers per second that are read one by one at random positions of a first-level cache."""
        return self._gathers.get(threads)

    def cache_bytes(self) -> int | None:
        """The smallest working set that is read no faster than memory, like all larger ones; None if not measured."""
        sizes = []
        for threads in self._levels.threads:
            points = self._levels.reads(threads)
            fast = [size for size, rate in points if rate > FASTER_THAN_MEMORY * (self.dram(threads) or 0.0)]
            if fast and len(points) >= len(COARSE):
                sizes.append(min(size for size, _ in points if size > max(fast)))
        return max(sizes, default=None)

    def nearest(self, summary: Summary) -> NearestLimit | None:
        """The limit that a measured case is closest to; None if too little is known."""
        if summary.status != "ok" or summary.estimate is None or summary.is_group:
            return None
        r, time_s = summary.record, summary.estimate.time_s
        bounds = self._bounds(r, time_s)
        if not bounds:
            return None
        shares = {name: bound.seconds / time_s for name, bound in bounds.items()}
        nearest = max(shares, key=lambda name: shares[name])
        evidence = []
        for name, share in shares.items():
            remarks = [bounds[name].remark] if bounds[name].remark else []
            remarks += [ABOVE_REMARK] if name == nearest and share > ABOVE else []
            evidence.append(
                f"{EVIDENCE.get(name, name)} {units.percent(share)}" + (f" ({', '.join(remarks)})" if remarks else "")
            )
        share = shares[nearest]
        if r["device"] == "cpu" and self._levels.is_disturbed(r["threads"]):
            evidence.append("other programs disturbed the probes of memory")
        if all(map(is_crowded, summary.rounds)):
            evidence.append("other programs kept CPUs busy")
        times_s = self._times.get(_any_threads(r), {})
        fewer = max((n for n in times_s if n < r["threads"]), default=None)
        if fewer is not None:
            slowdown = times_s[fewer] / time_s
            evidence.append(f"{fewer} thread{'s are' if fewer > 1 else ' is'} {units.faster_or_slower(slowdown)}")
            serial = serial_share(slowdown, fewer, r["threads"])
            # Where one thread already uses all of the memory's bandwidth, more threads cannot help.
            is_free = nearest == "compute" or share < EXPLAINS
            # Other programs slow several threads more than one.
            if is_free and serial > max(share, EXPLAINS) and not any(map(is_crowded, summary.rounds)):
                nearest, share = "parallelism", serial
                remark = " (fewer threads are faster)" if serial > ABOVE else ""
                evidence.append(f"serial part {units.percent(serial)}{remark}")
        size = r["traffic_bytes"]
        return NearestLimit(nearest, share, r["flop"] / size if r["flop"] and size else None, ", ".join(evidence))

    def _bounds(self, r: Record, time_s: float) -> dict[str, Bound]:
        """The least seconds of a case by the name of the limit.

        Threads that work on each dependent step together start or wait for each other in each. If these waits would
        take longer than `time_s`, what the case took, the library has not let all threads work on each step.
        """
        threads, device = r["threads"], r["device"]
        levels = self._levels.of(threads) if device == "cpu" else self._device_levels(r)
        below = tuple(level.below for level in levels)
        is_cold = r["settings"].get("cache", "hot") != "hot"
        stated = r["notes"].get("algorithm")
        algorithm = stated.lower() if isinstance(stated, str) else ""
        demand = _demand(r["case"], below, is_cold, algorithm)
        flop, size = r["least_flop"], r["traffic_bytes"]
        crossing: tuple[int, ...] = tuple(size if size > held else 0 for held in below)
        if is_cold and crossing:
            crossing = (*crossing[:-1], size)
        if demand is not None:
            flop, size, crossing = demand.flop, demand.working_set, demand.crossing
        found: dict[str, Bound] = {}
        peak = self.peak(r["precision"], device, threads)
        if flop and peak:
            remark = f"{algorithm} algorithm" if flop != r["least_flop"] else ""
            found["compute"] = Bound(flop / peak, remark)
        for level, count in zip(levels, crossing, strict=True):
            is_memory = is_cold and level.name == MEMORY and device == "cpu"
            rate = self.dram(threads) if is_memory else level.rate(size)
            if count and rate:
                found[level.name] = Bound(count / rate)
        found = _with_conversions(found, r, time_s)
        if demand is None:
            return found
        gather_rate = self.gathers(threads) if device == "cpu" else None
        if demand.gathers and gather_rate and levels:
            bound = Bound(demand.gathers / gather_rate, "gathers")
            name = levels[0].name
            found[name] = max(bound, found.get(name, bound), key=lambda b: b.seconds)
        op = find_op(demand.case.op)
        call_s = self._calls.get(demand.call or "")
        times = demand.calls
        if call_s is None:
            call_s, times = self._shortest_calls.get((r["backend"], threads)), 1.0
        if call_s is not None:
            steps = op.steps(demand.case)
            found["latency"] = Bound(call_s * times, f"{steps} steps" if steps > 1 and times != 1.0 else "")
        starts_s = self._starts.get(threads, 0.0) * op.steps(demand.case)
        if op.steps(demand.case) > 1 and found.get("latency", Bound(0.0)).seconds < starts_s <= time_s:
            found["latency"] = Bound(starts_s, f"{op.steps(demand.case)} starts of {threads} threads")
        return found

    def _device_levels(self, r: Record) -> tuple[Level, ...]:
        """The memory of a device, if its rate is known and the size of the cache above it, too."""
        rate, card = self._copies.get(r["device"]), r["library"] and r["library"].get("card")
        cache = card.get("cache_bytes") if isinstance(card, dict) else None
        return (Level(MEMORY, None, cache, ((DEVICE_BYTES, rate),)),) if rate and isinstance(cache, int) else ()


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
            found[name] = Bound(both, ", ".join(filter(None, [bound.remark, f"with layout conversions, {share}"])))
        else:
            found[name] = bound
            if both > found[CONVERSION].seconds:
                found[CONVERSION] = Bound(both, f"with {name}, {units.percent(bound.seconds / time_s)}")
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
                asked.append((nearest.share, replace(parse_case(s.record["case"]), threads=1)))
    return [case for _, case in sorted(asked, key=lambda pair: pair[0])]


def answer(record: Record) -> Limit | None:
    """The limit that a case with one thread shows; None if it failed."""
    measurement, library = record["measurement"], record["library"]
    if record["status"] != "ok" or not measurement or not library:
        return None
    line: ThreadsLimit = {
        "what": "threads",
        "case": record["case"],
        "threads": record["threads"],
        "backend": record["backend"],
        "library": f"{library['name']} {library['version']}",
        "seconds": _rounded(process_number(measurement).time_s),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "disturbed": _is_disturbed(record),
    }
    return line


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
        return sum(key_of(n) == ("compute", *place) and remembered.age(n) < recent for n in limits.lines) < MOST_PROBES

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
