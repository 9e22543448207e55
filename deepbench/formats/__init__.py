"""Formats of other programs: one file per format, and what all formats share.

A format to import (`Format`) recognizes a text as its own and extracts cases and times from it; here, these become the
records of a result file. Answers were not checked by deepbench, so these records are `unchecked`. Whatever has no
corresponding case is reported and skipped. A format to export (`ExportFormat`) writes our results for another program.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

from deepbench.core import registry, units
from deepbench.core.aliases import did_you_mean
from deepbench.core.case import Case, parse_case, parse_pattern
from deepbench.core.errors import BadInput, shorten
from deepbench.core.foreign_text import plain_lines, read_text, without_colors
from deepbench.core.json_lines import sanitized
from deepbench.core.version import VERSION
from deepbench.plan.modes import DEFAULT
from deepbench.plan.suites import read_suite
from deepbench.results.exported import ExportedCase, ExportedFile
from deepbench.results.file import Store
from deepbench.results.record import SCHEMA, Header, LibraryFacts, Record, Source, make_record
from deepbench.results.schema import schema_error

# Outputs of programs that measure all suites have some 100 kB and some thousand cases.
LARGEST_BYTES = 8 * 2**20
MOST_CASES = 10_000

# Of a folder: the reports of a simulator about each layer.
MOST_FILES, LARGEST_FOLDER_BYTES = 20_000, 64 * 2**20
MOST_TIMES = 500_000

# Of programs that write lines of text; the longest of real outputs have some hundreds of characters.
MOST_CHARACTERS = 10_000

# Times outside these bounds are not those of a kernel, and the schema of result files rejects them.
SHORTEST_S, LONGEST_S = 1e-12, 1e9

# The suites of the original DeepBench: their rows say to which application a case belongs.
SUITES = ("deepbench/train", "deepbench/server", "deepbench/device")


@dataclass(frozen=True)
class ImportOptions:
    """What the user adds if the file does not say it."""

    machine: str | None = None
    library: str | None = None
    """Name and version, such as `cuDNN 7.6`."""
    backend: str | None = None
    threads: int | None = None
    """Threads of the library; None: not given, and counted as one."""
    case: str | None = None
    """A template for programs that do not know operations: `{M}` stands for the value of axis M."""
    problems: str | None = None
    """The text of the counts.json of the export that was simulated, or that ran on a phone."""
    clock_hz: float | None = None
    """Of simulators: how many cycles a second has."""
    path: str = ""
    """Of the file; layers may be called after it."""


@dataclass(frozen=True)
class ImportedCase:
    """One case of the file."""

    text: str
    """The complete text of the case."""
    processes_s: Sequence[Sequence[float]]
    """Seconds per call: the samples of each process. Many programs give only one mean."""
    notes: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    """Why there is no time."""
    wrong: bool = False
    """Whether there is no time because the program found wrong results."""
    suites: Sequence[str] = ()
    """The suites of the original that the program ran, if the file says so; otherwise all are considered."""
    name: str | None = None
    """What the file calls it, where that is not the text of the case."""
    sources: Sequence[Source] | None = None
    """The rows of suites that ask for it. None: those of the original's suites with this problem."""
    process_notes: Sequence[Mapping[str, Any]] = ()
    """What else is known of each process, in their order; empty: nothing."""
    states_threads: bool = False
    """Whether the file says how many threads there were."""


class _Few(list[Any]):
    """A list that a format fills while it reads; `BadInput` ends the reading when there are too many."""

    def append(self, value: Any) -> None:
        super().append(value)
        self._require_few()

    def __iadd__(self, values: Iterable[Any]) -> Self:  # type: ignore[misc]
        super().extend(values)
        self._require_few()
        return self

    def _require_few(self) -> None:
        if len(self) > MOST_CASES:
            raise BadInput(f"the file has more than {MOST_CASES} cases; at most so many are imported at once")


