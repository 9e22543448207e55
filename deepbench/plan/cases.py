"""Lines that ask for cases, and choices → the list of cases. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deepbench.core.aliases import did_you_mean, refuse_unknown
from deepbench.core.backend import all_backends, find_backend
from deepbench.core.case import (
    DIRECTIONS,
    Case,
    Pattern,
    check_settings,
    device_of_case,
    known_settings,
    parse_pattern,
    run_settings_text,
)
from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.core.op import Op, all_ops, find_op
from deepbench.core.precision import find_precision
from deepbench.core.shell import command
from deepbench.core.words import join
from deepbench.plan.suites import (
    FIT,
    Entry,
    left_out_of_words,
    parameters_of_words,
    read_words,
    split_name,
    suite_files,
)
from deepbench.results.record import Source

# The library that serves whatever an operation allows: NumPy in float64. It does not compete.
REFERENCE = "reference"


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
    """Settings of cases, and parameters of suites."""
    fit: str | None = None
    """What a case of a suite may need, such as `4GiB` or `4GiB+20GFLOP`; larger ones are replaced by smaller twins."""
    with_parts: bool = False
    """Whether the parts of every case that has some are measured too; see `Op.components`."""


def read_chosen(words: Sequence[str], choices: Choices) -> tuple[list[Entry], Choices]:
    """The lines that words ask for, and the choices without those settings that are parameters of the suites."""
    parameters, choices = _split(words, choices)
    return read_words(words, parameters), choices


def _split(words: Sequence[str], choices: Choices) -> tuple[dict[str, tuple[str, ...]], Choices]:
    """The parameters of suites among the settings, and the choices without them."""
    known = parameters_of_words(words)
    parameters = {name: values for name, values in choices.settings.items() if name in known}
    settings = {name: values for name, values in choices.settings.items() if name not in known}
    of_ops = {name for op in all_ops() for name in known_settings(op)}
    if known and (unknown := [name for name in settings if name not in of_ops]):
        hint = did_you_mean(unknown[0], (*known, *of_ops))
        there_are = f"parameters of these suites are {', '.join(known)}; settings are {', '.join(sorted(of_ops))}"
        raise BadInput(f"unknown parameter or setting {shorten(unknown[0])!r}; {there_are}{hint}")
    if choices.fit is not None:
        parameters[FIT] = (choices.fit,)
    return parameters, dataclasses.replace(choices, settings=settings)


def expand(entries: Iterable[Entry], choices: Choices, default_threads: int) -> list[Planned]:
    """Every case that the entries, the choices and the support table allow, each once."""
    check_choices(choices)
    planned: dict[str, Planned] = {}
    known: set[tuple[object, ...]] = set()
    for entry in _chosen(entries, choices, default_threads):
        if entry.pattern.backend is not None:
            _require_device(entry, entry.pattern.backend, choices, default_threads)
        for case in _cases(entry.pattern, choices, default_threads, entry.precision, entry.settings):
            slot = planned.setdefault(case.text, Planned(case, []))
            source = _stating_precision(entry, case)
            if source is not None and (key := (case.text, *source.items())) not in known:
                known.add(key)
                slot.sources.append(source)
            # A case typed in full is that case alone.
            for baseline in _baselines(case, choices) if entry.pattern.backend is None else ():
                planned.setdefault(baseline.text, Planned(baseline, []))
            for part in case.operation.components(case) if choices.with_parts else ():
                if find_backend(part.backend).supports(part.op, part.precision.name, part.direction):
                    planned.setdefault(part.text, Planned(part, []))
    return list(planned.values())


def _stating_precision(entry: Entry, case: Case) -> Source | None:
    """The source of an entry; its note says where the list has another precision than the case."""
    if entry.source is None or entry.precision in (None, case.precision.name):
        return entry.source
    words = [entry.source["note"], f"{case.precision.name} ({entry.precision} there)"]
    return {**entry.source, "note": "; ".join(filter(None, words))}


def _baselines(case: Case, choices: Choices) -> Iterable[Case]:
    """What the case is compared with, on every library that a run would take, whatever op was asked for."""
    unbound = dataclasses.replace(choices, ops=(), directions=(), settings={})
    for text in case.operation.baselines(case):
        pattern = parse_pattern(f"{text} {case.precision.name} threads={case.threads} {run_settings_text(case)}")
        yield from _cases(pattern, dataclasses.replace(unbound, device=case.device), case.threads)


def _chosen(entries: Iterable[Entry], choices: Choices, default_threads: int) -> Iterator[Entry]:
    """The entries that the filters for applications and ranks let through."""
    cores = choices.most_ranks or default_threads
    applications = {name.lower() for name in choices.applications}
    for entry in entries:
        if (not applications or application_of(entry).lower() in applications) and _ranks_chosen(entry, choices, cores):
            yield entry


def application_of(entry: Entry) -> str:
    """The application of a line; empty: none."""
    return (entry.source["application"] if entry.source else None) or ""


def _ranks_chosen(entry: Entry, choices: Choices, cores: int) -> bool:
    """Whether a group is as large as asked for; of a suite's no larger than the cores, unless asked for."""
    if not find_op(entry.pattern.op).is_group:
        return True
    ranks = entry.pattern.problem.ranks
    if choices.ranks:
        return ranks in choices.ranks
    return entry.source is None or choices.device != "cpu" or ranks <= max(2, cores)


