"""A file of another program → a result file: the same cases, its times, and no claim that anybody checked an answer.

A format (`importers/*.py`) says whether a text is its own and what it finds there; here that becomes records. What has
no case of ours (an op, a size, a precision) is told and left out, never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from deepbench import __version__
from deepbench.core import registry
from deepbench.core.case import Case, parse_case, parse_pattern
from deepbench.core.collective import CollectiveOp
from deepbench.core.errors import BadInput
from deepbench.core.json_lines import sanitized
from deepbench.core.op import find_op
from deepbench.plan.modes import DEFAULT
from deepbench.plan.suites import read_suite
from deepbench.results.record import SCHEMA, Source, Status, make_record
from deepbench.results.schema import schema_error

# Files of other programs are small; one that is not is something else.
LARGEST_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Given:
    """What a file does not say and the user may."""

    machine: str | None = None
    library: str | None = None
    """Name and version, such as `cuDNN 7.6`."""
    backend: str | None = None
    threads: int = 1
    """Of the library, where the file does not say."""
    case: str | None = None
    """For programs that know no op: a case in which `{M}` stands for the value of the axis M."""


@dataclass(frozen=True)
class Found:
    """A problem of the file."""

    case: str
    """A case as `deepbench run` takes it, complete."""
    processes_s: Sequence[Sequence[float]]
    """Seconds a call: the samples of each process; of many programs one mean."""
    notes: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    """Why there is no time."""
    wrong: bool = False
    """Whether that is because the program found wrong results."""
    suites: Sequence[str] = ()
    """The original's suites that the program ran, where the file says so."""


@dataclass
class Imported:
    """Everything a file says that can be said in ours."""

    program: str
    """`nccl-tests`; its results are `unchecked`, whatever it checked itself."""
    library: dict[str, Any]
    machine: dict[str, Any] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """What has no case, each with the reason."""


