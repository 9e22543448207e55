"""The examination of one host: is it as fast as the hosts of a reference? Runs in a process of its own (`check.py`).

A few processes measure each kernel of the reference, as a run of a fleet does it. A kernel that looks slow gets a
second look by new processes. The host is slow only if both looks say so, each from processes that other programs left
alone. A process that crashes or does not end is repeated at once. A wrong result is not repeated, because healthy
hardware computes none.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from deepbench.core import stats
from deepbench.core.case import Case
from deepbench.core.errors import BadInput, DeepBenchError, shorten
from deepbench.core.files import NotWritten
from deepbench.core.json_lines import sanitized, to_line
from deepbench.fleets.reference import (
    CHECK_S,
    HostReference,
    KernelFinding,
    MachineType,
    ReferenceKernel,
    devices_of,
    read_reference,
    version_of,
)
from deepbench.machine import describe
from deepbench.machine.doctor import LoadWatch
from deepbench.machine.system import allowed_cpus
from deepbench.measuring import process
from deepbench.measuring.heat import measure_heat
from deepbench.measuring.session import Options, Session, new_header, open_libraries
from deepbench.plan.cases import Planned
from deepbench.plan.rounds import rivals_of
from deepbench.results.file import ResultFile, Store
from deepbench.results.record import Record, make_record
from deepbench.results.summary import is_disturbed, process_time_s

Status = Literal["fine", "slow", "wrong", "failed", "undecided", "not judged"]

EXIT_CODES: dict[Status, int] = {"fine": 0, "undecided": 0, "slow": 1, "wrong": 1, "failed": 1, "not judged": 2}

# How long the libraries may take to load. Many hosts that start at once wait for the same file system.
OPEN_S = 20.0

# A process has failed if it takes this many times as long as on healthy hosts, and these seconds more.
MUCH_LONGER, LONGER_S = 4.0, 4.0

# Undisturbed processes that each look needs before the host is accused, if it has so many.
LEAST_UNDISTURBED = 2

# Other programs that use this share of the CPUs disturb, too, and time that a hypervisor took in this share.
MOST_OTHERS, MOST_STEAL = 0.01, 0.01

# A kernel has a share of the time, so that a second process has time if the first one hangs.
LARGEST_SHARE = 0.4

# References in a folder, at most.
MOST_REFERENCES = 256

# Kernels and differences that one line names.
MOST_NAMED = 3


@dataclass(frozen=True)
class HostCheck:
    """What a check of one host found."""

    status: Status
    """`undecided`: other programs disturbed it, or there was no time. `not judged`: no reference fits."""
    reason: str
    """One sentence."""
    kernels: dict[str, float] = field(default_factory=dict)
    """By case: time here over the mean of the healthy hosts, from the last look at it."""
    overall: float | None = None
    """The same for all kernels together."""
    reference: str | None = None
    """The file that it was compared with."""
    history: str | None = None
    """The result file; None if none was asked for, or if it could not be written."""
    duration_s: float = 0.0

    @property
    def exit_code(self) -> int:
        """1 if something is wrong with the host, 2 if that could not be judged, else 0."""
        return EXIT_CODES[self.status]

    @property
    def line(self) -> str:
        """One line for people and for logs."""
        return f"{self.status}: {self.reason}"


class Overrun(Exception):
    """Something took longer than its share of the time."""


class _Ends(Exception):
    """The examination ends here."""

    def __init__(self, status: Status, reason: str) -> None:
        self.status: Status = status
        self.reason = reason


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `Overrun` in the body after so many seconds. For the main thread."""

    def stop(*_: object) -> NoReturn:
        raise Overrun

    former = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(1e-3, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


Measure = Callable[[Sequence[Case], int, float], list[Record]]
"""Measures rivals in one heat: their cases, the number of the round, and how many seconds they may take."""

Tell = Callable[[Mapping[str, Any]], None]


@dataclass
class Examination:
    """Looks at a host, and what they found."""

    reference: HostReference
    measure: Measure
    left_s: Callable[[], float]
    """Seconds until everything must have ended."""
    tell: Tell = lambda message: None
    """Called before each heat."""
    kernels: dict[str, float] = field(default_factory=dict)
    overall: float | None = None
    notes: list[str] = field(default_factory=list)
    """What the sentence of the verdict ends with."""
    _largest_s: float = 0.0
    _rounds_done: dict[str, int] = field(default_factory=dict)
    _records: list[Record] = field(default_factory=list)

    def run(self) -> tuple[Status, str]:
        """Look once, and again at what looks slow; the verdict with its reason."""
        try:
            return self._run()
        except _Ends as end:
            return end.status, end.reason

    def _run(self) -> tuple[Status, str]:
        reference = self.reference
        rounds, self._largest_s = reference.rounds_in(self.left_s()), LARGEST_SHARE * self.left_s()
        first = self._look(reference.kernels, rounds)
        suspicious = [f for f in self._findings(first) if f.is_slow]
        measured = [text for text, records in first.items() if records]
        if not measured:
            return "undecided", "there was no time to measure any kernel"
        if len(measured) < len(reference.kernels):
            self.notes.append(f"there was no time for {len(reference.kernels) - len(measured)} other kernels")
        if not suspicious:
            ratios = sorted(self.kernels.values())
            return "fine", f"{_kernels(len(ratios))} {_range(ratios)} on {reference.hosts} healthy hosts of this type"
        texts = [f.case for f in sorted(suspicious, key=lambda f: -f.ratio / f.limit)]
        again = [k for k in reference.kernels if None in texts or k.case.text in texts]
        again.sort(key=lambda k: texts.index(k.case.text) if k.case.text in texts else len(texts))
        second = self._look(again, rounds)
        return self._verdict(suspicious, first, second)

    def _verdict(
        self,
        suspicious: Sequence[KernelFinding],
        first: Mapping[str, Sequence[Record]],
        second: Mapping[str, Sequence[Record]],
    ) -> tuple[Status, str]:
        """After both looks."""
        if not any(second.values()):
            return "undecided", f"{self._slow(suspicious)}, and there was no time for a second look"
        wanted = {f.case for f in suspicious}
        still = [f for f in self._findings(second) if f.is_slow and f.case in wanted]
        if slow := self.reference.slow_in_both(self._undisturbed(first), self._undisturbed(second)):
            return "slow", self._slow(slow)
        if still:
            return "undecided", f"{self._slow(still)}, but {self._disturbance()}"
        return "fine", f"{self._slow(suspicious)} at a first look, and not at a second one"

    def _look(self, kernels: Sequence[ReferenceKernel], rounds: int) -> dict[str, list[Record]]:
        """Measure these kernels so many times, in turn; by case, those records that are right."""
        found: dict[str, list[Record]] = {k.case.text: [] for k in kernels}
        heats: dict[object, list[ReferenceKernel]] = {}
        for kernel in kernels:
            heats.setdefault(rivals_of(kernel.case), []).append(kernel)
        for _ in range(rounds):
            for heat in random.sample([*heats.values()], len(heats)):
                for record in self._heat(heat):
                    found[record["case"]].append(record)
        return found

    def _heat(self, kernels: Sequence[ReferenceKernel]) -> list[Record]:
        """The records of one heat, all of them right; empty if there was no time. `_Ends` if the host has failed."""
        usual_s = sum(k.duration_s for k in kernels)
        wanted_s = min(MUCH_LONGER * usual_s + LONGER_S, max(self._largest_s, 1.5 * usual_s + 1))
        failures: dict[str, str] = {}
        for _ in range(2):
            left_s = self.left_s()
            records = self._measure(kernels, min(wanted_s, left_s)) if left_s > 1.5 * usual_s else []
            failed = [r for r in records if r["status"] != "ok"]
            if records and not failed:
                self.notes += [f"a process of {text} failed once: {reason}" for text, reason in failures.items()]
                return records
            if not records or (failed[0]["status"] == "timeout" and left_s < wanted_s):
                if failures:
                    text, reason = next(iter(failures.items()))
                    raise _Ends("undecided", f"{text} failed once, and there was no time to repeat it: {reason}")
                return []
            for record in failed:
                _end_at_once(record, record["case"])
            record = failed[0]
            text, reason = record["case"], f"{record['status']}, {shorten(str(record['reason']), 200)}"
            if failures:
                raise _Ends("wrong" if record["status"] == "wrong" else "failed", f"{text} failed twice: {reason}")
            failures = {text: reason}
        return []

    def _measure(self, kernels: Sequence[ReferenceKernel], share_s: float) -> list[Record]:
        """One heat. If it overruns on a busy host, `_Ends`."""
        number = max(self._rounds_done.get(k.case.text, 0) for k in kernels) + 1
        self._rounds_done |= dict.fromkeys((k.case.text for k in kernels), number)
        self.tell({"kernel": kernels[0].case.text, "share_s": share_s})
        watch = LoadWatch()
        records = self.measure([k.case for k in kernels], number, share_s)
        if any(r["status"] == "timeout" for r in records) and (busy := watch.load(0.0).sentence):
            raise _Ends("undecided", f"{kernels[0].case.text} did not end within {share_s:.3g} s, but {busy}")
        self._records += records
        return records

    def _findings(self, look: Mapping[str, Sequence[Record]]) -> list[KernelFinding]:
        """How a look compares, by its undisturbed processes; of a kernel without any, by all: they are no faster."""
        clean = self._undisturbed(look, 1)
        times = {text: clean.get(text) or _times(records) for text, records in look.items()}
        found = self.reference.findings(times)
        for finding in found:
            if finding.case is not None:
                self.kernels[finding.case] = finding.ratio
            elif len(times) == len(self.reference.kernels):
                self.overall = finding.ratio
        return found

    def _undisturbed(
        self, look: Mapping[str, Sequence[Record]], least: int = LEAST_UNDISTURBED
    ) -> dict[str, list[float]]:
        """Seconds per call by case, of processes that other programs left alone, where there are enough."""
        found = {}
        for text, records in look.items():
            clean = [r for r in records if not is_busy(r)]
            if clean and len(clean) >= min(least, len(records)):
                found[text] = _times(clean)
        return found

    def _slow(self, findings: Sequence[KernelFinding]) -> str:
        """Such as `gemm … takes 1.14 times as long as on 12 healthy hosts of this type (limit 1.06)`."""
        ordered = sorted(findings, key=lambda f: -f.ratio)
        parts = [
            f"{'all kernels together take' if f.case is None else f'{f.case} takes'} {f.ratio:.2f} times as long as on "
            f"{self.reference.hosts} healthy hosts of this type (limit {f.limit:.2f})"
            for f in ordered[:1]
        ]
        parts += [
            f"{'all kernels together' if f.case is None else f.case} {f.ratio:.2f} times" for f in ordered[1:MOST_NAMED]
        ]
        more = len(ordered) - MOST_NAMED
        return ", ".join(parts) + (f", and {more} more" if more > 0 else "")

    def _disturbance(self) -> str:
        """What disturbed, from the records."""
        measurements = [m for r in self._records if (m := r["measurement"])]
        others = max((o for m in measurements if (o := m.get("other_cpus"))), default=0.0)
        if others >= stats.OTHER_LOAD:
            return f"other programs used up to {others:.1f} CPUs meanwhile"
        if any(any(m["steal_s"]) for m in measurements):
            return "the hypervisor took CPU time meanwhile"
        return "other programs disturbed most of the processes"


def _end_at_once(record: Record, text: str) -> None:
    """`_Ends` for a record that no second process could change."""
    status, check = record["status"], record["check"]
    reason = shorten(str(record["reason"]), 200)
    if status == "wrong" and any(c is not None and not c["passed"] for c in (check["before"], check["after"])):
        raise _Ends("wrong", f"{text}: {reason}")
    if status == "out_of_memory":
        raise _Ends("undecided", f"{text} gets too little memory: {reason}")
    if status not in ("wrong", "crashed", "timeout"):
        raise _Ends("not judged", f"{text}: {status}, {reason}")


def _times(records: Sequence[Record]) -> list[float]:
    return [process_time_s(r) for r in records]


def _kernels(count: int) -> str:
    return f"{count} kernels take" if count > 1 else "one kernel takes"


def _range(ratios: Sequence[float]) -> str:
    low, high = f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}"
    return f"{low if low == high else f'{low} to {high}'} times as long as"


