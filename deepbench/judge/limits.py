"""What this machine can do at most, and which limit a case stands at.

Three kinds: arithmetic (the highest rate any library reaches, `roof.py`), each level of memory (our own loops read,
copy and combine arrays of growing size), and the least that a call of a library takes. They are lines of `limit` in a
result file, and remembered by machine, so that a run measures only what is missing.

Williams, Waterman, Patterson: Roofline (CACM 2009) for the first two.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from deepbench.core.backend import all_backends, find_backend
from deepbench.core.case import Case, parse_case
from deepbench.core.errors import BadInput
from deepbench.core.op import Op, find_op
from deepbench.results.file import ResultFile
from deepbench.results.record import Record
from deepbench.results.summary import Summary, process_number

# Bytes of all arrays together: from the smallest first-level cache to what no cache holds.
COARSE = tuple(2**e for e in (14, 16, 18, 20, 22, 24, 26, 28, 29))
FINE = tuple(2**e for e in range(14, 30))

# A larger share of a call's time than this is the library's fixed cost: then it is the limit.
FIXED_SHARE = 0.5

# With fewer threads nearly as fast: what they have to share does not divide.
NO_GAIN = 1.25

# A level of memory is told apart from memory itself when it is so much faster.
FASTER_THAN_MEMORY = 1.25

WIDEST = "f32"

# A probe takes about so long, and all of them no more than this share of a time that was given.
PROBE_S, MOST_OF_BUDGET = 2.0, 0.05

# A probe beside other work is too low, and is made again after this time.
DISTURBED_COUNTS = timedelta(hours=1)


def memory_case(kind: str, size: int, threads: int) -> Case:
    """Arrays of so many bytes together."""
    streams = {"read": 1, "copy": 2, "triad": 3}[kind]
    n = max(2, size // (4 * streams) // 2 * 2)
    return parse_case(f"memory kind={kind} n={n} forward f32 loops threads={threads}")


def floor_case(backend: str, threads: int) -> Case:
    """The smallest product there is."""
    return parse_case(f"gemm m=1 n=1 k=1 a_t=0 b_t=0 forward f32 {backend} threads={threads}")


def wanted(cases: Iterable[Case], sizes: Sequence[int] = COARSE) -> list[Case]:
    """The measurements that tell the limits of these cases: memory for their threads, a call for their libraries."""
    found: dict[str, Case] = {}
    for case in cases:
        backend = find_backend(case.backend)
        if backend.device != "cpu" or backend.is_group or not backend.computes:
            continue
        if not backend.default:  # frameworks, and what users bring: who names one knows what for
            continue
        for size in sizes:
            probe = memory_case("read", size, case.threads)
            found[probe.text] = probe
        if backend.supports("gemm", WIDEST, "forward"):
            probe = floor_case(case.backend, case.threads)
            found[probe.text] = probe
    return list(found.values())


def line_of(record: Record) -> dict[str, Any] | None:
    """The line of a measurement of `wanted`, None where it failed. The fastest sample: this is about what can be."""
    if record["status"] != "ok" or not record["measurement"]:
        return None
    fastest = min(record["measurement"]["samples_s"])
    line: dict[str, Any] = {
        "case": record["case"],
        "threads": record["threads"],
        "seconds": float(f"{fastest:.6g}"),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "disturbed": process_number(record["measurement"]).disturbed,
    }
    if record["op"] == "memory":
        kind, size = record["problem"]["kind"], record["traffic_bytes"]
        return {"what": "memory", "kind": kind, "bytes": size, "bytes_per_s": float(f"{size / fastest:.6g}"), **line}
    library = record["library"]
    return {"what": "call", "backend": record["backend"], "library": f"{library['name']} {library['version']}", **line}


def peak_of(record: Record) -> dict[str, Any] | None:
    """The line of a probe of arithmetic."""
    if record["status"] != "ok" or not record["measurement"] or not record["flop"]:
        return None
    fastest = min(record["measurement"]["samples_s"])
    library = record["library"]
    return {
        "what": "compute",
        "precision": record["precision"],
        "threads": record["threads"],
        "flop_per_s": float(f"{record['flop'] / fastest:.6g}"),
        "seconds": float(f"{fastest:.6g}"),
        "case": record["case"],
        "library": f"{library['name']} {library['version']}",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def best_peaks(lines: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """The highest rate of each precision and number of threads."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines:
        if line.get("what") == "compute":
            key = line["precision"], line["threads"]
            if key not in found or line["flop_per_s"] > found[key]["flop_per_s"]:
                found[key] = dict(line)
    return found


