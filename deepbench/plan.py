"""Words on the command line → the list of cases. Pure but for reading suites; `deepbench list` stops here."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import random
import stat
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from deepbench import backend as backends
from deepbench import case as cases
from deepbench import op as ops
from deepbench import precision as precisions
from deepbench import summary
from deepbench.case import Case, Pattern
from deepbench.errors import BadInput
from deepbench.measure import Rules
from deepbench.record import MEASURED, Record

SUITES = Path(__file__).parent / "suites"

# Columns of a suite's CSV beside the fields of the op's Problem: where a row comes from.
SOURCE_COLUMNS = ("row", "application", "label", "note", "needed")

# A list longer than this is a mistake; the largest suite has some hundreds of lines.
MOST_LINES = 100_000
MOST_SUITE_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Entry:
    """One line of a suite, or a case typed on the command line."""

    pattern: Pattern
    source: dict[str, Any] | None


@dataclass(frozen=True)
class Planned:
    """A case, and every line of a suite that asks for it: a problem listed twice is measured once."""

    case: Case
    sources: list[dict[str, Any]]


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


@dataclass(frozen=True)
class Rounds:
    """How many processes measure a case."""

    least: int
    most: int
    target: float
    """Between `least` and `most`, a case whose 95 % interval is within ± this share needs no more."""
    most_s: float
    """And one that has taken so long in all its rounds gets no more than `least`."""


QUICK = Rounds(1, 1, 0.03, 0.0)
DEFAULT = Rounds(3, 5, 0.03, 3.0)
RIGOROUS = Rounds(10, 20, 0.005, 120.0)


def read_words(words: Sequence[str]) -> list[Entry]:
    """Suites, files and typed cases, in their order. A case is one quoted word or follows its op's name."""
    tokens = [token for word in words for token in (word.split() if "=" in word else [word])]
    entries: list[Entry] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token in ops.all_ops():
            end = position + 1
            while end < len(tokens) and _continues_case(tokens[end]):
                end += 1
            entries.append(Entry(cases.parse_pattern(" ".join(tokens[position:end])), None))
            position = end
        else:
            entries += read_suite(token)
            position += 1
    return entries


def _continues_case(token: str) -> bool:
    return (
        "=" in token or token in cases.DIRECTIONS or token in precisions.PRECISIONS or token in backends.all_backends()
    )


@cache
def suite_files() -> dict[str, list[Path]]:
    """The files of every suite of the package: a name is a folder of them, or one file."""
    found: dict[str, list[Path]] = {}
    for path in sorted([*SUITES.rglob("*.csv"), *SUITES.rglob("*.txt")]):
        folder = path.parent.relative_to(SUITES).as_posix()
        name = path.stem if folder == "." else folder
        found.setdefault(name, []).append(path)
    return found


def read_suite(name: str) -> list[Entry]:
    """The lines of a suite by its name, or of a file of one's own: a CSV, or a text with a case a line."""
    for suite, paths in suite_files().items():
        if suite == name:
            return [e for path in paths for e in _read_file(path, suite)]
    path = Path(name)
    if path.suffix.lower() not in (".csv", ".txt"):
        raise BadInput(
            f"unknown suite, op or file {cases.shorten(name)!r}; suites are {', '.join(suite_files())}; "
            f"ops are {', '.join(ops.all_ops())}; a file of your own ends in .csv or .txt"
        )
    return _read_file(path, name)


def _read_file(path: Path, suite: str) -> list[Entry]:
    text = text_of(path)
    read = _read_csv if path.suffix.lower() == ".csv" else _read_lines
    entries = read(text, path, suite)
    if not entries:
        raise BadInput(f"{path} has no problem in it; wanted a header and a line for each problem")
    return entries