@dataclass
class ImportedFile:
    """The contents of the file."""

    program: str
    library: str
    version: str | None = None
    host: str | None = None
    cpu: str | None = None
    facts: dict[str, str] = field(default_factory=dict)
    """What else it says about the machine and the measurement, such as `timer`; names as in the header."""
    cases: list[ImportedCase] = field(default_factory=_Few)
    left_out: list[str] = field(default_factory=_Few)
    """What was skipped, each with the reason."""
    remarks: list[str] = field(default_factory=list)
    """What was assumed."""


class Format(ABC):
    """One format. Subclass it, and end the file with `FORMAT = MyFormat()`."""

    name: str
    """The program."""
    about: str
    """Which of its outputs."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Of its files, where a folder has one for each layer or case; empty: a file has everything."""
    is_plain: ClassVar[bool] = True
    """Whether it reads lines without what launchers put before them, which may look like the beginning of its own."""
    uses: ClassVar[tuple[str, ...]] = ()
    """Which of `problems`, `clock` and `case` it needs; others are refused."""

    def refuse_unused(self, options: ImportOptions) -> None:
        """`BadInput` for an option that the format does not use: it would be ignored."""
        given = {"problems": options.problems, "clock": options.clock_hz, "case": options.case}
        for name, value in given.items():
            if value is not None and name not in self.uses:
                raise BadInput(f"--{name} says nothing about results of {self.name}; leave it out")

    @abstractmethod
    def matches(self, text: str) -> bool:
        """Whether the text has this format."""

    @abstractmethod
    def read(self, text: str, options: ImportOptions) -> ImportedFile:
        """The cases in the text; `BadInput` if it lacks something that `options` can provide."""

    def read_files(self, texts: Mapping[str, str], options: ImportOptions) -> ImportedFile:
        """The cases in the files of a folder, by path."""
        raise BadInput(f"{self.name} has all cases in one file; name it")


@dataclass(frozen=True)
class ExportOptions:
    """What the user adds: the state of the code that was measured; None where it is not given."""

    output: str = "results"
    """The path of the output, as files that name each other write it."""
    commit: str | None = None
    branch: str | None = None
    repository: str | None = None
    """`owner/name`."""


@dataclass
class Export:
    """What a format has written."""

    texts: dict[str, str]
    """By the name of each file, relative to the output; `""` is the output itself."""
    left_out: list[str] = field(default_factory=list)
    """Cases that are not in it, each with the reason."""


class ExportFormat(ABC):
    """A format that another program reads. Subclass it, and end the file with `FORMAT = MyFormat()`."""

    name: str
    """As `deepbench export --to` has it."""
    about: str
    """Which program reads it, and as what."""
    suffix: str
    """Of the output; empty: the output is a folder, or several files that begin with its name."""
    takes_several = False
    """Whether it has a place for several result files, from the earliest to the latest."""

    @abstractmethod
    def write_results(self, files: Sequence[ExportedFile], options: ExportOptions) -> Export:
        """The text of the output. What the format cannot mark as disturbed is left out."""

    def certain(self, file: ExportedFile, export: Export) -> Iterator[tuple[ExportedCase, float]]:
        """Cases on whose time a conclusion may rest, with this time; the others are put among those left out."""
        for case in file.cases:
            if case.time_s is None:
                export.left_out.append(f"{case.text}: {case.reason or case.status}")
            elif case.disturbed:
                export.left_out.append(f"{case.text}: other programs disturbed it, and the format has no mark for that")
            else:
                yield case, case.time_s


def formats() -> dict[str, Format]:
    """All formats to import, by name."""
    return {name: found for name, found in registry.registered("formats").items() if isinstance(found, Format)}


def export_formats() -> dict[str, ExportFormat]:
    """All formats to export, by name."""
    return {name: found for name, found in registry.registered("formats").items() if isinstance(found, ExportFormat)}