def json_object(text: str, program: str) -> dict[str, Any]:
    """A text as the JSON object that it should be; `BadInput` for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(f"{program}: not JSON; a run that was cut off leaves half a file") from None
    if not isinstance(value, dict):
        raise BadInput(f"{program}: not an object")
    return value


class Format:
    """One format. Subclass, fill in, and end the file with `FORMAT = MyFormat()`."""

    name: str
    """The program."""
    about: str
    """Which of its outputs."""

    def sniff(self, text: str) -> bool:
        """Whether the text is of this format."""
        raise NotImplementedError

    def read(self, text: str, given: Given) -> Imported:
        """What is in it; `BadInput` where something is missing that the user can say."""
        raise NotImplementedError


def formats() -> dict[str, Format]:
    """Every format by its name."""
    return registry.registered("formats")


def recognize(text: str) -> Format:
    """The format of this text; `BadInput` where it is none of ours."""
    for known in formats().values():
        if known.sniff(text):
            return known
    names = ", ".join(f"{f.name} ({f.about})" for f in formats().values())
    raise BadInput(f"this is no result of a program that deepbench reads; it reads {names}")


def read(text: str, given: Given) -> Imported:
    """What is in a text; `BadInput` where it is none of ours, or damaged beyond reading."""
    known = recognize(text)
    try:
        return known.read(text, given)
    except BadInput:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise BadInput(f"{known.name}: damaged beyond reading ({type(error).__name__})") from None


# Times beyond these are no times of a kernel, and no result file may have them.
SHORTEST_S, LONGEST_S = 1e-12, 1e9


def _parsed(imported: Imported) -> list[tuple[Found, Case]]:
    """Every case once: a second time of the same one was measured in another way, which its text does not say."""
    found: dict[str, tuple[Found, Case]] = {}
    for one in imported.found:
        try:
            case = parse_case(one.case)
        except BadInput as error:
            imported.left_out.append(f"{one.case[:80]}: {error}")
            continue
        if case.text in found:
            imported.left_out.append(f"{case.text}: twice in the file, and only the first is kept")
            continue
        processes = [[s for s in samples if SHORTEST_S <= s <= LONGEST_S] for samples in one.processes_s]
        found[case.text] = replace(one, processes_s=[samples for samples in processes if samples]), case
    return list(found.values())


def lines(imported: Imported, given: Given, command: Sequence[str]) -> list[dict[str, Any]]:
    """Header and records of a result file; `BadInput` where nothing could be read."""
    parsed = _parsed(imported)
    if not parsed:
        reason = f": {imported.left_out[0]}" if imported.left_out else ""
        raise BadInput(f"nothing in it could be read as a case{reason}")
    library = {"version": None, "path": None, **imported.library}
    if given.library:
        name, _, version = given.library.rpartition(" ")
        library |= {"name": name or version, "version": version if name else None}
    backends = dict.fromkeys(case.backend for _, case in parsed)
    machine = {"host": None, "cpu": None, **imported.machine}
    if given.machine:
        machine["cpu"] = given.machine
    texts = dict.fromkeys(case.text for _, case in parsed)
    header = {
        "schema": SCHEMA,
        "tool": f"deepbench {__version__}, imported from {imported.program}",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(command),
        "machine": machine,
        "libraries": {name: {"library": library} for name in backends},
        "plan": {
            "cases": [{"case": text, "sources": []} for text in texts],
            "rounds": {"least": 1, "most": 1, "target": DEFAULT.rounds.target, "most_s": DEFAULT.rounds.most_s},
            "mode": "imported",
            "order_seed": 0,
            "timeout_s": 0.001,
            "rules": asdict(DEFAULT.rules),
        },
    }
    made: list[dict[str, Any]] = [sanitized(header)]
    rows = _suite_rows()
    for found, case in parsed:
        for number, samples in enumerate(found.processes_s or [[]], 1):
            line = sanitized(_record(found, case, samples, number, library, imported.program))
            line["sources"] = _sources(found, case, rows)
            if schema_error(line):
                imported.left_out.append(f"{case.text}: {schema_error(line)}")
            else:
                made.append(line)
    return made


_Wanted = dict[tuple[str, Any, str], list[tuple[dict[str, str], Source]]]


def _suite_rows() -> _Wanted:
    """The lines of the original's suites, by op, problem and direction: sums of applications go by them.

    Each with the settings that it asks for.
    """
    found: _Wanted = {}
    for suite in ("deepbench/train", "deepbench/server", "deepbench/device"):
        for entry in read_suite(suite):
            p = entry.pattern
            if entry.source:
                found.setdefault((p.op, p.problem, p.direction or "forward"), []).append(
                    (dict(p.settings), entry.source)
                )
    return found


def _sources(found: Found, case: Case, rows: _Wanted) -> list[Source]:
    sources = []
    for said, source in rows.get((case.op, case.problem, case.direction), []):
        idle = find_op(case.op).unused_settings(case.problem, case.direction, case.precision)
        fits = all(n in idle or case.settings.get(n) == v for n, v in said.items())
        if fits and source not in sources and (not found.suites or source["suite"] in found.suites):
            sources.append(source)
    return sources


def _record(
    found: Found, case: Case, samples: Sequence[float], number: int, library: dict[str, Any], program: str
) -> Any:
    if not samples:
        status: Status = "wrong" if found.wrong else "unsupported"
        failed: Any = make_record(case, number, status, found.reason or f"{program} gives no time")
        return {**failed, "library": library, "notes": {"imported_from": program}}
    reason = f"imported from {program}: nobody here checked the answer"
    line: Any = make_record(case, number, "unchecked", reason)
    line["measurement"] = {
        "samples_s": [float(f"{s:.7g}") for s in samples],
        "calls_per_sample": 1,
        "cpu_s": [None] * len(samples),
        "involuntary_switches": [None] * len(samples),
        "steal_s": [None] * len(samples),
        "first_call_s": None,
        "warm_up_calls": None,
        "warm_up_s": None,
        "stopped": None,
        "loop": None,
    }
    line["library"] = library
    line["process"] = {"duration_s": 0.0}
    line["notes"] = {**found.notes, "imported_from": program}
    op = find_op(case.op)
    if isinstance(op, CollectiveOp):
        line["notes"]["bus_factor"] = op.bus_factor(case.problem)
    return line


def filled(given: Given, name: str, axes: dict[str, str]) -> tuple[str | None, str]:
    """The case of a benchmark of a program that knows no op, or why there is none.

    The template of `--case` with the values of its axes; without one, the name itself where that is a case.
    """
    text = given.case or name
    try:
        text = text.format(**axes) if given.case else text
        pattern = parse_pattern(text)
    except (KeyError, IndexError, ValueError, AttributeError):
        return None, f"--case names an axis that it does not have; it has {', '.join(axes) or 'none'}"
    except BadInput as error:
        remedy = "" if given.case else "; say which with --case, such as --case 'gemm m={M} n={N} k={K} f32 cublas'"
        return None, f"no case of ours ({error}){remedy}"
    backend = pattern.backend or given.backend
    if backend is None:
        return None, "its library is not said; say it in --case or with --backend"
    words = [f"{n}={v}" for n, v in pattern.settings]
    parts = [pattern.op, pattern.problem.text, pattern.direction or "forward", pattern.precision or "f32", backend]
    return " ".join([*parts, f"threads={pattern.threads or given.threads}", *words]), ""
