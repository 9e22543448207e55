"""The cases of a result file as other programs want them: plain numbers, with what says how far to trust each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepbench.core.json_lines import printable
from deepbench.results.file import ResultFile
from deepbench.results.record import Check
from deepbench.results.summary import Summary, process_time_s, summarize


@dataclass(frozen=True)
class ExportedCase:
    """One case of one file."""

    text: str
    """Of the case."""
    operation: str
    title: str
    """Of the problem, for people: `1760 × 128 × 1760 NN`."""
    problem: Mapping[str, int | str]
    settings: Mapping[str, str]
    direction: str
    precision: str
    types: Mapping[str, str]
    """Of the arrays, by their names."""
    device: str
    threads: int
    backend: str
    library: str | None
    version: str | None
    """Of the library."""
    status: str
    reason: str | None
    time_s: float | None
    """Seconds per call; an upper bound where it is disturbed. None: the case has no time that counts."""
    low_s: float | None
    high_s: float | None
    """The 95 % confidence interval of the time."""
    disturbed: bool
    """Whether other programs disturbed it."""
    processes_s: tuple[float, ...]
    """Seconds per call in each process."""
    flop: int | None
    error: float | None
    """The largest error of the checked result, in tolerances."""
    worst: tuple[float, float] | None
    """The value with this error, and what it should be."""

    @property
    def is_certain(self) -> bool:
        """Whether a conclusion may rest on its time: checked, and not disturbed."""
        return self.time_s is not None and not self.disturbed


@dataclass(frozen=True)
class ExportedFile:
    """One result file."""

    name: str
    """Of the file, without its suffix."""
    started: str
    """Moment in UTC, as ISO 8601 has it."""
    tool: str
    machine: str
    """The processor, as the file names it."""
    host: str | None
    architecture: str | None
    cases: list[ExportedCase]


def exported(file: ResultFile) -> ExportedFile:
    """The content of a checked result file, whose reader has escaped the texts in it."""
    machine: Mapping[str, Any] = file.header.get("machine") or {}
    return ExportedFile(
        name=printable(file.path.name.removesuffix(".gz").removesuffix(".jsonl")),
        started=file.header["started"],
        tool=file.header["tool"],
        machine=str(machine.get("cpu") or "unknown"),
        host=str(machine["host"]) if machine.get("host") else None,
        architecture=str(machine["architecture"]) if machine.get("architecture") else None,
        cases=[_case(s) for s in summarize(file.records)],
    )


def _worst(check: Check | None) -> tuple[float, float] | None:
    got, want = (check.get("got"), check.get("want")) if check else (None, None)
    return None if got is None or want is None else (got, want)


def _case(s: Summary) -> ExportedCase:
    r, e = s.record, s.estimate if s.is_ranked else None
    library, check = r["library"], r["check"]["after"] or r["check"]["before"]
    return ExportedCase(
        text=r["case"],
        operation=r["op"],
        title=s.problem_title,
        problem=dict(r["problem"]),
        settings={name: str(value) for name, value in r["settings"].items()},
        direction=r["direction"],
        precision=r["precision"],
        types=dict(r["types"]),
        device=r["device"],
        threads=r["threads"],
        backend=r["backend"],
        library=library["name"] if library else None,
        version=library["version"] if library and library["version"] else None,
        status=s.status,
        reason=r["reason"],
        time_s=e.time_s if e else None,
        low_s=e.low_s if e else None,
        high_s=e.high_s if e else None,
        disturbed=s.is_disturbed,
        processes_s=tuple(process_time_s(m) for m in s.used_rounds if m["measurement"]) if e else (),
        flop=r["flop"],
        error=check["error"] if check else None,
        worst=_worst(check),
    )