def find_export_format(name: str) -> ExportFormat:
    """The format to export with this name; `BadInput` for any other word."""
    known = export_formats()
    if name not in known:
        raise BadInput(f"--to is {', '.join(known)}, found {shorten(name)}{did_you_mean(name, list(known))}")
    return known[name]


def recognize(text: str) -> Format:
    """The format of this text; `BadInput` if no format matches."""
    for candidate in formats().values():
        if candidate.matches(text):
            return candidate
    names = ", ".join(f"{f.name} ({f.about})" for f in formats().values())
    raise BadInput(f"unknown format; deepbench reads results of {names}")


def read(text: str, options: ImportOptions) -> ImportedFile:
    """The cases in a text; `BadInput` if its format is unknown or it is damaged."""
    is_json = text.lstrip()[:1] == "{"
    whole, text = text, text if is_json else plain_lines(text)
    known = recognize(text)
    known.refuse_unused(options)
    others = [] if is_json else [f for f in formats().values() if f is not known and f.matches(text)]
    try:
        imported = known.read(text if known.is_plain else without_colors(whole), options)
        imported.left_out += [f"results of {other.name}: put them into a file of their own" for other in others]
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise BadInput(f"{known.name}: the file is damaged ({type(error).__name__})") from None
    processes = sum(len(case.processes_s) for case in imported.cases)
    times = sum(len(samples) for case in imported.cases for samples in case.processes_s)
    for what, count, most in (("processes", processes, MOST_CASES), ("times", times, MOST_TIMES)):
        if count > most:
            raise BadInput(f"{known.name}: the file has {count} {what}; at most {most} are imported at once")
    imported.left_out = [*imported.left_out]
    return imported


def read_folder(folder: Path, options: ImportOptions) -> ImportedFile:
    """The cases in a folder where a simulator wrote one file for each layer; others in it do not count."""
    known = [found for found in formats().values() if found.suffixes]
    texts: dict[str, dict[str, str]] = {}
    size = 0
    paths = list(islice(folder.rglob("*"), MOST_FILES + 1))
    if len(paths) > MOST_FILES:
        raise BadInput(f"{folder} has more than {MOST_FILES} files; at most so many are imported at once")
    for path in sorted(paths):
        for found in known:
            if path.name.endswith(found.suffixes) and path.is_file():
                text = plain_lines(read_text(path, LARGEST_BYTES, "a file that another program wrote"))
                size += len(text)
                if size > LARGEST_FOLDER_BYTES:
                    raise BadInput(f"the files in {folder} have more than {units.data_bytes(LARGEST_FOLDER_BYTES)}")
                if found.matches(text):
                    texts.setdefault(found.name, {})[path.relative_to(folder).as_posix()] = text
    if len(texts) != 1:
        names = ", ".join(f"{found.name} ({found.about})" for found in known)
        what = f"results of {' and of '.join(texts)}; import them one by one" if texts else "no results of a simulator"
        raise BadInput(f"{folder} has {what}. In a folder, deepbench reads {names}")
    ((name, files),) = texts.items()
    (simulator,) = [found for found in known if found.name == name]
    simulator.refuse_unused(options)
    try:
        return simulator.read_files(files, options)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise BadInput(f"{name}: a file is damaged ({type(error).__name__})") from None


def import_file(path: Path, target: Path, options: ImportOptions) -> tuple[ImportedFile, int]:
    """Convert a file of another program to the new result file `target`. The contents, and the number of cases."""
    options = replace(options, path=path.name)
    if path.is_dir():
        imported = read_folder(path, options)
    else:
        imported = read(read_text(path, LARGEST_BYTES, "a file that another program wrote"), options)
    return imported, store(imported, target, options, ["import", path.name])