def text_of(path: Path) -> str:
    """What is in a file that a person named; `BadInput` says what is wrong with it."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadInput(f"{path} is no regular file; wanted a list of problems")
        if path.stat().st_size > MOST_SUITE_BYTES:
            raise BadInput(f"{path} is larger than {MOST_SUITE_BYTES} bytes; is it a list of problems?")
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"cannot read {cases.shorten(str(path))}: {text}") from None
    if b"\0" in content:
        raise BadInput(f"{path} has a NUL byte; wanted text in UTF-8")
    try:
        return content.decode("utf-8-sig")  # spreadsheets put a byte-order mark first
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not text in UTF-8 (byte {error.start}); save it as UTF-8") from None


def _read_lines(text: str, path: Path, suite: str) -> list[Entry]:
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if words:
            with _located(path, number):
                entries.append(Entry(cases.parse_pattern(words), _source(suite, number, {})))
    return entries


def _read_csv(text: str, path: Path, suite: str) -> list[Entry]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    entries: list[Entry] = []
    lines = 0
    try:
        header = [name.strip() for name in next(reader, [])]
        op = _op_of(header, path)
        for row in reader:
            if any(cell.strip() for cell in row):
                with _located(path, reader.line_num):
                    lines += 1
                    entries += _csv_entries(op, header, row, suite, lines)
            if len(entries) > MOST_LINES:
                raise BadInput(f"{path} has more than {MOST_LINES} lines; is it a list of problems?")
    except csv.Error as error:
        raise BadInput(f"{path}, line {reader.line_num}: {error}") from None
    return entries


def _op_of(header: list[str], path: Path) -> ops.Op:
    """The op whose fields the header names; where several have them, the one the file is called after.

    `BadInput` says what was wanted.
    """
    doubled = next((n for n in header if header.count(n) > 1), None)
    if doubled is not None:
        raise BadInput(f"{path}: the header has {cases.shorten(doubled)!r} twice")
    fitting, reasons = [], []
    for op in ops.all_ops().values():
        fields = set(fields_in_order(op))
        known = {*fields, *SOURCE_COLUMNS, "directions", *op.settings}
        unknown = [n for n in header if n not in known]
        required = ops.required_fields(op)
        missing = [n for n in required if n not in header]
        if not unknown and not missing:
            fitting.append(op)
        wanted = f"{op.name} wants {','.join(fields_in_order(op))}"
        reasons.append(
            f"{wanted} (missing: {','.join(missing) or '-'}; unknown: {cases.shorten(','.join(unknown)) or '-'})"
        )
    named = [op for op in fitting if op.name == path.stem]
    if len(fitting) > 1 and not named:
        names = ", ".join(op.name for op in fitting)
        raise BadInput(f"{path}: the header fits {names}; call it after one, such as {fitting[0].name}.csv")
    fitting = named or fitting
    if not fitting:
        raise BadInput(f"{path}: the header fits no op: {'; '.join(reasons)}")
    return fitting[0]


def fields_in_order(op: ops.Op) -> list[str]:
    """The names of the fields of the op's Problem."""
    return [f.name for f in dataclasses.fields(op.Problem)]


def _csv_entries(op: ops.Op, header: list[str], row: list[str], suite: str, number: int) -> list[Entry]:
    """An entry for each word of the column `directions`, or one that leaves the direction to the run."""
    if len(row) != len(header):
        raise BadInput(f"{len(row)} cells, the header has {len(header)}")
    cells = dict(zip(header, map(str.strip, row), strict=True))
    fields = fields_in_order(op)
    problem = ops.make_problem(op, {n: cases.read_field(op, n, v) for n, v in cells.items() if n in fields})
    said = {n: v for n, v in cells.items() if n in op.settings and v}
    cases.check_settings(op.name, said)
    directions = cells.get("directions", "").split()
    unknown = [d for d in directions if d not in op.directions]
    if unknown:
        raise BadInput(f"{op.name} has no direction {cases.shorten(unknown[0])!r}; it has {', '.join(op.directions)}")
    source = _source(suite, number, cells)
    chosen: list[str | None] = [*directions] or [None]
    return [Entry(Pattern(op.name, problem, d, said=tuple(sorted(said.items()))), source) for d in chosen]


def _source(suite: str, number: int, cells: dict[str, str]) -> dict[str, Any]:
    row = cells.get("row") or str(number)
    return {
        "suite": suite,
        "row": int(row) if row.isdecimal() and len(row) < 10 else number,
        **{name: cells.get(name) or None for name in ("application", "label", "note")},
        "needed": cells.get("needed") != "no",
    }


class _located:
    """Puts file and line before the sentence of a `BadInput`."""

    def __init__(self, path: Path, line: int) -> None:
        self.where = f"{path}, line {line}"

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, BadInput):
            raise BadInput(f"{self.where}: {error}") from None


def expand(entries: Iterable[Entry], choices: Choices, default_threads: int) -> list[Planned]:
    """Every case that the entries, the choices and the support table allow, each once."""
    _check(choices)
    planned: dict[str, Planned] = {}
    for entry in entries:
        if not _application_chosen(entry, choices):
            continue
        if not _ranks_chosen(entry, choices, choices.most_ranks or default_threads):
            continue
        for case in _cases(entry.pattern, choices, default_threads):
            slot = planned.setdefault(case.text, Planned(case, []))
            if entry.source is not None and entry.source not in slot.sources:
                slot.sources.append(entry.source)
            # A case typed in full is that case alone.
            for baseline in _baselines(case, choices) if entry.pattern.backend is None else ():
                planned.setdefault(baseline.text, Planned(baseline, []))
    return list(planned.values())


