"""Probes measure the limits of a machine that `judge/limits.py` judges by.

A file gets the limits that its cases need: from its own probes, or from earlier runs on this machine, which are
remembered (`machine/remembered.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast

from deepbench.core.backend import all_backends, find_backend
from deepbench.core.case import Case, device_of_case, parse_case
from deepbench.core.op import all_ops
from deepbench.core.precision import PRECISIONS
from deepbench.core.progress import Activity, Progress
from deepbench.judge.demand import call_case
from deepbench.judge.limits import COARSE, DEVICE_BYTES, FINE, Limits, best, is_disturbed, key_of, speed_of
from deepbench.machine import remembered
from deepbench.measuring.heat import measure_case
from deepbench.measuring.parent import open_backends
from deepbench.ops.memory import REPEATABLE, STREAMS
from deepbench.plan.modes import DEFAULT, PROBE, Rules
from deepbench.results.peaks import F32, excess_over_card
from deepbench.results.record import Limit, Record, ThreadsLimit
from deepbench.results.schema import schema_error
from deepbench.results.summary import process_number

OPEN_TIMEOUT_S, PROBE_TIMEOUT_S = 60.0, 120.0

# A rate above the peak causes further probes before it is judged, but at most so many per precision in so many
# seconds. Later ones may follow: a machine can be slow for minutes while other programs run.
MOST_PROBES, PROBES_WITHIN_S = 5, 60.0

# Bytes per thread that a call of a probe reads at least. The fastest cores read 500 GB/s from their first level.
PASS_BYTES = 48 * 2**20

# Bytes of the numbers and their positions that are gathered: both fit into every first-level cache.
GATHER_BYTES = 2**14

# Duration of a memory or call probe, and the share of a run's budget that all of them may take.
PROBE_S, MOST_OF_BUDGET = 0.5, 0.05

# Other programs slow a probe down. Its limit is used for so long, then measured again.
DISTURBED_AGE = timedelta(hours=1)

# The bandwidth of main memory that an earlier run measured is used for so long, even if it looked undisturbed.
RECENT_AGE = timedelta(hours=1)


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
            return self.what, first.precision.name, first.device, first.threads
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

    def measure(self, measure: Callable[[Case], Record]) -> Limit | None:
        """Run all cases; None if all of them failed. `measure` measures a case once, in a fresh process."""
        found: list[Limit] = []
        failed = set()
        for case in self.cases:
            if case.backend not in failed:
                record = measure(case)
                if record["status"] not in ("ok", "unsupported"):  # another shape may be supported
                    failed.add(case.backend)
                if limit := self.limit(record):
                    found.append(limit)
        return max(found, key=speed_of, default=None)

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
            "disturbed": is_disturbed(record),
        }
        return cast(Limit, line)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def compute_probe(
    precision: str, device: str, threads: int, libraries: Iterable[str], is_thorough: bool = False
) -> Probe:
    """The probe of the peak rate: every library and operation that has this precision on this device.

    A thorough one also multiplies matrices that were packed ahead. On a CPU with AMX, packing within the call took a
    fifth of the time of a product of 8-bit integers.
    """
    packed = (("weights", "packed"),)
    backends = [b for b in map(find_backend, libraries) if b.reaches(device) and b.computes]
    return Probe(
        "compute",
        tuple(
            Case(
                op.name,
                problem,
                op.directions[0],
                PRECISIONS[precision],
                backend.name,
                threads,
                settings,
                device_of_case(backend.name, device),
            )
            for op in all_ops().values()
            for backend in backends
            if backend.supports(op.name, precision, op.directions[0])
            for problem in (op.probes if device == "cpu" else op.device_probes)
            for settings in (((), packed) if is_thorough and "packed" in op.settings.get("weights", ()) else ((),))
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


def copy_probes(backend: str) -> list[Probe]:
    """The probes of a device's memory: copying DEVICE_BYTES / 2 or more, which no cache of a device holds.

    Where an array lies decides: on an H200, the same copy ran at 4.2 TB/s in one process and at 2.7 in the next.
    """
    sizes = [DEVICE_BYTES // 8, DEVICE_BYTES // 64 * 9]
    return [Probe("memory", (parse_case(f"memory kind=copy n={n} forward f32 {backend} threads=1"),)) for n in sizes]


def start_probe(threads: int) -> Probe:
    """The probe of starting the threads and waiting for all of them: a read of two cache lines per thread."""
    return Probe("memory", (parse_case(f"memory kind=read n={32 * threads} forward f32 loops threads={threads}"),))


def probes_for(cases: Iterable[Case], libraries: Sequence[str], sizes: Sequence[int] = COARSE) -> list[Probe]:
    """All probes that a run of these cases needs.

    `libraries` are those available by default: they set the peaks, and the fixed costs of their calls are measured.
    """
    peaks: set[tuple[str, str, int]] = set()
    calls: dict[Case, None] = {}
    gathering: dict[int, None] = {}
    for case in cases:
        backend = case.library
        if backend.computes and not case.operation.is_group:
            peaks.add((case.precision.name, case.device, case.threads))
            if backend.name in libraries and (smallest := call_case(case)):
                calls[smallest] = None
            if case.device == "cpu" and case.operation.gathers(case):
                gathering[case.threads] = None
    with_f32 = [(name, device, n) for precision, device, n in sorted(peaks) for name in (F32, precision)]
    reading = dict.fromkeys(n for _, device, n in sorted(peaks) if device == "cpu")
    devices = {device for _, device, _ in peaks if device != "cpu"}
    copying = [name for name in libraries if find_backend(name).device in devices and _copies(name)]
    return [
        *_probes(dict.fromkeys(with_f32), calls, reading, gathering, libraries, sizes),
        *(probe for name in copying for probe in copy_probes(name)),
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
        "disturbed": is_disturbed(record),
    }
    return line


def recall(machine: Mapping[str, Any]) -> list[Limit]:
    """The limits that earlier runs measured on this machine. Lines that do not fit the schema are ignored."""
    lines = [{"limit": line} for line in remembered.remembered(machine, "limits")]
    return [cast(Limit, line["limit"]) for line in lines if schema_error(line) is None]


def remember(machine: Mapping[str, Any], limit: Limit) -> None:
    """Keep a limit for later runs on this machine."""
    remembered.remember(machine, "limits", limit)


class Prober:
    """Measures the limits that are still unknown, and adds them to `limits`.

    `limits` come from probes alone: what a result reached does not raise the limit that judges it. `libraries` are the
    available default libraries. `measure` measures a case once, and `keep` stores a limit in the file.
    """

    def __init__(
        self,
        limits: Limits,
        libraries: Sequence[str],
        measure: Callable[[Case, Rules], Record],
        keep: Callable[[Limit], None],
    ) -> None:
        self.limits = limits
        self._libraries, self._measure, self._keep = libraries, measure, keep

    def complete(
        self, cases: Iterable[Case], machine: Mapping[str, Any], progress: Progress, budget_s: float | None = None
    ) -> None:
        """Add all limits that these cases need, from earlier runs on this machine or by probes.

        `budget_s` is the time that the whole run may take.
        """
        cases, earlier = list(cases), recall(machine)
        for probe in missing(probes_for(cases, self._libraries), self.limits.lines, earlier, budget_s):
            progress(Activity(probe.title))
            line = self._probe(probe, PROBE)
            if line is not None and line["what"] != "compute":
                remember(machine, line)
        needed = {probe.key for probe in probes_for(cases, self._libraries, FINE)}
        for key, line in best([*self.limits.lines, *earlier]).items():
            if key in needed and line not in self.limits.lines:
                self._add(line)

    def judge(self, record: Record) -> Record:
        """The record, with status `wrong` if its rate is above the peak even after further probes."""
        reason = excess_over_card(record)
        if reason is None:
            may_probe = True
            while (reason := self.limits.peaks.excess(record)) is not None and may_probe:
                may_probe = self._probe_peak(record)
        return record if reason is None else {**record, "status": "wrong", "reason": reason}

    def _probe_peak(self, record: Record) -> bool:
        """Measure the peak of a record again; False where this was done often enough, or where no library can."""
        place = precision, device, threads = record["precision"], record["device"], record["threads"]
        recent = timedelta(seconds=PROBES_WITHIN_S)
        done = [n for n in self.limits.lines if key_of(n) == ("compute", *place) and remembered.age(n) < recent]
        if len(done) >= MOST_PROBES:
            return False
        lines = [
            self._probe(compute_probe(name, device, threads, self._libraries, is_thorough=True), DEFAULT.rules)
            for name in dict.fromkeys((F32, precision))
        ]
        return lines[-1] is not None

    def _probe(self, probe: Probe, rules: Rules) -> Limit | None:
        line = probe.measure(lambda case: self._measure(case, rules))
        if line is not None:
            self._add(line)
        return line

    def _add(self, line: Limit) -> None:
        self.limits.add(line)
        self._keep(line)


def measure_limits(machine: Mapping[str, Any], threads: Sequence[int], quick: bool, progress: Progress) -> list[Limit]:
    """Measure every limit of the CPU for these numbers of threads and remember it; together with those known before."""
    names = [name for name, b in all_backends().items() if b.is_default_on("cpu") and not b.is_group]
    answers = open_backends(names, OPEN_TIMEOUT_S)
    here = [name for name in names if "library" in answers[name]]
    probes = all_probes(threads, here, COARSE if quick else FINE)
    rounds = 1 if quick else 3
    total, begin = rounds * len(probes), time.monotonic()
    for done, probe in enumerate(probe for _ in range(rounds) for probe in probes):
        left_s = (time.monotonic() - begin) / done * (total - done) if done else None
        progress(Activity(probe.title, done, total, left_s))
        limit = probe.measure(lambda case: measure_case(case, 1, PROBE, PROBE_TIMEOUT_S))
        if limit is not None:
            remember(machine, limit)
    return recall(machine)
