"""Suites, files and typed words → the lines that ask for cases."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from deepbench.core.aliases import did_you_mean, meant
from deepbench.core.case import Pattern, check_settings, parse_patterns, read_field, words_by_kind
from deepbench.core.errors import BadInput, shorten
from deepbench.core.files import read_regular
from deepbench.core.op import Op, all_ops
from deepbench.core.problem import fields_of, make_problem, required_fields
from deepbench.results.record import Source

SUITES = Path(__file__).parents[1] / "suites"

# Columns of a suite's CSV beside the fields of the op's Problem: where a row comes from.
SOURCE_COLUMNS = ("row", "application", "label", "note", "needed")

# A list longer than this is a mistake; the largest suite has some hundreds of lines.
MOST_LINES = 100_000
MOST_COLUMNS = 1000
MOST_SUITE_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Entry:
    """One line of a suite, or a case typed on the command line."""

    pattern: Pattern
    source: Source | None


def read_words(words: Sequence[str]) -> list[Entry]:
    """Suites, files and typed cases, in their order. A case is one quoted word or follows its op's name."""
    tokens = [token for word in words for token in (word.split() if "=" in word else [word])]
    entries: list[Entry] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token in all_ops():
            end = position + 1
            while end < len(tokens) and _belongs_to_case(tokens[end]):
                end += 1
            entries += [Entry(pattern, None) for pattern in parse_patterns(" ".join(tokens[position:end]))]
            position = end
        else:
            entries += read_suite(token)
            position += 1
    return entries


def _belongs_to_case(token: str) -> bool:
    """Whether a word goes on with the case before it: one of its words, several with commas, or one misspelt."""
    known, parts = [word for words in words_by_kind().values() for word in words], token.split(",")
    if "=" in token or any(part in known for part in parts):
        return True
    is_something_else = token in all_ops() or token in suite_files() or _is_list(token)
    return not is_something_else and any(meant(part, known) for part in parts)


def _is_list(name: str) -> bool:
    """Whether this is the name of a file with problems."""
    return Path(name).suffix.lower() in (".csv", ".txt")


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
    """The lines of a suite by its name, or of a user's file: a CSV, or a text with one case per line."""
    if name in suite_files():
        return [e for path in suite_files()[name] for e in _read_file(path, name)]
    if not _is_list(name):
        raise BadInput(_unknown(name))
    return _read_file(Path(name), name)


def _unknown(name: str) -> str:
    """The sentence about a word that is no suite, no operation and no file."""
    following = words_by_kind()
    for kind, words in following.items():
        if name in words:
            return (
                f"{name} is a {kind}, which follows a case, such as gemm m=1760 n=128 k=1760 {name}; "
                f"for suites and files use --{kind} {name}"
            )
    kinds: dict[str, Collection[str]] = {"suites": suite_files(), "operations": all_ops()}
    kinds |= {f"{kind}s": words for kind, words in following.items()}
    known = [word for words in kinds.values() for word in words]
    found = set(meant(name, known))
    likely = [kind for kind, words in kinds.items() if found & set(words)] or ["suites", "operations"]
    wanted = "; ".join(f"{kind} are {', '.join(kinds[kind])}" for kind in likely)
    hint = did_you_mean(name, known) or "; a file ends in .csv or .txt"
    return f"unknown suite, operation or file {shorten(name)!r}; {wanted}{hint}"


def _read_file(path: Path, suite: str) -> list[Entry]:
    read = _read_csv if path.suffix.lower() == ".csv" else _read_lines
    entries = read(text_of(path), path, suite)
    if not entries:
        raise BadInput(f"{path} has no problem in it; wanted a header and a line for each problem")
    return entries


def text_of(path: Path, wanted: str = "a list of problems") -> str:
    """What is in a file that a person named; `BadInput` says what is wrong with it, and what was wanted."""
    content = read_regular(path, MOST_SUITE_BYTES, wanted)
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
                entries += [Entry(pattern, _source(suite, number, {})) for pattern in parse_patterns(words)]
            _require_few(entries, path)
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
            _require_few(entries, path)
    except csv.Error as error:
        raise BadInput(f"{path}, line {reader.line_num}: {error}") from None
    return entries


def _require_few(entries: Sequence[Entry], path: Path) -> None:
    if len(entries) > MOST_LINES:
        raise BadInput(f"{path} has more than {MOST_LINES} lines; is it a list of problems?")


def _op_of(header: list[str], path: Path) -> Op:
    """The op whose fields the header names.

    Where several have them, it is the one that the file is called after, or else the most general one.
    `BadInput` says what was wanted.
    """
    if len(header) > MOST_COLUMNS:
        raise BadInput(f"{path}: the header has {len(header)} columns; a list of problems has at most {MOST_COLUMNS}")
    doubled = next((n for n, count in Counter(header).items() if count > 1), None)
    if doubled is not None:
        raise BadInput(f"{path}: the header has {shorten(doubled)!r} twice")
    fitting, reasons = [], []
    for op in all_ops().values():
        fields = [f.name for f in fields_of(op.Problem)]
        known = {*fields, *SOURCE_COLUMNS, "directions", *op.settings}
        unknown = [n for n in header if n not in known]
        missing = [n for n in required_fields(op) if n not in header]
        if not unknown and not missing:
            fitting.append(op)
        wanted = f"{op.name} wants {','.join(fields)}"
        reasons.append(f"{wanted} (missing: {','.join(missing) or '-'}; unknown: {shorten(','.join(unknown)) or '-'})")
    if not fitting:
        raise BadInput(f"{path}: the header fits no op: {'; '.join(reasons)}")
    general = [op for op in fitting if op.specializes not in [other.name for other in fitting]]
    named = [op for op in fitting if op.name == path.stem] or general
    if len(named) > 1:
        names = ", ".join(op.name for op in fitting)
        raise BadInput(f"{path}: the header fits {names}; call it after one, such as {fitting[0].name}.csv")
    return named[0]


def _csv_entries(op: Op, header: list[str], row: list[str], suite: str, number: int) -> list[Entry]:
    """An entry for each word of the column `directions`, or one that leaves the direction to the run."""
    if len(row) != len(header):
        raise BadInput(f"{len(row)} cells, the header has {len(header)}")
    cells = dict(zip(header, map(str.strip, row), strict=True))
    fields = {f.name for f in fields_of(op.Problem)}
    problem = make_problem(op, {n: read_field(op, n, v) for n, v in cells.items() if n in fields})
    settings = {n: v for n, v in cells.items() if n in op.settings and v}
    check_settings(op.name, settings)
    directions = cells.get("directions", "").split()
    unknown = [d for d in directions if d not in op.directions]
    if unknown:
        raise BadInput(f"{op.name} has no direction {shorten(unknown[0])!r}; it has {', '.join(op.directions)}")
    source = _source(suite, number, cells)
    chosen: list[str | None] = [*directions] or [None]
    return [Entry(Pattern(op.name, problem, d, settings=tuple(sorted(settings.items()))), source) for d in chosen]


def _source(suite: str, number: int, cells: dict[str, str]) -> Source:
    row = cells.get("row") or str(number)
    return {
        "suite": suite,
        "row": int(row) if row.isdecimal() and len(row) < 10 else number,
        "application": cells.get("application") or None,
        "label": cells.get("label") or None,
        "note": cells.get("note") or None,
        "needed": cells.get("needed") != "no",
    }


@contextmanager
def _located(path: Path, line: int) -> Iterator[None]:
    """Puts file and line before the sentence of a `BadInput`."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{path}, line {line}: {error}") from None