def store(imported: ImportedFile, target: Path, options: ImportOptions, command: Sequence[str]) -> int:
    """Write the new result file `target`; the number of cases."""
    header, records = to_results(imported, options, command)
    with closing(Store.create(target, header)) as store:
        try:
            for record in records:
                store.append(record)
        except BaseException as error:
            target.unlink()  # part of a file would be in the way of the next attempt
            if isinstance(error, BadInput):
                raise BadInput(f"cannot write all of {target}, so it was removed; free some space") from None
            raise
    return len({record["case"] for record in records})


def to_results(imported: ImportedFile, options: ImportOptions, command: Sequence[str]) -> tuple[Header, list[Record]]:
    """Header and records of a result file; `BadInput` if there are no cases."""
    cases = _parse_cases(imported)
    if not cases:
        reason = f": {imported.left_out[0]}" if imported.left_out else ""
        reason += f" (the first of {len(imported.left_out)} reasons)" if len(imported.left_out) > 1 else ""
        raise BadInput(f"the file contains no case that deepbench knows{reason}")
    if not any(entry.processes_s for entry, _ in cases):
        first = cases[0][0].reason or f"{imported.program} gives no time"
        raise BadInput(f"none of the {len(cases)} cases in the file has a time; the first: {first}")
    if options.threads is None and "threads=" not in (options.case or "") and any(map(_runs_on_cpu, cases)):
        imported.remarks.append("the file does not say how many threads there were; they count as 1 (--threads N)")
    library: LibraryFacts = {"name": imported.library, "version": imported.version, "path": None}
    if options.library:
        name, _, version = options.library.rpartition(" ")
        library = {"name": name or version, "version": version if name else None, "path": None}
    header: Header = sanitized(
        {
            "schema": SCHEMA,
            "tool": f"deepbench {VERSION}, imported from {imported.program}",
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": list(command),
            "machine": {"host": imported.host, "cpu": options.machine or imported.cpu, **imported.facts},
            "libraries": {case.backend: {"library": library} for _, case in cases},
            "plan": {
                "cases": [{"case": case.text, "sources": []} for _, case in cases],
                "rounds": {"least": 1, "most": 1, "target": DEFAULT.rounds.target, "most_s": DEFAULT.rounds.most_s},
                "mode": "imported",
                "order_seed": 0,
                "timeout_s": 0.001,
                "rules": asdict(DEFAULT.rules),
            },
        }
    )
    records: list[Record] = []
    sources = _Sources()
    for entry, case in cases:
        for number, samples in enumerate(entry.processes_s or [[]], 1):
            notes = {**entry.notes, **(entry.process_notes[number - 1] if entry.process_notes else {})}
            own = replace(entry, notes=notes)
            record: Record = sanitized(_record(own, case, samples, number, library, imported.program))
            record["sources"] = sources.of(entry, case) if entry.sources is None else sanitized([*entry.sources])
            if error := schema_error(record):
                imported.left_out.append(f"{case.text}: {error}")
            else:
                records.append(record)
    return header, records


def _runs_on_cpu(entry: tuple[ImportedCase, Case]) -> bool:
    """Whether a case runs on the CPU, and with the one thread that is assumed."""
    case = entry[1]
    return case.device == "cpu" and not case.operation.is_group and case.threads == 1 and not entry[0].states_threads


def _parse_cases(imported: ImportedFile) -> list[tuple[ImportedCase, Case]]:
    """Each case once: if it occurs again, it was measured in another way that the text of a case cannot express."""
    cases: dict[str, tuple[ImportedCase, Case]] = {}
    times: Counter[str] = Counter()
    names: dict[str, list[str]] = {}
    for entry in imported.cases:
        try:
            case = parse_case(entry.text)
        except BadInput as error:
            imported.left_out.append(f"{shorten(entry.text, 80)}: {error}")
            continue
        times[case.text] += 1
        names.setdefault(case.text, []).extend([entry.name] if entry.name else [])
        if case.text in cases:
            continue
        processes = [[s for s in samples if SHORTEST_S <= s <= LONGEST_S] for samples in entry.processes_s]
        cases[case.text] = replace(entry, processes_s=[samples for samples in processes if samples]), case
    for text, count in times.items():
        if count > 1:
            how_often = "twice" if count == 2 else f"{count} times"
            named = f" ({shorten(', '.join(names[text]), 200)})" if len(set(names[text])) > 1 else ""
            imported.left_out.append(f"{text}: occurs {how_often} in the file{named}; the first one is used")
    return list(cases.values())


