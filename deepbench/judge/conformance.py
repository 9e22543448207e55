"""How a device kept its promises: how each case of a file ended, the highest rates, and what a call costs the host.

`wrong` has two meanings, which are told apart here: the result differs from the float64 reference, or the result is
right but its time cannot be trusted (`untimed`), as after a `ClockFault` or with a rate above the measured peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from deepbench.core.op import known_op
from deepbench.core.precision import PRECISIONS
from deepbench.results.file import ResultFile
from deepbench.results.record import Record
from deepbench.results.summary import Summary, summarize

Ending = Literal[
    "right",
    "refused",
    "missing",
    "wrong",
    "untimed",
    "crashed",
    "timeout",
    "out_of_memory",
    "unchecked",
    "interrupted",
    "inconsistent",
]

ENDINGS: dict[str, Ending] = {"ok": "right", "unsupported": "refused", "unavailable": "missing"}

# Endings that no device should cause. Refusing a case, or having too little memory for it, is not one of them.
BROKEN: tuple[Ending, ...] = ("wrong", "untimed", "crashed", "timeout", "inconsistent")

# A call that moves less may do so within caches.
LEAST_STREAM_BYTES = 2**28
STREAM_OPS = ("memory", "elementwise")

# The key of the bandwidth among peaks, and where the facts of a card have the peaks of its data sheet.
BANDWIDTH = "memory"
OF_CARD = {"f32": "peak_f32_flop_per_s", BANDWIDTH: "memory_bytes_per_s"}


@dataclass(frozen=True)
class EndedCase:
    """How a case ended."""

    case: str
    op: str
    problem: str
    direction: str
    precision: str
    backend: str
    ending: Ending
    reason: str | None
    error: float | None
    """Of a wrong result: the largest error in tolerances; None if it is not finite, or if nothing was compared."""
    ran: str | None
    """What the library says it ran, and in which precision that computes."""


@dataclass(frozen=True)
class ConformanceCell:
    """All cases of an operation in a precision on a backend."""

    backend: str
    op: str
    precision: str
    cases: tuple[EndedCase, ...]

    def of(self, *endings: Ending) -> list[EndedCase]:
        """Those that ended so."""
        return [case for case in self.cases if case.ending in endings]

    @property
    def ran(self) -> list[str]:
        """What ran, each once."""
        return list(dict.fromkeys(case.ran for case in self.cases if case.ran))


@dataclass(frozen=True)
class GivenReason:
    """A reason that one or several cases gave for not being right."""

    ending: Ending
    reason: str
    cases: tuple[str, ...]


@dataclass(frozen=True)
class HighestRate:
    """The highest rate of products in a precision, or of moving data."""

    what: str
    """The precision, or `memory`."""
    per_s: float
    """FLOP or bytes per second; at least so much if `is_disturbed`."""
    low: float | None
    high: float | None
    """The ends of the interval; None where there is none."""
    is_disturbed: bool
    clock: str | None
    """How the device's time was taken, such as `slope`; None: calls on the CPU, by its clock."""
    case: str
    problem: str
    backend: str
    peak: float | None
    """Of the data sheet; None if it is neither stated nor known to the library."""
    is_stated: bool
    """Whether a person stated the peak; else the library did."""

    @property
    def share(self) -> float | None:
        """Of the peak; None without one."""
        return None if self.peak is None else self.per_s / self.peak

    @property
    def is_impossible(self) -> bool:
        """Whether it is above the peak: then the rate, its time or the peak is not what it seems."""
        return self.share is not None and self.share > 1


@dataclass(frozen=True)
class HostCost:
    """What calls cost the host, over all cases of a backend that are right. Seconds per call; None: not measured."""

    backend: str
    cases: int
    enqueue_s: float | None
    """Until the host goes on: the median over the cases."""
    empty_s: float | None
    """Of a call that computes next to nothing, by the slope: the shortest of the cases."""
    alone_s: float | None
    """The shortest call that is made and waited for: the least of the medians of the cases."""
    alone_case: str | None