def check_choices(choices: Choices) -> None:
    """`BadInput` for a filter that names what does not exist."""
    for name in choices.ops:
        find_op(name)
    for name in choices.backends:
        find_backend(name)
    for name in choices.precisions:
        find_precision(name)
    refuse_unknown(choices.directions, DIRECTIONS, "unknown direction", "there are")
    known: dict[str, dict[str, None]] = {}  # operations may have settings of one name with different values
    for op in all_ops():
        for name, values in known_settings(op).items():
            known.setdefault(name, {}).update(dict.fromkeys(values))
    refuse_unknown(choices.settings, known, "unknown setting", "there are")
    for name, values in choices.settings.items():
        for value in values:
            if value not in known[name]:
                raise BadInput(f"{name} must be one of {', '.join(known[name])}, found {shorten(value)!r}")


def _require_device(entry: Entry, library: str, choices: Choices, default_threads: int) -> None:
    """`BadInput` where a device is asked for, and a line names a library that runs on another."""
    named, device = find_backend(library), choices.device
    if device == "cpu" or named.reaches(device):
        return
    if entry.source is None:
        raise BadInput(
            f"--device {device} asks for libraries of {device}, but a case names {library}, which runs on "
            f"{named.device}; choose cases that name no library, or leave out --device"
        )
    suite = split_name(entry.source["suite"])[0]
    others = [name for name in dict.fromkeys((f"{suite}-gpu", "gpu")) if name in suite_files() and name != suite]
    can = [name for name in others if expand(read_words([name]), Choices(device=device), default_threads)]
    instead = f"the suite {can[0]} can serve {device}" if can else "choose a suite that names no library"
    raise BadInput(
        f"the suite {shorten(suite)} cannot serve --device {device}: it names {library}, which runs on "
        f"{named.device}; {instead}"
    )


def _cases(
    pattern: Pattern,
    choices: Choices,
    default_threads: int,
    listed: str | None = None,
    settings: tuple[tuple[str, str], ...] = (),
) -> Iterable[Case]:
    """The cases of a line; `listed` and `settings` are its precision and settings where none are chosen."""
    op = find_op(pattern.op)
    for direction, precision, name in works_of(pattern, choices, listed):
        backend = find_backend(name)
        if not backend.supports(op.name, precision, direction):
            continue
        device = pattern.device or (choices.device if backend.reaches(choices.device) else backend.device)
        # On a device one thread of the host gives the orders, and in a group each rank has one.
        on_cpu = device == "cpu" and not op.is_group
        kind = find_precision(precision)
        idle = op.unused_settings(pattern.problem, direction, kind)
        for threads in _allowed(pattern.threads, choices.threads, (default_threads,)) if on_cpu else (1,):
            for chosen in dict.fromkeys(settings_of(op, pattern, choices, idle, dict(settings))):
                on = device_of_case(name, device)
                yield Case(op.name, pattern.problem, direction, kind, name, threads, chosen, on)


def works_of(pattern: Pattern, choices: Choices, listed: str | None) -> Iterator[tuple[str, str, str]]:
    """Direction, precision and library of each case that is asked for, whether or not the library serves it."""
    op = find_op(pattern.op)
    if choices.ops and op.name not in choices.ops:
        return
    default_backends = [name for name, b in all_backends().items() if b.is_default_on(choices.device)]
    for direction in _allowed(pattern.direction, choices.directions, op.directions[:1]):
        for precision in _allowed(pattern.precision, choices.precisions, (listed or "f32",)):
            for name in _allowed(pattern.backend, choices.backends, default_backends):
                yield direction, precision, name


def _allowed(said: Any, chosen: Sequence[Any], default: Sequence[Any]) -> Sequence[Any]:
    """The values to go through: what the pattern says if the filter lets it through, else filter, else default."""
    if said is not None:
        return [said] if not chosen or said in chosen else []
    return chosen or default


def settings_of(
    op: Op, pattern: Pattern, choices: Choices, idle: tuple[str, ...], listed: Mapping[str, str]
) -> list[tuple[tuple[str, str], ...]]:
    """Every combination of the chosen settings that this op has, less the idle ones; what the pattern says stays.

    What is `listed` holds where neither the pattern nor a choice says it.
    """
    combinations: list[dict[str, str]] = [dict(pattern.settings)]
    for name, values in choices.settings.items():
        if name in known_settings(op.name) and name not in dict(pattern.settings):
            own = [value for value in values if value in known_settings(op.name)[name]]
            combinations = [{**c, name: value} for c in combinations for value in own]
    made = [check_settings(op.name, {**listed, **c}) for c in combinations]
    return [tuple((n, v) for n, v in chosen if n not in idle) for chosen in made]