def best(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of several lines of one measurement the fastest."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for line in lines:
        key = str(line.get("case")), str(line.get("library"))
        if key not in found or line["seconds"] < found[key]["seconds"]:
            found[key] = dict(line)
    return list(found.values())


@dataclass(frozen=True)
class Standing:
    """Where a case stands."""

    bound: str
    """`compute`, `memory`, `L1`, `L2`, `L3`, `latency` or `parallelism`."""
    share: float
    """Of the roof that its arithmetic intensity allows: what it would take at that limit, over what it takes."""
    intensity: float | None
    """FLOP a byte of least traffic; None where nothing is computed."""
    evidence: str
    """What it would take at each limit, in words."""


class Limits:
    """All limits that a result file knows."""

    def __init__(
        self,
        lines: Iterable[Mapping[str, Any]],
        roofs: Iterable[Mapping[str, Any]],
        summaries: Sequence[Summary],
        machine: Mapping[str, Any],
    ) -> None:
        self._memory: dict[int, list[tuple[int, float]]] = {}
        self._dram: dict[int, tuple[int, float]] = {}
        self._calls: dict[tuple[str, int], float] = {}
        self._peaks: dict[tuple[str, str, int], float] = {}
        self._caches = machine.get("caches") or []
        self._times: dict[str, dict[int, float]] = {}
        self._rising: dict[int, tuple[list[int], list[float]]] = {}
        for line in lines:
            if line["what"] == "memory":
                if line["kind"] != "read":
                    continue  # for people; working sets are judged by reading
                point = line["bytes"], line["bytes_per_s"]
                self._memory.setdefault(line["threads"], []).append(point)
                self._dram[line["threads"]] = max(point, self._dram.get(line["threads"], point))
            elif line["what"] == "compute":
                self._peak((line["precision"], "cpu", line["threads"]), line["flop_per_s"])
            else:
                key = line["backend"], line["threads"]
                self._calls[key] = min(line["seconds"], self._calls.get(key, line["seconds"]))
        for roof in roofs:
            self._peak((roof["precision"], roof.get("device", "cpu"), roof["threads"]), roof["flop_per_s"])
        for s in summaries:
            self._learn(s)

    def _peak(self, key: tuple[str, str, int], rate: float) -> None:
        self._peaks[key] = max(rate, self._peaks.get(key, 0.0))

    def _learn(self, s: Summary) -> None:
        """What a checked result did can be done: no case stands above its roof."""
        if s.status != "ok" or s.estimate is None or s.group:
            return
        r, time_s = s.record, s.estimate.time_s
        self._times.setdefault(_without_threads(r), {})[r["threads"]] = time_s
        call = r["backend"], r["threads"]
        if call in self._calls:  # no call takes longer at least than another one has taken
            self._calls[call] = min(time_s, self._calls[call])
        if r["flop"]:
            self._peak((r["precision"], device_of(r), r["threads"]), _sure_flop(r) / time_s)
        if r["threads"] in self._memory and device_of(r) == "cpu":
            self._memory[r["threads"]].append((r["traffic_bytes"], r["traffic_bytes"] / time_s))

    def peak(self, precision: str, device: str, threads: int) -> float | None:
        """FLOP/s; never below that of f32, as in `roof.py`."""
        found = [self._peaks[key] for p in {precision, WIDEST} if (key := (p, device, threads)) in self._peaks]
        return max(found, default=None)

    def memory(self, size: int, threads: int) -> float | None:
        """Bytes a second for a working set of this size: the highest seen for one as large, or larger."""
        slowest = self.dram(threads)
        if slowest is None:
            return None
        if threads not in self._rising:  # once: sizes in order, and the highest rate from each on
            points = sorted(self._memory[threads])
            rates = list(itertools.accumulate((rate for _, rate in reversed(points)), max))[::-1]
            self._rising[threads] = [known for known, _ in points], rates
        sizes, highest = self._rising[threads]
        at = bisect.bisect_left(sizes, size)
        return max(slowest, highest[at]) if at < len(sizes) else slowest

    def dram(self, threads: int) -> float | None:
        """Bytes a second of the largest working set that our loops have read."""
        return self._dram[threads][1] if threads in self._dram else None

    def level(self, size: int, threads: int) -> str:
        """Where a working set of this size lies: by the caches that the CPU says it has, if they are really faster."""
        rate, slowest = self.memory(size, threads), self.dram(threads)
        if rate is None or slowest is None or rate < FASTER_THAN_MEMORY * slowest:
            return "memory"
        for cache in sorted(self._caches, key=lambda c: c["level"]):
            copies = -(-threads // _sharers(cache.get("shared_by") or ""))
            if size <= cache["bytes"] * copies:
                return f"L{cache['level']}"
        return "memory"

    def levels(self, threads: int) -> dict[str, float]:
        """Bytes a second of each level of memory, the nearest first."""
        found: dict[str, float] = {}
        for size in FINE:
            rate = self.memory(size, threads)
            if rate is not None:
                name = self.level(size, threads)
                found[name] = max(rate, found.get(name, 0.0)) if name != "memory" else self.dram(threads) or rate
        return found

    def standing(self, s: Summary) -> Standing | None:
        """Which limit a measured case stands at; None where too little is known."""
        if s.status != "ok" or s.estimate is None or s.group:
            return None
        r, time_s = s.record, s.estimate.time_s
        size, threads, device = r["traffic_bytes"], r["threads"], device_of(r)
        peak = self.peak(r["precision"], device, threads)
        cold = r["settings"].get("cache", "hot") != "hot"
        rate = (self.dram(threads) if cold else self.memory(size, threads)) if device == "cpu" else None
        call_s = self._calls.get((r["backend"], threads))
        parts = {
            "compute": r["flop"] / peak if r["flop"] and peak else None,
            "memory" if cold else self.level(size, threads): size / rate if rate else None,
        }
        known = {name: t for name, t in parts.items() if t is not None}
        if not known:
            return None
        bound = max(known, key=lambda name: known[name])
        share = min(1.0, known[bound] / time_s)
        words = {"compute": "arithmetic"}
        evidence = [f"{words.get(n, n)} {_percent(t / time_s)}" for n, t in known.items()]
        if call_s is not None:
            evidence.append(f"a call {_percent(min(1.0, call_s / time_s))}")
            if call_s > FIXED_SHARE * time_s:
                bound, share = "latency", min(1.0, call_s / time_s)
        fewer = self._fewer(r, time_s)
        if fewer is not None and bound != "latency":
            count, times = fewer
            evidence.append(f"{count} thread{'s' if count > 1 else ''} {times:.2f} times the time")
            if times < NO_GAIN and bound == "compute":
                bound = "parallelism"
        return Standing(bound, share, r["flop"] / size if r["flop"] and size else None, ", ".join(evidence))

    def _fewer(self, r: Record, time_s: float) -> tuple[int, float] | None:
        """The time with fewer threads over this one, where the file has it."""
        own = _without_threads(r)
        others = [(n, t) for n, t in self._times.get(own, {}).items() if n < r["threads"]]
        if not others:
            return None
        count, slower = max(others)
        return count, slower / time_s


def of_file(found: ResultFile, summaries: Sequence[Summary]) -> Limits:
    """What a result file knows of its machine's limits."""
    return Limits(found.limits, found.roofs, summaries, found.header["machine"])


def measured_cache(lines: Iterable[Mapping[str, Any]]) -> int | None:
    """Bytes that caches hold for sure: the smallest working set from which on reading is no faster than from memory.

    None where nobody has measured.
    """
    points: dict[int, list[tuple[int, float]]] = {}
    for line in lines:
        if line.get("what") == "memory" and line.get("kind") == "read":
            points.setdefault(line["threads"], []).append((line["bytes"], line["bytes_per_s"]))
    found = []
    for of_threads in points.values():
        slowest = max(of_threads)[1]
        fast = [size for size, rate in of_threads if rate > FASTER_THAN_MEMORY * slowest]
        if fast and len(of_threads) >= len(COARSE):
            larger = [size for size, _ in of_threads if size > max(fast)]
            found.append(min(larger))
    return max(found, default=None)


def probes_missing(cases: Iterable[Case], known: Iterable[Mapping[str, Any]], sizes: Sequence[int]) -> list[Case]:
    """What `wanted` asks for and nobody has measured yet."""
    now = datetime.now(UTC)

    def good(line: Mapping[str, Any]) -> bool:
        """Measured undisturbed, or a short while ago."""
        return not line.get("disturbed") or now - datetime.fromisoformat(str(line["at"])) < DISTURBED_COUNTS

    have = {str(line.get("case")) for line in known if good(line)}
    return [case for case in wanted(cases, sizes) if case.text not in have]


def relevant(lines: Iterable[Mapping[str, Any]], cases: Iterable[Case]) -> list[dict[str, Any]]:
    """Of what is remembered, what bears on these cases."""
    cases = list(cases)
    texts = {case.text for case in wanted(cases, FINE)}
    kinds = {(p, case.threads) for case in cases for p in (WIDEST, case.precision.name)}
    lines = list(lines)
    peaks = [line for key, line in best_peaks(lines).items() if key in kinds]
    return best(line for line in lines if str(line.get("case")) in texts) + peaks


def device_of(record: Record) -> str:
    """`cpu`, `cuda` or `hip`: where a case ran."""
    known = all_backends()
    return known[record["backend"]].device if record["backend"] in known else "cpu"


def _sure_flop(record: Record) -> float:
    """FLOP that no algorithm saves, such as Winograd's or one that leaves padding out: what is saved is no roof."""
    try:
        op = find_op(record["op"])
        if type(op).least_flop is Op.least_flop:
            return float(record["flop"])
        return op.least_flop(parse_case(record["case"]))
    except BadInput:  # from elsewhere
        return 0.0


def _without_threads(record: Record) -> str:
    return repr([record[n] for n in ("op", "problem", "direction", "precision", "backend", "settings")])


def _sharers(cpus: str) -> int:
    """How many CPUs a list such as `0-3,8` names."""
    count = 0
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            count += (int(last) - int(first) if last.isdecimal() else 0) + 1
    return max(1, count)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
