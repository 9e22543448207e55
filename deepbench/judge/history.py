"""Each case over time: the results of many files, by machine, in the order in which they were measured.

A machine is a host of one kind: a host whose processor or number of CPUs changes is another machine. Times of different
machines, of different GPUs, and of other programs are never in one series. `change_points.py` says where the level of a
series changed, and `reasons.py` what was recorded and changed at that point.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.judge import change_points
from deepbench.judge.reasons import MACHINE, Reason, Reasons, library_facts, machine_facts, reasons
from deepbench.results.file import ResultFile
from deepbench.results.record import Header, Record
from deepbench.results.summary import Summary, summarize

# What makes a machine another one. Microcode, kernel and memory may change on the same machine: they are reasons.
KIND = ("cpu", "architecture", "cores_allowed", "cpu_quota", "hypervisor")
KIND_OF_CPU = ("cpu family", "model", "stepping", "CPU implementer", "CPU part")

# A run that began before this has a clock that was never set; the first DeepBench is younger.
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
# Clocks of machines differ, but not by more than this.
MOST_AHEAD = timedelta(days=1)

# The first and the last time of a case are medians of so many, or of half of them where there are fewer.
ENDS = 5

# Files are read again to find what changed at a point, so many pairs at most.
MOST_EXPLAINED = 200

# Numbers of times of all cases together: some hundred bytes each.
MOST_TIMES = 3_000_000

INCONSISTENT = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
"""Values of a file that pass the schema one by one may contradict each other."""

# Longer texts of a file are cut off.
MOST_OF_FACT = 200

Facts = tuple[tuple[str, str], ...]
"""Names and values of what was recorded. Runs in which nothing differs have the same object, which saves memory."""


@dataclass(frozen=True)
class TimedRun:
    """One result file, or what one host of a fleet returned in one."""

    path: Path
    of_host: str | None
    """The name of the host in a fleet file; None in other files."""
    began: datetime
    facts: Facts = field(default=(), compare=False, repr=False)
    """What the machine recorded about itself, but for the name of the host."""


@dataclass(frozen=True, slots=True)
class TimeOfRun:
    """The time of a case in one run, in seconds per call, with its 95 % interval."""

    run: TimedRun
    time_s: float
    low_s: float | None
    high_s: float | None
    is_disturbed: bool
    library: Facts = ()
    """The versions of the library and of the driver of its GPU."""


class CaseIdentity(NamedTuple):
    """What the times of one series have in common, besides their machine."""

    case: str
    card: str | None
    """The GPU."""
    imported: str | None
    """The program that measured it, if that was not DeepBench."""


@dataclass(frozen=True)
class ChangePoint:
    """A point from which on a case has another level."""

    before: TimedRun
    """The last run of the level before, of those that decide."""
    after: TimedRun
    """The first run of the new level."""
    before_s: float
    """The median of the undisturbed times between this point and the one before."""
    after_s: float
    """The same up to the next point."""
    p: float
    """p-value, corrected for all places, points and cases."""
    reasons: Sequence[Reason] | None = None
    """What was recorded and differs between both runs; None where it was not looked up."""

    @property
    def ratio(self) -> float:
        """The time after over the time before: above 1, it became slower."""
        return self.after_s / self.before_s


@dataclass(frozen=True)
class RecordedChange:
    """A run from which on something else was recorded about the machine or the library. Times need not have changed."""

    run: TimedRun
    reasons: Sequence[Reason]


@dataclass
class CaseHistory:
    """One case on one machine over time."""

    identity: CaseIdentity
    op: str
    direction: str
    precision: str
    problem: str
    """The problem as tables write it."""
    library: str
    """With the variants that were asked for."""
    library_title: str
    threads: int
    times: list[TimeOfRun] = field(default_factory=list)
    without_time: int = 0
    """In how many runs it was measured and has no time, because it failed or its result was not checked."""
    changes: list[ChangePoint] = field(default_factory=list)

    @property
    def deciding(self) -> list[TimeOfRun]:
        """The undisturbed times. A disturbed one is an upper bound."""
        return [t for t in self.times if not t.is_disturbed]

    @property
    def first_s(self) -> float | None:
        """The median of the first undisturbed times (`ENDS`); None without two."""
        return self._end(lambda values, count: values[:count])

    @property
    def last_s(self) -> float | None:
        """The same of the last ones."""
        return self._end(lambda values, count: values[-count:])

    def _end(self, chosen: Callable[[list[float], int], list[float]]) -> float | None:
        values = [t.time_s for t in self.deciding]
        return median(chosen(values, min(ENDS, len(values) // 2))) if len(values) > 1 else None

    @property
    def ratio(self) -> float | None:
        """The last time over the first; None without two undisturbed times."""
        return None if self.first_s is None or self.last_s is None else self.last_s / self.first_s

    @property
    def change(self) -> float | None:
        """The last level over the first; None without a change point."""
        return self.changes[-1].after_s / self.changes[0].before_s if self.changes else None

    @property
    def recorded_changes(self) -> list[RecordedChange]:
        """Where a fact of the machine or a version of the library differs from the last one that was recorded."""
        found: list[RecordedChange] = []
        known: dict[tuple[str | None, str], str] = {}
        last: TimeOfRun | None = None
        for time in self.times:
            if last is not None and time.library is last.library and time.run.facts is last.run.facts:
                continue
            differs = []
            for of, facts in ((self.library_title, time.library), (None, time.run.facts)):
                for name, text in facts:
                    if (before := known.get((of, name), text)) != text:
                        differs.append(Reason(name, before, text, of))
                    known[of, name] = text
            if differs:
                found.append(RecordedChange(time.run, differs))
            last = time
        return found


@dataclass
class MachineHistory:
    """All cases of one machine."""

    host: str | None
    """None where hosts of one kind are one machine, and where files do not name a host."""
    kind: str
    """The processor and the number of CPUs, in words."""
    runs: list[TimedRun] = field(default_factory=list)
    cases: list[CaseHistory] = field(default_factory=list)
    identity: str = ""
    """What links to this machine have: letters and digits that no other machine has."""

    @property
    def title(self) -> str:
        """Host and kind."""
        return self.kind if self.host is None else f"{self.host}: {self.kind}"

    @property
    def changed(self) -> list[CaseHistory]:
        """The cases with a change point: those that are slower now come first, the largest change on top."""
        found = [(c, c.change) for c in self.cases if c.change is not None]
        return [c for c, change in sorted(found, key=lambda pair: (pair[1] <= 1, -abs(math.log(pair[1]))))]


@dataclass
class History:
    """What the files of a folder say about each machine over time."""

    machines: list[MachineHistory]
    margin: float
    """The relative change that does not matter."""
    not_searched: str | None = None
    """Why no change points were searched, and the remedy."""
    not_explained: int = 0
    """At how many change points the files were not read again to find what else changed."""
    refused: list[str] = field(default_factory=list)
    """Files that could not be read, each with the reason."""
    left_out: list[str] = field(default_factory=list)
    """Files that do not belong to a history, each with the reason."""

    @property
    def cases(self) -> list[CaseHistory]:
        """The cases of all machines."""
        return [case for machine in self.machines for case in machine.cases]


@dataclass
class CollectedRuns:
    """The runs that were read so far. `machines` puts them in order."""

    chosen: Callable[[Record], bool]
    """Whether the case of a record is wanted."""
    now: datetime
    ignore_host: bool = False
    _machines: dict[tuple[str | None, str], MachineHistory] = field(default_factory=dict)
    _cases: dict[tuple[str | None, str], dict[CaseIdentity, CaseHistory]] = field(default_factory=dict)
    _seen: dict[int, Path] = field(default_factory=dict)
    _facts: dict[Facts, Facts] = field(default_factory=dict)
    _count: int = 0

    def add(self, file: ResultFile, of_host: str | None = None) -> None:
        """Add a file, or the part of a host of a fleet; `BadInput` says why it does not belong to a history."""
        began = moment(file.header["started"], self.now)
        if file.header["plan"].get("interleaved"):
            raise BadInput("it is one side of two that were measured in turn; compare it with the other side")
        summaries = summarize(filter(self.chosen, file.records), file.order)
        if not summaries:
            return
        header: Mapping[str, Any] = file.header["machine"]
        host = of_host or host_of(header)
        key = None if self.ignore_host else host, _kind(header)
        run = TimedRun(file.path, of_host, began, self._shared(_facts_of_machine(file.header)))
        found = [self._time(s, run) for s in summaries]
        content = hash((key, began, tuple((identity.case, time and time.time_s) for identity, _, time in found)))
        if content in self._seen:
            raise BadInput(f"it has the same results as {printable(str(self._seen[content]))}")
        self._count += len(found)
        if self._count > MOST_TIMES:
            raise TooMuch(f"there are more than {MOST_TIMES} times")
        self._seen[content] = file.path
        made = MachineHistory(key[0], kind_text(header), identity=_identity(key))
        self._machines.setdefault(key, made).runs.append(run)
        known = self._cases.setdefault(key, {})
        for identity, facts, time in found:
            case = known.setdefault(identity, CaseHistory(identity, *facts))
            if time is not None:
                case.times.append(time)
            else:
                case.without_time += 1

    def _time(self, s: Summary, run: TimedRun) -> tuple[CaseIdentity, tuple[Any, ...], TimeOfRun | None]:
        """The case, what tables say of it, and its time if it has one."""
        record, e = s.record, s.estimate
        identity = CaseIdentity(record["case"], card_of(record), s.imported)
        titles = s.problem_title, s.library_title, record["library_title"]
        facts = record["op"], record["direction"], record["precision"], *titles, record["threads"]
        if e is None or not s.is_ranked:
            return identity, facts, None
        library = self._shared(_kept(library_facts(record)))
        return identity, facts, TimeOfRun(run, e.time_s, e.low_s, e.high_s, s.is_disturbed, library)

    def _shared(self, facts: Facts) -> Facts:
        """The object that all runs with these facts have."""
        return self._facts.setdefault(facts, facts)

    def machines(self) -> list[MachineHistory]:
        """All machines; runs and times in the order in which they began."""
        for key, machine in self._machines.items():
            machine.runs.sort(key=_place)
            machine.cases = list(self._cases[key].values())
            for case in machine.cases:
                case.times.sort(key=lambda t: _place(t.run))
        return sorted(self._machines.values(), key=lambda m: (m.host or "", m.kind))


class TooMuch(BadInput):
    """There is more than can be shown; no part of it is left out in silence."""


def _place(run: TimedRun) -> tuple[datetime, str, str]:
    """Runs that began in the same second are in the order of their names."""
    return run.began, str(run.path), run.of_host or ""


def moment(text: str, now: datetime) -> datetime:
    """When a run began; `BadInput` for what is no date, or one that a wrong clock has written."""
    shown = shorten(printable(text))
    try:
        found = datetime.fromisoformat(text)
        found = (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadInput(f"its start is no date and time, found {shown!r}") from None
    if not EARLIEST <= found <= now + MOST_AHEAD:
        where = "in the future" if found > now else f"before {EARLIEST.year}"
        raise BadInput(f"its start, {shown}, is {where}, so that the clock of its machine was wrong")
    return found


def host_of(machine: Mapping[str, Any]) -> str | None:
    """The name of the host in a header; it may come from anyone."""
    host = machine.get("host")
    return printable(host) if isinstance(host, str) and host else None


def _kind(machine: Mapping[str, Any]) -> str:
    ids = machine.get("cpu_ids")
    of_cpu = [ids.get(name) for name in KIND_OF_CPU] if isinstance(ids, dict) else None
    return json.dumps([[machine.get(name) for name in KIND], of_cpu], sort_keys=True, default=str)


def identity_of(machine: Mapping[str, Any]) -> str:
    """The identity of the machine that a header describes, as `MachineHistory` has it."""
    return _identity((host_of(machine), _kind(machine)))


def _identity(key: tuple[str | None, str]) -> str:
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]


def _facts_of_machine(header: Header) -> Facts:
    """What a machine recorded about itself; nothing where its values contradict each other."""
    try:
        facts = machine_facts(header)
    except INCONSISTENT:
        return ()
    return _kept({name: text for name, text in facts.items() if name != MACHINE["host"]})


def _kept(facts: Mapping[str, str | None]) -> Facts:
    return tuple((name, shorten(text, MOST_OF_FACT)) for name, text in facts.items() if text is not None)


def kind_text(machine: Mapping[str, Any]) -> str:
    """Processor and number of CPUs: `AMD EPYC, 2 CPUs`."""
    cpu, cores = machine.get("cpu"), machine.get("cores_allowed")
    text = printable(cpu) if isinstance(cpu, str) and cpu else "unknown processor"
    return f"{text}, {cores} CPU{'s' if cores != 1 else ''}" if isinstance(cores, int) else text


def card_of(record: Record) -> str | None:
    """The GPU of a record, or what its device calls itself; None on a CPU."""
    library: Mapping[str, Any] = record["library"] or {}
    card = library.get("card")
    name = card.get("name") if isinstance(card, dict) else library.get("device")
    return printable(name) if isinstance(name, str) else None


# ---- change points


def find_changes(machines: Sequence[MachineHistory], margin: float = change_points.MARGIN) -> None:
    """Set the change points of all cases. `Unavailable` without ruptures."""
    change_points.require_proposals()
    cases = [case for machine in machines for case in machine.cases]
    times = [case.deciding for case in cases]
    logs = [[math.log(t.time_s) for t in of_case] for of_case in times]
    proposed = [
        # Of two runs that began at once, nobody knows which was first.
        [at for at in change_points.propose(of_case) if of_times[at - 1].run.began < of_times[at].run.began]
        for of_case, of_times in zip(logs, times, strict=True)
    ]
    found = change_points.decide(logs, proposed, margin)
    for case, of_times, changes in zip(cases, times, found, strict=True):
        case.changes = [
            ChangePoint(of_times[c.at - 1].run, of_times[c.at].run, c.before_s, c.after_s, c.p) for c in changes
        ]


Reader = Callable[[TimedRun], ResultFile]
"""Reads the file of a run again."""


def explain(machines: Sequence[MachineHistory], read: Reader) -> int:
    """Look up what was recorded and differs at each change point; returns how many points were not looked up."""
    boundaries: dict[tuple[TimedRun, TimedRun], list[tuple[CaseHistory, int]]] = {}
    for machine in machines:
        for case in machine.cases:
            for i, change in enumerate(case.changes):
                boundaries.setdefault((change.before, change.after), []).append((case, i))
    left = 0
    # Those of most cases first; of fleets, hosts that share a file follow each other.
    ordered = sorted(boundaries.items(), key=lambda item: (-len(item[1]), *map(_place, item[0])))
    for number, ((before, after), of_cases) in enumerate(ordered):
        try:
            found = _reasons_between(read(before), read(after)) if number < MOST_EXPLAINED else None
        except (BadInput, *INCONSISTENT):
            found = None  # the file has changed since it was read, or contradicts itself
        for case, i in of_cases:
            c = case.changes[i]
            listed = None if found is None else _of_case(found, case)
            left += found is None
            case.changes[i] = ChangePoint(c.before, c.after, c.before_s, c.after_s, c.p, listed)
    return left


def _reasons_between(a: ResultFile, b: ResultFile) -> Reasons:
    sides: list[dict[str, Summary]] = [{s.record["case"]: s for s in summarize(f.records, f.order)} for f in (a, b)]
    return reasons(a, b, [(s, sides[1][text]) for text, s in sides[0].items() if text in sides[1]])


def _of_case(found: Reasons, case: CaseHistory) -> list[Reason]:
    """What a case shares with its library and what is particular to it, then the machine."""
    of_library, of_case = found.of_library.get(case.library_title, []), found.of_case.get(case.identity.case, [])
    return list(dict.fromkeys([*of_library, *of_case, *found.of_all]))