# ---- where no case is left


def why_no_line(words: Sequence[str], choices: Choices) -> str:
    """Why the suites among these words ask for no case at all, in a sentence."""
    parameters, _ = _split(words, choices)
    out = left_out_of_words(words, parameters)
    if not out:
        return "no case is left: no kernel is called in what was asked for"
    kernels = "the only kernel" if len(out) == 1 else f"none of the {len(out)} kernels"
    cannot = "cannot be measured" if len(out) == 1 else "can be measured"
    first = shorten(printable(out[0].kernel))
    return f"no case is left: {kernels} {cannot}; {'' if len(out) == 1 else 'the first, '}{first}: {out[0].reason}"


def why_none(entries: Sequence[Entry], choices: Choices, default_threads: int) -> str:
    """Why no case is left of what was asked for, and what to do next, in a sentence."""
    asked = [
        (e.pattern, *work)
        for e in _chosen(entries, choices, default_threads)
        for work in works_of(e.pattern, choices, e.precision)
    ]
    if not asked or any(find_backend(name).supports(p.op, kind, direction) for p, direction, kind, name in asked):
        return f"no case is left: {why_nothing_passes(entries, choices)}"
    works = list(dict.fromkeys((p.op, precision, direction) for p, direction, precision, _ in asked))
    op, precision, direction = works[0]
    if not any(way in find_op(name).directions for name, _, way in works):
        return f"no case is left: {op} has no direction {direction}; it has {', '.join(find_op(op).directions)}"
    more = f" (and {len(works) - 1} more)" if len(works) > 1 else ""
    names = list(dict.fromkeys(name for *_, name in asked))
    is_typed = any(p.backend is not None for p, *_ in asked)
    is_named = is_typed or bool(choices.backends)
    who = f"{join(names)} {_verb(names)} not serve" if is_named else f"no default library for {choices.device} serves"
    others = [
        (name, b.device)
        for name, b in all_backends().items()
        if b.computes and name != REFERENCE and any(b.supports(*work) for work in works)
    ]
    devices = {find_backend(name).device for name in names}
    near = [name for name, device in others if device in devices]
    sentences = [f"no case is left: {who} {op} {direction} in {precision}{more}"]
    if near:
        how = f"type {near[0]} instead" if is_typed else f"use --backend {','.join(near)}"
        sentences.append(f"{join(near)} {_verb(near)}: {how}")
    else:
        far = [f"{name} (--device {device})" for name, device in others]
        if far:
            sentences.append(f"on other devices {join(far)} {_verb(far)}")
        example = (
            with_reference(case)
            for p, *_ in asked
            for case in _cases(dataclasses.replace(p, backend=REFERENCE), _on_reference(choices), default_threads)
        )
        words = next(filter(None, example), None)
        sentences.append(f"the float64 reference does: {words}" if words else "see deepbench info --matrix")
    return "; ".join(sentences)


def with_reference(case: Case) -> str | None:
    """The command that runs a case with the float64 reference; None where that does not serve it."""
    if not find_backend(REFERENCE).supports(case.op, case.precision.name, case.direction):
        return None
    return command("run", *dataclasses.replace(case, backend=REFERENCE, named_device=None).text.split())


def _on_reference(choices: Choices) -> Choices:
    return dataclasses.replace(choices, backends=(REFERENCE,))


def why_nothing_passes(entries: Sequence[Entry], choices: Choices) -> str:
    """Which filters contradict each other or what was asked for."""
    known = list(dict.fromkeys(filter(None, map(application_of, entries))))
    unknown = [name for name in choices.applications if name.lower() not in {k.lower() for k in known}]
    if unknown and len(unknown) == len(choices.applications):
        there_are = f"there are {', '.join(known)}" if known else "only problems of suites have one"
        return f"no problem is of the application {shorten(unknown[0])!r}; {there_are}{did_you_mean(unknown[0], known)}"
    filters = {
        **{"op": choices.ops, "backend": choices.backends, "precision": choices.precisions},
        **{"direction": choices.directions, "application": choices.applications},
        **{"threads": tuple(map(str, choices.threads)), "ranks": tuple(map(str, choices.ranks))},
    }
    given = [f"--{name} {','.join(values)}" for name, values in filters.items() if values]
    if not given:
        return "every group asked for has more ranks than this process has cores; choose smaller ones with --ranks N"
    out = "it" if len(given) == 1 else "one of them"
    return f"nothing that was asked for passes {' and '.join(given)}; leave {out} out"


def _verb(names: Sequence[str]) -> str:
    return "does" if len(names) == 1 else "do"
