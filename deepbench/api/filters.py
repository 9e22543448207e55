"""Which cases: suites, files and words, and the filters that choose among them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

from deepbench.core.aliases import did_you_mean
from deepbench.core.case import Case, thread_count, whole_number
from deepbench.core.errors import BadInput, shorten
from deepbench.core.precision import PRECISIONS
from deepbench.machine import describe
from deepbench.plan.cases import Choices, Planned, expand, read_chosen, why_no_line, why_none
from deepbench.plan.fit import for_mode

if TYPE_CHECKING:
    from deepbench.core.backend import Backend
    from deepbench.core.op import Op
    from deepbench.reporting.output import Report

__all__ = [
    "Choice",
    "Choices",
    "Filters",
    "Planned",
    "Suite",
    "What",
    "backends",
    "cases",
    "coverage_report",
    "device_of",
    "interfaces",
    "make_choices",
    "needs_groups",
    "operations",
    "plan_cases",
    "suites",
    "thread_count",
    "whole_number",
    "words_of",
]

What = str | Path | Case
"""The name of a suite or of a folder of suites, a file of problems, a file or folder of workloads of others, a case as
the command takes it (words may be missing), or a Case."""

T = TypeVar("T", str, int)

Choice = str | Iterable[str] | None
"""One word, several, or None for the default."""


class Filters(TypedDict, total=False):
    """What chooses among cases: the keyword arguments that `cases` and `measure` share."""

    ops: Choice
    """Only these operations, such as `conv`."""
    backends: Choice
    """Only these libraries; by default all of the device except frameworks and the reference."""
    precisions: Choice
    """These precisions, or `all`; by default f32, or what the suite says."""
    directions: Choice
    """These directions; by default what the suite says, else forward."""
    applications: Choice
    """Only problems of these applications, such as `Speech Recognition`."""
    threads: int | Iterable[int] | None
    """Numbers of threads; by default all cores that this process may use."""
    ranks: int | Iterable[int] | None
    """Only groups of these sizes."""
    device: str | None
    """`cpu` (the default), or another that a library reaches, such as `cuda`, `cuda:1`, `hip` or `pjrt:tpu`."""
    settings: Mapping[str, Choice] | None
    """Settings of cases, such as `{"weights": ["plain", "packed"]}`, and parameters of models, such as
    `{"phase": "decode", "batch": "8"}`."""
    fit: str | None
    """Replace problems of suites that need more than this, such as `4GiB` or `4GiB+20GFLOP`, by smaller ones of their
    kind."""
    with_parts: bool
    """Also the parts of every case whose work can be done piece by piece, such as the products and the recurrence of a
    recurrent layer with a wide input."""


def cases(what: What | Iterable[What] = "quick", **filters: Unpack[Filters]) -> list[Case]:
    """The cases that a suite, a file or a typed case stands for, without measuring them.

    Args:
        what: what to expand, or several such things.
        filters: which of them; see `Filters`.

    Raises `BadInput` for a word that is unknown, and where no case is left.
    """
    return [p.case for p in plan_cases(what, make_choices(**filters))]


def plan_cases(what: What | Iterable[What], choices: Choices) -> list[Planned]:
    """Cases with the lines of suites that ask for them; `BadInput` where none is left."""
    words, threads = words_of(what), describe.default_threads()
    entries, left = read_chosen(words, choices)
    planned = expand(entries, left, threads)
    if not planned:
        raise BadInput(why_none(entries, left, threads) if entries else why_no_line(words, choices))
    return planned


def make_choices(mode: str | None = None, most_ranks: int | None = None, **filters: Unpack[Filters]) -> Choices:
    """The filters as one value. In the mode `quick`, `fit` has a tighter limit; `most_ranks` limits groups."""
    from deepbench.core import devices
    from deepbench.core.case import device_backends

    if unknown := filters.keys() - Filters.__annotations__.keys():
        name = min(unknown)
        raise TypeError(f"{name} is no filter of cases{did_you_mean(name, Filters.__annotations__)}")
    on = filters.get("device")
    place = devices.parse(on, device_backends()) if on else devices.Wanted(devices.CPU, None)
    chosen = _several(filters.get("backends"))
    if place.backend is not None and chosen not in ((), (place.backend,)):
        raise BadInput(f"the device {shorten(on or '')!r} is reached by {place.backend}, not by {', '.join(chosen)}")
    wanted, fit = _several(filters.get("precisions")), filters.get("fit")
    return Choices(
        ops=_several(filters.get("ops")),
        backends=chosen or ((place.backend,) if place.backend is not None else ()),
        precisions=tuple(PRECISIONS) if "all" in wanted else wanted,
        directions=_several(filters.get("directions")),
        applications=_several(filters.get("applications")),
        threads=_several(filters.get("threads")),
        ranks=_several(filters.get("ranks")),
        most_ranks=most_ranks,
        device=place.device,
        settings={name: _several(values) for name, values in (filters.get("settings") or {}).items()},
        fit=None if fit is None else for_mode(fit, mode),
        with_parts=filters.get("with_parts", False),
    )


def operations() -> dict[str, Op]:
    """All operations by name."""
    from deepbench.core.op import all_ops

    return dict(all_ops())


def backends() -> dict[str, Backend]:
    """All libraries by name, whether or not they are installed."""
    from deepbench.core.backend import all_backends

    return dict(all_backends())


def interfaces() -> list[str]:
    """The backends that reach devices of several kinds, such as `pjrt`."""
    from deepbench.core.backend import all_device_backends

    return list(all_device_backends())


def device_of(backend: str) -> str:
    """The usual device of a library, such as `cpu` or `cuda`. `BadInput` for an unknown library."""
    from deepbench.core.backend import find_backend

    return find_backend(backend).device


class Suite(TypedDict):
    """A list of problems by name."""

    group: str
    name: str
    problems: int
    phases: list[str]
    """Of a model: each with its parameters."""


def suites() -> list[Suite]:
    """All suites, with the number of their problems."""
    from deepbench.plan.suites import phases_of, read_suite, suite_groups

    found: list[Suite] = []
    for group, names in suite_groups().items():
        for name in names:
            phases = list(phases_of(name))
            parts = [f"{name}:phase={phase}" for phase in phases] or [name]
            entries = [entry for part in parts for entry in read_suite(part)]
            problems = {(e.pattern.op, e.pattern.problem) for e in entries}
            found.append({"group": group, "name": name, "problems": len(problems), "phases": phases})
    return found


def _several(values: T | Iterable[T] | None) -> tuple[T, ...]:
    return () if values is None else (values,) if isinstance(values, str | int) else tuple(dict.fromkeys(values))


def needs_groups(planned: Iterable[Planned]) -> bool:
    """Whether some case is measured by several processes together."""

    return any(p.case.operation.is_group for p in planned)


def coverage_report(name: str) -> Report:
    """The definitions of a folder or file of workloads of others: their operation, or why there is none.

    As JSON, one object per line.
    """
    from deepbench.core.json_lines import sanitized
    from deepbench.plan.suites import coverage
    from deepbench.reporting.output import Report
    from deepbench.reporting.workloads import coverage_rows, coverage_table

    found = coverage(name)
    report = Report.of_table(coverage_table(found))
    lines = (json.dumps(sanitized(row), ensure_ascii=False) + "\n" for row in coverage_rows(found))
    return replace(report, forms={**report.forms, "json": lambda: "".join(lines)})


def words_of(what: What | Iterable[What]) -> list[str]:
    """What to measure, as the words of the command."""
    if isinstance(what, Case):
        return [what.text]
    if isinstance(what, str | Path):
        return [str(what)]
    return [word for one in what for word in words_of(one)]