def _baselines(case: Case, choices: Choices) -> Iterable[Case]:
    """What the case is compared with, on every library that a run would take, whatever op was asked for."""
    unbound = dataclasses.replace(choices, ops=(), directions=(), settings={})
    for text in ops.find(case.op).baselines(case):
        pattern = cases.parse_pattern(f"{text} {case.precision.name} threads={case.threads} {cases.run_words(case)}")
        yield from _cases(
            pattern, dataclasses.replace(unbound, device=backends.find(case.backend).device), case.threads
        )


def _application_chosen(entry: Entry, choices: Choices) -> bool:
    application = (entry.source or {}).get("application") or ""
    return not choices.applications or application.lower() in [a.lower() for a in choices.applications]


def _ranks_chosen(entry: Entry, choices: Choices, cores: int) -> bool:
    """Whether a group is as large as asked for; of a suite's no larger than the cores, unless asked for."""
    if not ops.find(entry.pattern.op).group:
        return True
    ranks = entry.pattern.problem.ranks
    if choices.ranks:
        return ranks in choices.ranks
    return entry.source is None or choices.device != "cpu" or ranks <= max(2, cores)


def _check(choices: Choices) -> None:
    """`BadInput` for a filter that names what does not exist."""
    for name in choices.ops:
        ops.find(name)
    for name in choices.backends:
        backends.find(name)
    for name in choices.precisions:
        precisions.find(name)
    for name in choices.directions:
        if name not in cases.DIRECTIONS:
            raise BadInput(f"unknown direction {name!r}; there are {', '.join(cases.DIRECTIONS)}")
    known = {n: v for op in ops.all_ops() for n, v in cases.known_settings(op).items()}
    for name, values in choices.settings.items():
        if name not in known:
            raise BadInput(f"unknown setting {cases.shorten(name)!r}; there are {', '.join(known)}")
        for value in values:
            if value not in known[name]:
                raise BadInput(f"{name} is one of {', '.join(known[name])}, found {cases.shorten(value)!r}")


def _cases(pattern: Pattern, choices: Choices, default_threads: int) -> Iterable[Case]:
    op = ops.find(pattern.op)
    if choices.ops and op.name not in choices.ops:
        return
    for direction in _allowed(pattern.direction, choices.directions, op.directions[:1]):
        for precision in _allowed(pattern.precision, choices.precisions, ("f32",)):
            for name in _allowed(pattern.backend, choices.backends, _default_backends(choices.device)):
                backend = backends.find(name)
                if not backend.supports(op.name, precision, direction):
                    continue
                # On a device one thread of the host gives the orders, and in a group each rank has one.
                on_cpu = backend.device == "cpu" and not op.group
                for threads in _allowed(pattern.threads, choices.threads, (default_threads,)) if on_cpu else (1,):
                    kind = precisions.find(precision)
                    idle = op.idle_settings(pattern.problem, direction, kind)
                    for chosen in dict.fromkeys(_settings(op, pattern, choices, idle)):
                        yield Case(op.name, pattern.problem, direction, kind, name, threads, chosen)


def _allowed(said: Any, chosen: Sequence[Any], default: Sequence[Any]) -> Sequence[Any]:
    """The values to go through: what the pattern says if the filter lets it through, else filter, else default."""
    if said is not None:
        return [said] if not chosen or said in chosen else []
    return chosen or default


def _default_backends(device: str) -> list[str]:
    return [name for name, b in backends.all_backends().items() if b.default and b.device == device]


def _settings(
    op: ops.Op, pattern: Pattern, choices: Choices, idle: tuple[str, ...]
) -> list[tuple[tuple[str, str], ...]]:
    """Every combination of the chosen settings that this op has, less the idle ones; what the pattern says stays."""
    combinations: list[dict[str, str]] = [dict(pattern.said)]
    for name, values in choices.settings.items():
        if name in cases.known_settings(op.name) and name not in dict(pattern.said):
            combinations = [{**c, name: value} for c in combinations for value in values]
    made = [cases.check_settings(op.name, c) for c in combinations]
    return [tuple((n, v) for n, v in chosen if n not in idle) for chosen in made]


def queue(
    planned: Sequence[Planned], records: Sequence[Record], rounds: Rounds, order_seed: int
) -> list[tuple[Case, int]]:
    """The cases of the next round that are not measured yet, in the round's random order.

    A function of the plan and the records alone: to resume is to call it on what the file has.
    """
    by_case: dict[str, list[Record]] = {}
    for record in records:
        if record["status"] != "interrupted":
            by_case.setdefault(record["case"], []).append(record)
    wanted = [
        (p.case, number) for p in planned if (number := next_round(by_case.get(p.case.text, []), rounds)) is not None
    ]
    if not wanted:
        return []
    first = min(number for _, number in wanted)
    order = [p.case.text for p in planned]
    random.Random(f"{order_seed}/{first}").shuffle(order)
    position = {text: i for i, text in enumerate(order)}
    batch = [(case, number) for case, number in wanted if number == first]
    return sorted(batch, key=lambda item: position[item[0].text])