@dataclass(frozen=True)
class Conformance:
    """Everything that a report says."""

    planned: int
    cases: tuple[EndedCase, ...]
    cells: tuple[ConformanceCell, ...]
    reasons: tuple[GivenReason, ...]
    rates: tuple[HighestRate, ...]
    host: tuple[HostCost, ...]
    facts: Mapping[str, Any] = field(repr=False)
    """Device, libraries, host and date."""

    def of(self, *endings: Ending) -> list[EndedCase]:
        """Those that ended so."""
        return [case for case in self.cases if case.ending in endings]

    @property
    def is_broken(self) -> bool:
        """Whether anything is wrong, crashed or hung, or nothing at all is right."""
        return bool(self.of(*BROKEN)) or not self.of("right")


def judge(file: ResultFile, peaks: Mapping[str, float] | None = None) -> Conformance:
    """What the records of a file show.

    `peaks` are those of the data sheet: FLOP/s by precision, and bytes/s of `memory`.
    """
    summaries = summarize(file.records, file.order)
    ended = tuple(map(_ended, summaries))
    cells: dict[tuple[str, str, str], list[EndedCase]] = {}
    reasons: dict[tuple[Ending, str], list[str]] = {}
    for case in ended:
        cells.setdefault((case.backend, case.op, case.precision), []).append(case)
        if case.ending != "right":
            reasons.setdefault((case.ending, case.reason or ""), []).append(case.case)
    return Conformance(
        planned=len({*file.order, *(case.case for case in ended)}),
        cases=ended,
        cells=tuple(ConformanceCell(*key, tuple(cases)) for key, cases in cells.items()),
        reasons=tuple(GivenReason(*key, tuple(cases)) for key, cases in reasons.items()),
        rates=tuple(_rates(summaries, peaks or {})),
        host=tuple(_host_costs(summaries)),
        facts=_facts(file, summaries),
    )


# ---- how cases ended


def _ended(summary: Summary) -> EndedCase:
    record = summary.record
    ending = ending_of(record)
    settings = summary.settings_words()
    return EndedCase(
        case=record["case"],
        op=record["op"],
        problem=" ".join([record["problem_title"], *settings]),
        direction=record["direction"],
        precision=record["precision"],
        backend=record["backend"],
        ending=ending,
        reason=record["reason"],
        error=_error(record) if ending == "wrong" else None,
        ran=_ran(record),
    )


def ending_of(record: Record) -> Ending:
    """How the case of a record ended."""
    status = record["status"]
    if status == "wrong":
        return "untimed" if _is_right(record) else "wrong"
    return ENDINGS.get(status, status)  # type: ignore[arg-type]


def _is_right(record: Record) -> bool:
    """Whether all that was to be compared was right, so that only the time is doubted."""
    before, after, measurement = record["check"]["before"], record["check"]["after"], record["measurement"]
    if before is None or not before["passed"] or (after is not None and not after["passed"]):
        return False
    # Without a measurement the clock refused. With one, a check that found nothing to compare refused, unless there
    # was none to make.
    return measurement is None or after is not None or measurement["stopped"] == "first_call"


def _error(record: Record) -> float | None:
    """The largest error of the checks that failed."""
    failed = [c for c in (record["check"]["before"], record["check"]["after"]) if c is not None and not c["passed"]]
    errors = [c["error"] for c in failed]
    return max((e for e in errors if e is not None), default=None) if None not in errors else None


def _ran(record: Record) -> str | None:
    implementation, kind = record["notes"].get("implementation"), record["notes"].get("computes_in")
    words = [implementation if isinstance(implementation, str) else "", f"in {kind}" if isinstance(kind, str) else ""]
    return " ".join(filter(None, words)) or None


# ---- rates