class _Sources:
    """The rows of the original's suites that list a case, from which totals per application are computed."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, Any, str], list[tuple[dict[str, str], Source]]] = {}
        for suite in SUITES:
            for row in read_suite(suite):
                p = row.pattern
                if row.source:
                    key = p.op, p.problem, p.direction or "forward"
                    self._rows.setdefault(key, []).append((dict(p.settings), row.source))

    def of(self, entry: ImportedCase, case: Case) -> list[Source]:
        """Rows with the same problem, direction and settings."""
        unused = case.operation.unused_settings(case.problem, case.direction, case.precision)
        sources = []
        for settings, source in self._rows.get((case.op, case.problem, case.direction), []):
            fits = all(n in unused or case.settings.get(n) == v for n, v in settings.items())
            if fits and source not in sources and (not entry.suites or source["suite"] in entry.suites):
                sources.append(source)
        return sources


def _record(
    entry: ImportedCase, case: Case, samples: Sequence[float], number: int, library: LibraryFacts, program: str
) -> Record:
    if not samples:
        reason = entry.reason or f"{program} gives no time"
        record = make_record(case, number, "wrong" if entry.wrong else "unsupported", reason)
        record["notes"] = {"imported_from": program}
    else:
        record = make_record(case, number, "unchecked", f"imported from {program}: deepbench did not check the results")
        record["measurement"] = {
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
        record["process"] = {"duration_s": 0.0}
        record["notes"] = {**entry.notes, "imported_from": program}
        op = case.operation
        if op.is_group:
            record["notes"]["bus_factor"] = op.facts(case)["bus_factor"]
    record["library"] = library
    return record


# ---- helpers for formats


def text_lines(text: str, program: str) -> Iterator[str]:
    """The lines of a text; `BadInput` for one that is longer than any program writes."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MOST_CHARACTERS:
            raise BadInput(f"{program}: line {number} has {len(line)} characters; a line has at most {MOST_CHARACTERS}")
        yield line


def json_object(text: str, program: str) -> dict[str, Any]:
    """The JSON object in a text; `BadInput` if it is anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(f"{program}: the file is not valid JSON; an interrupted run leaves an incomplete file") from None
    if not isinstance(value, dict):
        raise BadInput(f"{program}: the file does not contain a JSON object")
    return value


def case_text(options: ImportOptions, name: str, axes: dict[str, str]) -> tuple[str | None, str]:
    """The case of a benchmark whose program does not know operations, or None and the reason.

    The case is the template in `options.case` with the values of the benchmark's axes, or the benchmark's name.
    """
    try:
        pattern = parse_pattern(options.case.format(**axes) if options.case else name)
    except (KeyError, IndexError, ValueError, AttributeError):
        return None, f"it lacks an axis that --case names; its axes are {', '.join(axes) or 'none'}"
    except BadInput as error:
        remedy = "" if options.case else "; add for example --case 'gemm m={M} n={N} k={K} f32 cublas'"
        return None, f"not a case ({error}){remedy}"
    backend = pattern.backend or options.backend
    if backend is None:
        return None, "the file does not name the library; add it to --case, or use --backend"
    settings = [f"{n}={v}" for n, v in pattern.settings]
    words = [pattern.op, pattern.problem.text, pattern.direction or "forward", pattern.precision or "f32", backend]
    return " ".join([*words, f"threads={pattern.threads or options.threads or 1}", *settings]), ""