def is_busy(record: Record) -> bool:
    """Whether other programs may have slowed the process of a record."""
    measurement, cpus = record["measurement"], len(allowed_cpus())
    if measurement is None or is_disturbed(record):
        return True
    others = measurement.get("other_cpus") or 0.0
    stolen_s = sum(s for s in measurement["steal_s"] if s is not None)
    took_s = sum(measurement["samples_s"]) * measurement["calls_per_sample"]
    shared = any(w["code"] == "shared_card" for w in record["warnings"])
    return others >= max(stats.OTHER_LOAD, MOST_OTHERS * cpus) or stolen_s > MOST_STEAL * cpus * took_s or shared


# ---- with real processes and files


class HistoryFile(Store):
    """A result file that takes what the system lets it: a full disk must not end a check."""

    def __init__(self, path: Path | None, header: Mapping[str, Any]) -> None:
        """None: nothing is written. Folders are made if they are missing."""
        self.path = path or Path("no-history.jsonl")
        self.error: str | None = None
        """Why something is missing in the file."""
        self._store: Store | None = None
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._store = Store.create(path, header)
            except (BadInput, OSError) as error:
                self.error = str(error)

    @property
    def is_written(self) -> bool:
        """Whether there is a file."""
        return self._store is not None

    def append(self, line: Mapping[str, Any]) -> None:
        """Write a line, or remember why that is impossible."""
        if self._store is not None:
            try:
                self._store.append(line)
            except (NotWritten, OSError) as error:
                self.error = str(error)

    def close(self) -> None:
        """Close the file."""
        if self._store is not None:
            self._store.close()