def _rates(summaries: Sequence[Summary], peaks: Mapping[str, float]) -> Iterable[HighestRate]:
    highest: dict[str, tuple[float, Summary, float]] = {}
    for summary in summaries:
        record = summary.record
        if not summary.is_ranked or summary.is_group:
            continue
        op = known_op(record["op"])
        if op is not None and op.probes:
            what, work = record["precision"], float(record["flop"])
        elif record["op"] in STREAM_OPS and record["traffic_bytes"] >= LEAST_STREAM_BYTES:
            what, work = BANDWIDTH, float(record["traffic_bytes"])
        else:
            continue
        rate = work / summary.time_s
        if what not in highest or rate > highest[what][0]:
            highest[what] = rate, summary, work
    order = [*PRECISIONS, BANDWIDTH]
    for what in sorted(highest, key=lambda name: order.index(name) if name in order else len(order)):
        rate, summary, work = highest[what]
        record, estimate = summary.record, summary.estimate
        assert estimate is not None, "it is ranked"
        device = record["measurement"].get("device") if record["measurement"] else None
        yield HighestRate(
            what=what,
            per_s=rate,
            low=None if estimate.high_s is None else work / estimate.high_s,
            high=None if estimate.low_s is None else work / estimate.low_s,
            is_disturbed=estimate.disturbed,
            clock=device["clock"] if device else None,
            case=record["case"],
            problem=record["problem_title"],
            backend=record["backend"],
            peak=peaks.get(what, _peak_of_card(record, what)),
            is_stated=what in peaks,
        )


def _peak_of_card(record: Record, what: str) -> float | None:
    facts: Any = record["library"] or {}
    card = facts.get("card")
    peak = card.get(OF_CARD.get(what)) if isinstance(card, dict) else None
    if isinstance(peak, bool) or not isinstance(peak, int | float):
        return None
    return float(peak) if 0 < peak < 1e30 else None


def _host_costs(summaries: Sequence[Summary]) -> Iterable[HostCost]:
    backends: dict[str, list[tuple[Summary, Any]]] = {}
    for summary in summaries:
        measurement = summary.record["measurement"]
        device = measurement.get("device") if measurement else None
        if summary.status == "ok" and device:
            backends.setdefault(summary.record["backend"], []).append((summary, device))
    for name, found in backends.items():
        queues = [device["queue"] for _, device in found if device.get("queue")]
        alone = [(median(device["host_call_s"]), s.record["case"]) for s, device in found if device["host_call_s"]]
        least_s, case = min(alone, default=(None, None))
        yield HostCost(
            backend=name,
            cases=len(found),
            enqueue_s=median(q["enqueue_s"] for q in queues) if queues else None,
            empty_s=min((q["empty_s"] for q in queues if q["empty_s"] is not None), default=None),
            alone_s=least_s,
            alone_case=case,
        )


# ---- what was measured


def _facts(file: ResultFile, summaries: Sequence[Summary]) -> dict[str, Any]:
    header = file.header
    used = list(dict.fromkeys(s.record["backend"] for s in summaries))
    loaded = {s.record["backend"]: s.record["library"] for s in summaries if s.record["library"]}
    libraries = {}
    for name in used:
        answer = header["libraries"].get(name) or {}
        library: Any = loaded.get(name) or answer.get("library") or {}
        missing: Any = answer.get("unavailable") or {}
        card = library.get("card")
        libraries[name] = {
            "name": library.get("name"),
            "version": library.get("version"),
            "build": library.get("build"),
            "file": str(library["path"]).rpartition("/")[2] if library.get("path") else None,
            "calls_itself": library.get("device") or (card.get("name") if isinstance(card, dict) else None),
            "missing": missing.get("reason"),
        }
    return {
        "devices": list(dict.fromkeys(s.record["device"] for s in summaries)),
        "libraries": libraries,
        "host": header["machine"].get("host"),
        "cpu": header["machine"].get("cpu"),
        "system": header["machine"].get("system"),
        "started": header["started"],
        "tool": header["tool"],
        "threads": sorted({s.record["threads"] for s in summaries}),
    }
