"""A file of another program → a result file: the same cases, its times, and no claim that anybody checked an answer.

A format (`importers/*.py`) says whether a text is its own and what it finds there; here that becomes records. What has
no case of ours (an op, a size, a precision) is told and left out, never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from deepbench import __version__, discover, measure, plan, record
from deepbench import case as cases
from deepbench import op as ops
from deepbench.collective import CollectiveOp
from deepbench.errors import BadInput

# Files of other programs are small; one that is not is something else.
LARGEST_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Given:
    """What a file does not say and the user may."""

    machine: str | None = None
    library: str | None = None
    """Name and version, such as `cuDNN 7.6`."""
    backend: str | None = None
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


@dataclass
class Imported:
    """Everything a file says that can be said in ours."""

    program: str
    """`nccl-tests`; results are `unchecked` unless the program checked them, which it then says."""
    library: dict[str, Any]
    machine: dict[str, Any] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """What has no case, each with the reason."""


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
    return discover.named("importers", "FORMAT")


def recognize(text: str) -> Format:
    """The format of this text; `BadInput` where it is none of ours."""
    for known in formats().values():
        if known.sniff(text):
            return known
    names = ", ".join(f"{f.name} ({f.about})" for f in formats().values())
    raise BadInput(f"this is no result of a program that deepbench reads; it reads {names}")


def lines(imported: Imported, given: Given, command: Sequence[str]) -> list[dict[str, Any]]:
    """Header and records of a result file; `BadInput` where nothing could be read."""
    if not imported.found:
        reason = f": {imported.left_out[0]}" if imported.left_out else ""
        raise BadInput(f"nothing in it could be read as a case{reason}")
    library = {"version": None, "path": None, **imported.library}
    if given.library:
        name, _, version = given.library.rpartition(" ")
        library |= {"name": name or version, "version": version if name else None}
    parsed = [(found, cases.parse(found.case)) for found in imported.found]
    backends = dict.fromkeys(case.backend for _, case in parsed)
    machine = {"host": None, "cpu": None, **imported.machine}
    if given.machine:
        machine["cpu"] = given.machine
    texts = dict.fromkeys(case.text for _, case in parsed)
    header = {
        "schema": record.SCHEMA,
        "tool": f"deepbench {__version__}, imported from {imported.program}",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(command),
        "machine": machine,
        "libraries": {name: {"library": library} for name in backends},
        "plan": {
            "cases": [{"case": text, "sources": []} for text in texts],
            "rounds": {"least": 1, "most": 1, "target": plan.DEFAULT.target, "most_s": plan.DEFAULT.most_s},
            "mode": "imported",
            "order_seed": 0,
            "timeout_s": 0.001,
            "rules": asdict(measure.DEFAULT),
        },
    }
    made: list[dict[str, Any]] = [record.cleaned(header)]
    rounds: dict[str, int] = {}
    for found, case in parsed:
        for samples in found.processes_s or [[]]:
            rounds[case.text] = rounds.get(case.text, 0) + 1
            made.append(record.cleaned(_record(found, case, samples, rounds[case.text], library, imported.program)))
    return made


def _record(
    found: Found, case: cases.Case, samples: Sequence[float], number: int, library: dict[str, Any], program: str
) -> dict[str, Any]:
    if not samples:
        failed = record.make(case, number, "unsupported", found.reason or f"{program} gives no time")
        return {**failed, "library": library, "notes": {"imported_from": program}}
    reason = f"imported from {program}: nobody here checked the answer"
    line = record.make(case, number, "unchecked", reason)
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
    op = ops.find(case.op)
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
        pattern = cases.parse_pattern(text)
    except (KeyError, IndexError, ValueError, AttributeError):
        return None, f"--case names an axis that it does not have; it has {', '.join(axes) or 'none'}"
    except BadInput as error:
        remedy = "" if given.case else "; say which with --case, such as --case 'gemm m={M} n={N} k={K} f32 cublas'"
        return None, f"no case of ours ({error}){remedy}"
    backend = pattern.backend or given.backend
    if backend is None:
        return None, "its library is not said; say it in --case or with --backend"
    words = [f"{n}={v}" for n, v in pattern.said]
    parts = [pattern.op, pattern.problem.text, pattern.direction or "forward", pattern.precision or "f32", backend]
    return " ".join([*parts, f"threads={pattern.threads or 1}", *words]), ""