def examine(
    reference_path: Path, history: Path | None, limit_s: float, command: Sequence[str], tell: Tell
) -> HostCheck:
    """Examine this host by a reference, or by the first one in a folder that is of its type.

    `history` is the path of a result file to write, and `limit_s` the seconds that everything may take.
    """
    ends, begin, watch = time.monotonic() + limit_s, time.monotonic(), LoadWatch()
    machine = describe.describe_machine()
    tell({"phase": "read references", "share_s": CHECK_S})
    try:
        candidates = _of_this_machine(references_in(reference_path), machine)
        if (busy := watch.load().sentence) is not None:
            raise _Ends("undecided", f"{busy}, so nothing was measured")
        tell({"phase": "load libraries", "share_s": OPEN_S})
        on = {k.case.backend: k.case.device for r in candidates for k in r.kernels}
        try:
            with limited(OPEN_S):
                libraries = open_libraries(sorted(on), None, on)
        except Overrun:
            raise _Ends("undecided", f"the libraries did not load within {OPEN_S:g} s") from None
        reference = _with_these_libraries(candidates, machine, libraries)
    except _Ends as end:
        return HostCheck(end.status, end.reason, duration_s=time.monotonic() - begin)
    planned = [Planned(k.case, []) for k in reference.kernels]
    rounds = reference.rounds_in(ends - time.monotonic())
    header = new_header(planned, Options(reference.mode, rounds, command=tuple(command)), libraries=libraries)
    header = sanitized(header)
    tell({"phase": "write the history", "share_s": CHECK_S})
    store, throttled = HistoryFile(history, header), _throttled()
    with Session(ResultFile(store.path, header), store) as session:
        examination = Examination(reference, measurer(session, tell), lambda: ends - time.monotonic(), tell)
        status, reason = examination.run()
    notes = examination.notes
    if status == "slow":
        more = _throttled() - throttled
        causes = [f"cores were throttled {more} times meanwhile"] if more else []
        variables = session.file.chosen_variables
        causes += [f"{name}={value} is set" for name, value in variables.items()]
        notes = [*(causes + reference.differences(machine))[:MOST_NAMED], *notes]
    if store.error is not None:
        notes.append(f"the history is incomplete: {store.error}")
    return HostCheck(
        status,
        "; ".join([reason, *notes]),
        examination.kernels,
        examination.overall,
        str(reference.path),
        str(history) if store.is_written else None,
        time.monotonic() - begin,
    )


