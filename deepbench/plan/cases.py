"""Lines that ask for cases, and choices → the list of cases. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deepbench.core.backend import all_backends, find_backend
from deepbench.core.case import (
    DIRECTIONS,
    Case,
    Pattern,
    check_settings,
    known_settings,
    parse_pattern,
    run_settings_text,
)
from deepbench.core.errors import BadInput, shorten
from deepbench.core.op import Op, all_ops, find_op
from deepbench.core.precision import find_precision
from deepbench.plan.suites import Entry
from deepbench.results.record import Source


@dataclass(frozen=True)
class Planned:
    """A case, and every line of a suite that asks for it: a problem listed twice is measured once."""

    case: Case
    sources: list[Source]


@dataclass(frozen=True)
class Choices:
    """The filters of the command line; an empty one lets everything through."""

    ops: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    directions: tuple[str, ...] = ()
    applications: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    """Of problems that a group solves; empty: up to `most_ranks`, or the number of cores, where a suite names more."""
    most_ranks: int | None = None
    """As many processes as a launcher has started, None without one."""
    device: str = "cpu"
    """Of the libraries that run where none is named."""
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def expand(entries: Iterable[Entry], choices: Choices, default_threads: int) -> list[Planned]:
    """Every case that the entries, the choices and the support table allow, each once."""
    _check(choices)
    planned: dict[str, Planned] = {}
    known: set[tuple[object, ...]] = set()
    cores = choices.most_ranks or default_threads
    applications = {name.lower() for name in choices.applications}
    for entry in entries:
        application = (entry.source["application"] if entry.source else None) or ""
        if (applications and application.lower() not in applications) or not _ranks_chosen(entry, choices, cores):
            continue
        for case in _cases(entry.pattern, choices, default_threads):
            slot = planned.setdefault(case.text, Planned(case, []))
            if entry.source is not None and (key := (case.text, *entry.source.items())) not in known:
                known.add(key)
                slot.sources.append(entry.source)
            # A case typed in full is that case alone.
            for baseline in _baselines(case, choices) if entry.pattern.backend is None else ():
                planned.setdefault(baseline.text, Planned(baseline, []))
    return list(planned.values())


def _baselines(case: Case, choices: Choices) -> Iterable[Case]:
    """What the case is compared with, on every library that a run would take, whatever op was asked for."""
    unbound = dataclasses.replace(choices, ops=(), directions=(), settings={})
    for text in find_op(case.op).baselines(case):
        pattern = parse_pattern(f"{text} {case.precision.name} threads={case.threads} {run_settings_text(case)}")
        yield from _cases(pattern, dataclasses.replace(unbound, device=find_backend(case.backend).device), case.threads)


def _ranks_chosen(entry: Entry, choices: Choices, cores: int) -> bool:
    """Whether a group is as large as asked for; of a suite's no larger than the cores, unless asked for."""
    if not find_op(entry.pattern.op).is_group:
        return True
    ranks = entry.pattern.problem.ranks
    if choices.ranks:
        return ranks in choices.ranks
    return entry.source is None or choices.device != "cpu" or ranks <= max(2, cores)


def _check(choices: Choices) -> None:
    """`BadInput` for a filter that names what does not exist."""
    for name in choices.ops:
        find_op(name)
    for name in choices.backends:
        find_backend(name)
    for name in choices.precisions:
        find_precision(name)
    for name in choices.directions:
        if name not in DIRECTIONS:
            raise BadInput(f"unknown direction {name!r}; there are {', '.join(DIRECTIONS)}")
    known = {n: v for op in all_ops() for n, v in known_settings(op).items()}
    for name, values in choices.settings.items():
        if name not in known:
            raise BadInput(f"unknown setting {shorten(name)!r}; there are {', '.join(known)}")
        for value in values:
            if value not in known[name]:
                raise BadInput(f"{name} must be one of {', '.join(known[name])}, found {shorten(value)!r}")


def _cases(pattern: Pattern, choices: Choices, default_threads: int) -> Iterable[Case]:
    op = find_op(pattern.op)
    if choices.ops and op.name not in choices.ops:
        return
    default_backends = [name for name, b in all_backends().items() if b.default and b.device == choices.device]
    for direction in _allowed(pattern.direction, choices.directions, op.directions[:1]):
        for precision in _allowed(pattern.precision, choices.precisions, ("f32",)):
            for name in _allowed(pattern.backend, choices.backends, default_backends):
                backend = find_backend(name)
                if not backend.supports(op.name, precision, direction):
                    continue
                # On a device one thread of the host gives the orders, and in a group each rank has one.
                on_cpu = backend.device == "cpu" and not op.is_group
                kind = find_precision(precision)
                idle = op.unused_settings(pattern.problem, direction, kind)
                for threads in _allowed(pattern.threads, choices.threads, (default_threads,)) if on_cpu else (1,):
                    for chosen in dict.fromkeys(_settings(op, pattern, choices, idle)):
                        yield Case(op.name, pattern.problem, direction, kind, name, threads, chosen)


def _allowed(said: Any, chosen: Sequence[Any], default: Sequence[Any]) -> Sequence[Any]:
    """The values to go through: what the pattern says if the filter lets it through, else filter, else default."""
    if said is not None:
        return [said] if not chosen or said in chosen else []
    return chosen or default


def _settings(op: Op, pattern: Pattern, choices: Choices, idle: tuple[str, ...]) -> list[tuple[tuple[str, str], ...]]:
    """Every combination of the chosen settings that this op has, less the idle ones; what the pattern says stays."""
    combinations: list[dict[str, str]] = [dict(pattern.settings)]
    for name, values in choices.settings.items():
        if name in known_settings(op.name) and name not in dict(pattern.settings):
            combinations = [{**c, name: value} for c in combinations for value in values]
    made = [check_settings(op.name, c) for c in combinations]
    return [tuple((n, v) for n, v in chosen if n not in idle) for chosen in made]