def within(
    planned: Sequence[Planned],
    records: Sequence[Record],
    estimate: Callable[[Case], float],
    left_s: float,
    order_seed: int,
    widths: dict[tuple[str, int], float],
) -> tuple[Case, int] | None:
    """The case to measure next when the time is limited, with its round; None when nothing fits any more.

    First each case once, so that something is known of all: of every op, precision and library one in turn, the
    shorter ones first. Then the case whose time is least sure. A case is begun only if it should end in time, by what
    it took before, or by its estimate and how estimates have held so far. `widths` is where this function remembers
    what it has worked out.
    """
    by_case: dict[str, list[Record]] = {}
    for record in records:
        if record["status"] != "interrupted":
            by_case.setdefault(record["case"], []).append(record)
    costs = _costs(planned, by_case, estimate)
    fitting = [p.case for p in planned if costs[p.case.text] <= left_s]
    fresh = [case for case in fitting if case.text not in by_case]
    if fresh:
        kinds = [(p.case.op, p.case.precision.name, p.case.backend) for p in planned if p.case.text in by_case]
        seen = {kind: kinds.count(kind) for kind in kinds}
        return min(fresh, key=lambda c: (seen.get((c.op, c.precision.name, c.backend), 0), costs[c.text])), 1
    measured = [c for c in fitting if all(r["status"] in MEASURED for r in by_case[c.text])]
    if not measured:
        return None
    chance = random.Random(f"{order_seed}/{len(records)}")

    def unsure(case: Case) -> tuple[float, float]:
        key = case.text, len(by_case[case.text])
        if key not in widths:
            found, within_one = summary.estimate(by_case[case.text])
            width = found.half_width if found is not None and not within_one else None
            widths[key] = math.inf if width is None else width
        return widths[key], chance.random()

    widest = max(measured, key=unsure)
    return widest, len(by_case[widest.text]) + 1


def _costs(
    planned: Sequence[Planned], by_case: Mapping[str, Sequence[Record]], estimate: Callable[[Case], float]
) -> dict[str, float]:
    """Seconds that the next round of each case should take."""
    estimates = {p.case.text: estimate(p.case) for p in planned}
    took = {
        text: max(r["process"]["duration_s"] for r in found) + PROCESS_S
        for text, found in by_case.items()
        if all(r["process"] for r in found)
    }
    held = [took[text] / estimates[text] for text in took if estimates.get(text)]
    pace = statistics.median(held) if held else 1.0
    return {text: took.get(text, pace * e) for text, e in estimates.items()}


def next_round(records: Sequence[Record], rounds: Rounds) -> int | None:
    """The number of the round that this case needs next, None when it is finished."""
    done = len(records)
    if any(r["status"] not in MEASURED for r in records):
        return None
    if done < rounds.least:
        return done + 1
    if done >= rounds.most or sum(r["process"]["duration_s"] for r in records) > rounds.most_s:
        return None
    estimate, _ = summary.estimate(records)
    if estimate and estimate.half_width is not None and estimate.half_width <= rounds.target:
        return None
    return done + 1


# What a round of one case costs beside its calls: a fresh Python with NumPy and the library.
PROCESS_S = 0.35
# Filling, checking and summing operands goes at about this speed.
TOUCH_BYTES_PER_S = 0.6e9
# Where no roof is known yet: two cores of a small server.
GUESSED_FLOP_PER_S = 5e10
GUESSED_BYTES_PER_S = 1e10
# Libraries reach about half the roof over DeepBench's shapes.
SHARE_OF_ROOF = 0.5


# Starting a group, and the calls whose bits are compared.
GROUP_S = 0.3
# On a device: opening it, and the search among algorithms. A guess, made without one.
DEVICE_S = 3.0


def estimated_s(case: Case, roof_flop_per_s: float | None, rules: Rules) -> float:
    """Seconds that one round of a case will take, roughly: for the time left, not for any result."""
    op = ops.find(case.op)
    call = op.expected_s(case, SHARE_OF_ROOF * (roof_flop_per_s or GUESSED_FLOP_PER_S), GUESSED_BYTES_PER_S)
    sampling = max(call, min(rules.most_s, max(rules.least_s, 30 * call)))
    at_once = backends.find(case.backend).loads_at_once
    if at_once and rules.first_call_counts_s is not None and call > rules.first_call_counts_s:
        sampling = 0.0
    more = 0.0 if backends.find(case.backend).device == "cpu" else DEVICE_S
    if op.group:  # ranks fill, check and hash as many times as there are cores for them, or take turns
        more += GROUP_S + 6 * case.problem.ranks * op.operand_bytes(case) / TOUCH_BYTES_PER_S / 2
    return PROCESS_S + op.operand_bytes(case) / TOUCH_BYTES_PER_S + call + sampling + more