def references_in(path: Path) -> list[Path]:
    """The path of a reference, or those in a folder; `BadInput` if there is none."""
    try:
        if not path.is_dir():
            return [path]
        found = sorted(p for p in path.iterdir() if p.suffix == ".json")
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read the folder {path}: {getattr(error, 'strerror', error)}") from None
    if not found:
        raise BadInput(f"the folder {path} has no reference (*.json)")
    return found[:MOST_REFERENCES]


def _of_this_machine(paths: Sequence[Path], machine: Mapping[str, Any]) -> list[HostReference]:
    """The references for machines like this one, whatever their accelerators; `_Ends` if there is none."""
    found, reasons = [], []
    for path in paths:
        try:
            reference = read_reference(path)
        except BadInput as error:
            reasons.append(str(error))
            continue
        here = MachineType.of(machine, dict(reference.machine.devices))
        different = "this machine has no known type" if here is None else reference.machine.difference(here)
        if different is None:
            found.append(reference)
        else:
            reasons.append(f"{path} is for another type of machine: {different}")
    if not found:
        more = f" ({len(paths)} references)" if len(paths) > 1 else ""
        raise _Ends("not judged", f"{reasons[0]}{more}" if reasons else "there is no reference")
    return found


def _with_these_libraries(
    candidates: Sequence[HostReference], machine: Mapping[str, Any], libraries: Mapping[str, Any]
) -> HostReference:
    """The first candidate whose libraries and accelerators are here; `_Ends` if there is none.

    If libraries of all others are missing, one of these: how their processes end shows whether this host is at fault.
    """
    reasons, incomplete = [], list[HostReference]()
    for reference in candidates:
        names = sorted(reference.libraries)
        here = MachineType.of(machine, devices_of(libraries, names))
        assert here is not None, "the candidates have the type of this machine"
        versions = {name: version_of(libraries, name) for name in names}
        wrong = next((n for n in names if versions[n] not in ("missing", reference.libraries[n])), None)
        if wrong is not None:
            found = f"{wrong} {reference.libraries[wrong]}, and here is {versions[wrong]}"
            reasons.append(f"{reference.path} is for another library: {found}; make a new reference")
        elif "missing" in versions.values():
            incomplete.append(reference)
        elif (different := reference.machine.difference(here)) is not None:
            reasons.append(f"{reference.path} is for another type of machine: {different}")
        else:
            return reference
    if incomplete:
        return incomplete[0]
    raise _Ends("not judged", reasons[0])


def measurer(session: Session, tell: Tell) -> Measure:
    """Measures with real processes, and keeps each record in the file of a session."""

    def measure(cases: Sequence[Case], number: int, share_s: float) -> list[Record]:
        try:
            with limited(share_s):
                found = measure_heat([session.rival(case) for case in cases], number, session.rules, share_s)
        except Overrun:
            process.kill_children()  # also what a library has started, so that its work is not taken for that of others
            reason = f"it did not end within {share_s:.3g} s"
            found = [make_record(case, number, "timeout", reason) for case in cases]
        tell({"phase": "write the history", "share_s": CHECK_S})
        return [session.finish(case, record) for case, record in zip(cases, found, strict=True)]

    return measure


def _throttled() -> int:
    """How often cores have been throttled since boot."""
    counters = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    return sum(int(text) for path in counters if (text := describe.read_text(path)) and text.isdecimal())


def main() -> None:
    """Examine this host as the request says, which is the argument; messages go to standard output."""
    request = json.loads(sys.argv[1])
    process.die_with_parent(request["parent"])
    process.adopt_orphans()
    signal.signal(signal.SIGTERM, _leave)

    def tell(message: Mapping[str, Any]) -> None:
        os.write(1, to_line(message).encode(errors="replace"))

    try:
        history = request["history"] and Path(request["history"])
        found = examine(Path(request["reference"]), history, request["limit_s"], request["command"], tell)
    except (DeepBenchError, OSError, MemoryError) as error:
        found = HostCheck("not judged", f"the check could not be made: {str(error) or type(error).__name__}")
    tell({"found": asdict(found)})
    _leave()


def _leave(*_: object) -> NoReturn:
    """End at once, with everything that was started."""
    process.kill_children()
    os._exit(0)


if __name__ == "__main__":
    main()
