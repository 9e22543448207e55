"""Suites, files and typed words → the lines that ask for cases."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from deepbench.core.aliases import did_you_mean, meant, refuse_unknown
from deepbench.core.case import Pattern, check_settings, parse_patterns, read_field, words_by_kind
from deepbench.core.errors import BadInput, shorten
from deepbench.core.files import read_regular
from deepbench.core.foreign_text import decoded
from deepbench.core.json_lines import printable
from deepbench.core.op import Op, all_ops, find_op
from deepbench.core.precision import find_precision
from deepbench.core.problem import fields_of, make_problem, required_fields
from deepbench.plan import fit, models
from deepbench.plan.foreign import Coverage, format_of
from deepbench.plan.models import Row
from deepbench.results.record import Source

SUITES = Path(__file__).parents[1] / "suites"
ARCHITECTURES = SUITES / "architectures"

# Folders of the suites whose files are no suites: parts of models, and rounds of results.
NO_SUITES = (ARCHITECTURES, SUITES / "rounds")

# What the files of models end in; those that `deepbench trace` writes in the second.
MODELS = (".toml", ".suite")

# The parameter that every suite has: how much memory a case may need.
FIT = "fit"

# Columns of a suite's CSV beside the fields of the op's Problem: where a row comes from.
SOURCE_COLUMNS = ("row", "application", "label", "note", "needed")
# Columns of a list of problems beside the sizes and settings of an operation: what the rows of users have, too.
OTHER_COLUMNS = (*SOURCE_COLUMNS, "name", "count", "op", "precision", "direction", "directions")

# A list longer than this is a mistake; the largest suite has some hundreds of lines.
MOST_LINES = 20_000
MOST_COLUMNS = 1000
MOST_LIST_BYTES = 2 * 2**20


@dataclass(frozen=True)
class Entry:
    """One line of a suite, or a case typed on the command line."""

    pattern: Pattern
    source: Source | None
    precision: str | None = None
    """What the list says, where it leaves the choice to --precision; None: f32."""
    settings: tuple[tuple[str, str], ...] = ()
    """What the list says, where it leaves the choice to --set."""

    @property
    def stated(self) -> dict[str, str]:
        """The settings without any choice."""
        return {**dict(self.settings), **dict(self.pattern.settings)}


@dataclass(frozen=True)
class LeftOut:
    """A kernel of a model that no operation of this version serves."""

    kernel: str
    where: str
    count: int
    reason: str


def read_words(words: Sequence[str], parameters: Mapping[str, tuple[str, ...]] | None = None) -> list[Entry]:
    """Suites, folders of suites, files and typed cases, in order. A case is one quoted word or follows its op's name.

    `parameters` are those of suites, each with one value or several.
    """
    entries: list[Entry] = []
    tokens = _tokens(words)
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
            for name in _with_parameters(token, parameters or {}):
                entries += read_suite(name)
            position += 1
    return entries


def _tokens(words: Sequence[str]) -> list[str]:
    return [token for word in words for token in (word.split() if "=" in word else [word])]


def _belongs_to_case(token: str) -> bool:
    """Whether a word goes on with the case before it: one of its words, several with commas, or one misspelt."""
    if is_suite(token) or _group(split_name(token)[0]):
        return False
    known, parts = [word for words in words_by_kind().values() for word in words], token.split(",")
    if "=" in token or any(part in known for part in parts):
        return True
    is_something_else = token in all_ops() or token in suite_files() or _is_list(token)
    return not is_something_else and any(meant(part, known) for part in parts)


def _is_list(name: str) -> bool:
    """Whether this is the name of a file with problems, or of a folder with workloads."""
    return Path(name).suffix.lower() in (".csv", ".txt", *MODELS) or format_of(name) is not None


@cache
def suite_files() -> dict[str, list[Path]]:
    """The files of every suite of the package: a name is a folder of them, one file, or a model in a folder."""
    found: dict[str, list[Path]] = {}
    for path in sorted([*SUITES.rglob("*.csv"), *SUITES.rglob("*.txt")]):
        folder = path.parent.relative_to(SUITES).as_posix()
        name = path.stem if folder == "." else folder
        found.setdefault(name, []).append(path)
    for path in sorted(SUITES.rglob("*.toml")):
        if path.parent not in NO_SUITES:
            found[path.relative_to(SUITES).with_suffix("").as_posix()] = [path]
    return found


def suite_groups() -> dict[str, list[str]]:
    """The names of suites by their first word; those of DeepBench and single files come first."""
    groups: dict[str, list[str]] = {"deepbench": [], "other": []}
    for name in suite_files():
        group, slash, _ = name.partition("/")
        groups.setdefault(group if slash else "other", []).append(name)
    return groups


def _group(name: str) -> list[str]:
    """The suites in a folder of the package, such as `mlperf` or `mlperf/`; none where this is no folder of suites."""
    folder = name.removesuffix("/")
    return [suite for suite in suite_files() if suite.startswith(f"{folder}/")] if name not in suite_files() else []


def is_suite(name: str) -> bool:
    """Whether this is the name of a suite of the package, with or without parameters."""
    return split_name(name)[0] in suite_files()


def is_training_suite(name: str) -> bool:
    """Whether a suite is one of training."""
    base, parameters = split_name(name)
    return parameters.get("phase") == models.TRAIN if "phase" in parameters else models.TRAIN in base.split("/")


def is_fitted(source: Source) -> bool:
    """Whether `--fit` made the problem smaller than the suite lists it."""
    return bool(source.get("note")) and FIT in split_name(source["suite"])[1]


def split_name(name: str) -> tuple[str, dict[str, str]]:
    """`mlperf/llama31_8b:phase=decode,batch=8` as the name of a suite or file and its parameters."""
    base, colon, rest = name.rpartition(":")
    if not colon or "=" not in rest or _is_list(name):
        return name, {}
    pairs = [word.partition("=") for word in rest.split(",")]
    wrong = next((p for p, equals, value in pairs if not (p and equals and value)), None)
    if wrong is not None or len({p for p, _, _ in pairs}) < len(pairs):
        raise BadInput(f"wanted parameters such as {base}:phase=decode,batch=8, each once, found {shorten(rest)!r}")
    return base, {p: value for p, _, value in pairs}


def _named(base: str, parameters: Mapping[str, str | int]) -> str:
    return f"{base}:{','.join(f'{n}={v}' for n, v in parameters.items())}" if parameters else base


def phases_of(name: str) -> tuple[str, ...]:
    """The phases of a model; none of other suites."""
    path = _path_of(split_name(name)[0])
    is_model = path is not None and path.suffix.lower() in MODELS and not _members(path)
    return tuple(_model(path).phases) if path is not None and is_model else ()


def model_of(name: str) -> models.ModelSuite:
    """The model with this name, with or without parameters; `BadInput` if it is none."""
    base = split_name(name)[0]
    path = _path_of(base)
    if path is None:
        raise BadInput(_unknown(base))
    if not phases_of(base):
        raise BadInput(f"{shorten(base)!r} is no model")
    return _model(path)


@dataclass(frozen=True)
class Pass:
    """What one pass of a model processes."""

    phase: str
    parameters: Mapping[str, int]
    """Those of the phase, with defaults."""
    units: int
    """How many units, such as tokens."""
    unit: str
    weights: int | None = None
    """How many numbers the network learns; None if its file does not say."""


def pass_of(name: str) -> Pass:
    """The pass of a model that a name with parameters stands for; `BadInput` if it is not that of a model."""
    model, (_, given) = model_of(name), split_name(name)
    phase, values = model.chosen({n: v for n, v in given.items() if n != FIT})
    return Pass(phase, values, model.units(phase, values), model.unit_of(phase), model.weights(phase, values))


def parameters_of(name: str) -> tuple[str, ...]:
    """The parameters that a suite or file has, beside `fit`."""
    base, _ = split_name(name)
    if group := _group(base):
        return tuple(dict.fromkeys(p for member in group for p in parameters_of(member)))
    path = _path_of(base)
    if path is None or path.suffix.lower() not in MODELS:
        return ()
    if members := _members(path):
        listed = (_model(_model_path(member, base)) for member in members)
        return tuple(dict.fromkeys(p for model in listed for p in model.all_parameters))
    return _model(path).all_parameters


def parameters_of_words(words: Sequence[str]) -> tuple[str, ...]:
    """The parameters that any of these suites has. Words that are no suites have none."""
    return tuple(dict.fromkeys(p for token in _tokens(words) for p in parameters_of(token)))


def _path_of(base: str) -> Path | None:
    """The file of a suite that has one file, or of a user's list."""
    files = suite_files().get(base) or ([Path(base)] if _is_list(base) else [])
    return files[0] if files else None


def _with_parameters(token: str, parameters: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """The suite with each combination of those values that belong to its parameters; what its name says stays."""
    base, own = split_name(token)
    if _group(base):
        yield from _members_with(base, {**parameters, **{n: (v,) for n, v in own.items()}})
        return
    if base not in suite_files() and not _is_list(base):
        yield token
        return
    known = (FIT, *parameters_of(base))
    chosen = {n: values for n, values in parameters.items() if n in known and n not in own}
    for values in itertools.product(*chosen.values()):
        yield _named(base, {**own, **dict(zip(chosen, values, strict=True))})


def _members_with(folder: str, parameters: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """The suites in a folder of the package that have a chosen phase, each with those parameters that its phase has."""
    known = (FIT, *parameters_of(folder))
    refuse_unknown(parameters, known, f"no suite in {folder} has the parameter", "they have")
    others = {n: values for n, values in parameters.items() if n != "phase"}
    found = False
    for member in _group(folder):
        phases = phases_of(member)
        if not phases:
            # The name of a list such as llm/decode says its phase.
            if "phase" not in parameters or "phase" not in parameters_of(member):
                found = True
                yield from _with_parameters(member, others)
            continue
        model = _model(suite_files()[member][0])
        for phase in parameters.get("phase", (model.default_phase,)):
            if phase in phases:
                found = True
                own = {n: values for n, values in others.items() if n in (FIT, *model.parameters(phase))}
                yield from _with_parameters(_named(member, {"phase": phase}) if "phase" in parameters else member, own)
    if not found:
        there_are = ", ".join(dict.fromkeys(phase for member in _group(folder) for phase in phases_of(member)))
        raise BadInput(
            f"no suite in {folder} has the phase {shorten(','.join(parameters['phase']))!r}; they have {there_are}"
        )


def _with(member: str, parameters: Mapping[str, str]) -> str:
    """A listed suite with those of the parameters that it has, in place of what the list says."""
    base, own = split_name(member)
    return _named(base, {**own, **{n: v for n, v in parameters.items() if n in (FIT, *parameters_of(base))}})


def read_suite(name: str) -> list[Entry]:
    """The lines of a suite by its name, or of a user's file: a CSV, a text with one case per line, or a model."""
    base, _ = split_name(name)
    if base in suite_files():
        return list(_package_suite(name))
    if not _is_list(base):
        raise BadInput(_unknown(name))
    return _read_suite(name)


# One command reads the same suite for its cases, its totals and its rows.
@lru_cache(maxsize=100)
def _package_suite(name: str) -> tuple[Entry, ...]:
    return tuple(_read_suite(name))


def _read_suite(name: str) -> list[Entry]:
    base, parameters = split_name(name)
    path = _path_of(base)
    if path is not None and path.suffix.lower() in MODELS:
        return _read_toml(path, base, parameters)[0]
    refuse_unknown(parameters, (FIT,), f"{base} has no parameter")
    if base not in suite_files() and format_of(base):
        entries = _read_workloads(base)
    else:
        entries = [e for path in suite_files().get(base, [Path(base)]) for e in _read_file(path, base)]
    return _fitted(entries, base, parameters[FIT]) if FIT in parameters else entries


def left_out_of_words(words: Sequence[str], parameters: Mapping[str, tuple[str, ...]]) -> list[LeftOut]:
    """The kernels that the suites among these words lack; see `read_words` and `left_out`."""
    tokens = [token for token in _tokens(words) if parameters_of(token)]
    return [kernel for token in tokens for name in _with_parameters(token, parameters) for kernel in left_out(name)]


def left_out(name: str) -> list[LeftOut]:
    """The kernels of a model that no operation of this version serves, with the reasons."""
    base, parameters = split_name(name)
    path = _path_of(base)
    return _read_toml(path, base, parameters)[1] if path is not None and path.suffix.lower() in MODELS else []


# A word for numbers of some type, which may be none of the precisions.
TYPE = re.compile(r"(?:bf|fp|f|float|int|uint|i|u|s)[0-9]{1,3}(?:e[0-9]m[0-9])?|double|half|single|long")


def _unknown(name: str) -> str:
    """The sentence about a word that is no suite, no operation and no file."""
    following = words_by_kind()
    for kind, words in following.items():
        if name in words:
            return (
                f"{name} is a {kind}, which follows a case, such as gemm m=1760 n=128 k=1760 {name}; "
                f"for suites and files use --{kind} {name}"
            )
    if TYPE.fullmatch(name) and not meant(name, following["precision"]):
        return f"there is no precision {name}; precisions are {', '.join(following['precision'])}"
    groups = suite_groups()
    folders = [group for group in groups if group != "other"]
    kinds: dict[str, Collection[str]] = {"suites": [*suite_files(), *folders], "operations": all_ops()}
    shown = {"suites": [*groups.pop("other"), *(f"{group}/…" for group in groups), "listed by deepbench list --suites"]}
    kinds |= {f"{kind}s": words for kind, words in following.items()}
    known = [word for words in kinds.values() for word in words]
    found = set(meant(name, known))
    likely = [kind for kind, words in kinds.items() if found & set(words)] or ["suites", "operations"]
    wanted = "; ".join(f"{kind} are {', '.join(shown.get(kind, kinds[kind]))}" for kind in likely)
    hint = did_you_mean(name, known) or "; a file ends in .csv, .txt, .toml, .suite, .json or .jsonl"
    return f"unknown suite, operation or file {shorten(name)!r}; {wanted}{hint}"


def _read_file(path: Path, suite: str) -> list[Entry]:
    read = _read_csv if path.suffix.lower() == ".csv" else _read_lines
    entries = read(text_of(path), path, suite)
    if not entries:
        raise BadInput(f"{path} has no problem in it; wanted a header and a line for each problem")
    return entries


def text_of(path: Path, wanted: str = "a list of problems", most_bytes: int = MOST_LIST_BYTES) -> str:
    """What is in a file that a person named; `BadInput` says what is wrong with it, and what was wanted."""
    content = read_regular(path, most_bytes, wanted)
    try:
        text = decoded(content, "strict")  # spreadsheets put a byte-order mark first
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not text in UTF-8 (byte {error.start}); save it as UTF-8") from None
    if "\0" in text:
        raise BadInput(f"{path} has a NUL byte; wanted text in UTF-8")
    return text


def _read_lines(text: str, path: Path, suite: str) -> list[Entry]:
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if words:
            with _located(path, number):
                if "," in words and is_suite(words.partition(",")[0].strip()):
                    entries += _of_application(*(word.strip() for word in words.split(",")))
                else:
                    entries += [Entry(pattern, _source(suite, number, {})) for pattern in parse_patterns(words)]
            _require_few(entries, path)
    return entries


def _of_application(suite: str, *words: str) -> list[Entry]:
    """The problems of an application of another suite, as that suite has them: so they count for its totals."""
    if len(words) not in (1, 2):
        raise BadInput(f"wanted a suite, an application and perhaps a precision, found {len(words) + 1} texts")
    application, precision = words[0], words[1] if len(words) > 1 else None
    if precision is not None:
        find_precision(precision)
    entries = read_suite(suite)
    known = dict.fromkeys(e.source["application"] for e in entries if e.source and e.source["application"])
    if application not in known:
        hint = did_you_mean(application, known)
        raise BadInput(f"{suite} has no application {shorten(application)!r}; there are {', '.join(known)}{hint}")
    chosen = [e for e in entries if e.source and e.source["application"] == application]
    return [dataclasses.replace(e, precision=precision or e.precision) for e in chosen]


def _read_csv(text: str, path: Path, suite: str) -> list[Entry]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    entries: list[Entry] = []
    lines = 0
    try:
        header = [name.strip() for name in next(reader, [])]
        common = None if "op" in header else _op_of(header, path)
        _require_known_columns(header, path)
        for row in reader:
            if any(cell.strip() for cell in row):
                with _located(path, reader.line_num):
                    lines += 1
                    entries += _csv_entries(common, header, row, suite, lines)
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
    lacking: list[tuple[tuple[int, int], Op, list[str], list[str]]] = []
    for op in all_ops().values():
        known = {*(f.name for f in fields_of(op.Problem)), *OTHER_COLUMNS, *op.settings}
        unknown = [n for n in header if n not in known]
        missing = [n for n in required_fields(op) if n not in header]
        lacking.append(((len(unknown), len(missing)), op, missing, unknown))
    fitting = [op for wrong, op, _, _ in lacking if wrong == (0, 0)]
    if not fitting:
        if separators := [c for c in ";\t|" if len(header) == 1 and c in header[0]]:
            found = "tabs" if separators[0] == "\t" else repr(separators[0])
            raise BadInput(f"{path}: wanted columns that commas separate, found {found} in the header")
        if all(len(unknown) == len(header) for _, _, _, unknown in lacking):  # also an empty one
            raise BadInput(
                f"{path}: the first line names no column of a list of problems: {shorten(', '.join(header), 100)}; "
                "begin the file with a header, such as op,m,n,k,precision"
            )
        _, op, missing, unknown = min(lacking, key=lambda found: (found[0], found[1].name != path.stem))
        parts = [f"lacks {', '.join(missing)}"] * bool(missing) + [
            f"has {shorten(', '.join(unknown), 100)}, which is unknown there"
        ] * bool(unknown)
        raise BadInput(
            f"{path}: the header is that of no operation; for the nearest one, {op.name}, it {' and '.join(parts)}; "
            "a column op may name the operation of each row, such as gemm"
        )
    general = [op for op in fitting if op.specializes not in [other.name for other in fitting]]
    named = [op for op in fitting if op.name == path.stem] or general
    if len(named) > 1:
        names = ", ".join(op.name for op in fitting)
        raise BadInput(f"{path}: the header fits {names}; call it after one, such as {fitting[0].name}.csv")
    return named[0]


def _require_known_columns(header: list[str], path: Path) -> None:
    """`BadInput` for a column twice, and where rows name their operations for one that none of them has."""
    doubled = next((n for n, count in Counter(header).items() if count > 1), None)
    if doubled is not None:
        raise BadInput(f"{path}: the header has {shorten(doubled)!r} twice")
    of_ops = {n for op in all_ops().values() for n in (*(f.name for f in fields_of(op.Problem)), *op.settings)}
    unknown = [n for n in header if n not in of_ops and n not in OTHER_COLUMNS]
    if unknown:
        known = ", ".join(OTHER_COLUMNS)
        raise BadInput(
            f"{path}: no operation has the column {shorten(printable(unknown[0]))!r}"
            f"{did_you_mean(unknown[0], [*of_ops, *OTHER_COLUMNS])}; columns are sizes and settings of operations, and "
            f"{known}"
        )


def _csv_entries(common: Op | None, header: list[str], row: list[str], suite: str, number: int) -> list[Entry]:
    """An entry for each word of the column `directions`, or one that leaves the direction to the run.

    `common` is the operation of all rows; None: each row names its own, and leaves cells of others empty.
    """
    if len(row) != len(header):
        raise BadInput(f"{len(row)} cells, the header has {len(header)}")
    cells = dict(zip(header, map(str.strip, row), strict=True))
    op = common or find_op(cells["op"])
    if cells.get("op", op.name) not in ("", op.name):
        op = find_op(cells["op"])
    fields = {f.name for f in fields_of(op.Problem)}
    stated = {n: v for n, v in cells.items() if n in fields and (v or common)}
    problem = make_problem(op, {n: read_field(op, n, v) for n, v in stated.items()})
    settings = {n: v for n, v in cells.items() if n in op.settings and v}
    check_settings(op.name, settings)
    others = [n for n, v in cells.items() if v and n not in (*fields, *op.settings, *OTHER_COLUMNS)]
    if others:
        raise BadInput(f"{op.name} has no {others[0]}; leave this cell empty")
    directions = f"{cells.get('directions', '')} {cells.get('direction', '')}".split()
    refuse_unknown(directions, op.directions, f"{op.name} has no direction")
    precision = cells.get("precision") or None
    if precision is not None:
        find_precision(precision)
    source = _source(suite, number, cells)
    chosen: list[str | None] = [*directions] or [None]
    words = tuple(sorted(settings.items()))
    return [Entry(Pattern(op.name, problem, d, precision, settings=words), source) for d in chosen]


def _source(suite: str, number: int, cells: dict[str, str]) -> Source:
    row = cells.get("row") or str(number)
    source: Source = {
        "suite": suite,
        "row": int(row) if row.isdecimal() and len(row) < 10 else number,
        "application": cells.get("application") or None,
        "label": cells.get("label") or cells.get("name") or None,
        "note": cells.get("note") or None,
        "needed": cells.get("needed") != "no",
    }
    if cells.get("count"):
        source["count"] = _count(cells["count"])
    return source


def _count(text: str) -> int:
    """How often a problem is called, for totals."""
    if not (text.isascii() and text.isdecimal() and int(text[:10]) > 0 and len(text) < 10):
        raise BadInput(f"count must be a whole number from 1 to 999999999, found {shorten(text)!r}")
    return int(text)


# ---- workloads of others


def coverage(name: str) -> list[Coverage]:
    """The definitions of kernels in a folder or file, and which operations compute them or why none does."""
    base, _ = split_name(name)
    known = None if base in suite_files() or _group(base) else format_of(base)
    if known is None:
        wanted = "a folder or file with definitions of FlashInfer-Trace or SOL-ExecBench"
        raise BadInput(f"--coverage is for workloads of others: wanted {wanted}, found {shorten(name)!r}")
    return known.read(Path(base))


def _read_workloads(base: str) -> list[Entry]:
    """An entry for each workload that an operation computes, and each model that has its kernel."""
    definitions = coverage(base)
    entries: list[Entry] = []
    row = 0
    for d in definitions:
        for problem in d.problems:
            row += 1
            op = all_ops()[problem.op]
            check_settings(op.name, dict(problem.settings))
            settings = tuple(sorted(problem.settings.items()))
            pattern = Pattern(op.name, make_problem(op, problem.fields), settings=settings)
            for model in d.models or (None,):
                source: Source = {
                    "suite": base,
                    "row": row,
                    "application": model,
                    "label": ", ".join([d.definition, *d.stages]),
                    "note": problem.note,
                    "needed": True,
                }
                entries.append(Entry(pattern, source, problem.precision))
    if not entries:
        reason = next((f"; the first: {reason}" for d in definitions for reason in d.reasons), "")
        has_any = any(d.workloads for d in definitions)
        has = "has no workload that" if has_any else "has definitions without workloads"
        raise BadInput(
            f"{printable(base)} {has} an operation computes{reason}; add --coverage to deepbench list for all"
        )
    return entries


# ---- models


def _read_toml(path: Path, base: str, parameters: Mapping[str, str]) -> tuple[list[Entry], list[LeftOut]]:
    """The kernels of a model, or of the models that a file lists, and those that cannot be measured."""
    if members := _members(path):
        refuse_unknown(parameters, (FIT, *parameters_of(base)), f"{base} has no parameter")
        names = dict.fromkeys(_with(member, parameters) for member in members)
        read = [_read_toml(_model_path(name, base), *split_name(name)) for name in names]
        return [e for entries, _ in read for e in entries], [o for _, out in read for o in out]
    model = _model(path)
    phase, values = model.chosen({n: v for n, v in parameters.items() if n != FIT})
    limit = fit.Limit.parse(parameters[FIT]) if FIT in parameters else None
    # Names with devices always state the batch that these divide.
    stated = (models.BATCH, models.DEVICES) if models.DEVICES in values else ()
    defaults = model.parameters(phase)
    changed: dict[str, str | int] = {n: v for n, v in values.items() if n in stated or v != defaults[n]}
    fitting = {n: v for n, v in parameters.items() if n == FIT}
    suite = _named(base, {"phase": phase, **changed, **fitting})
    words = [model.title, *([phase] if len(model.phases) > 1 else []), *itertools.starmap(_stated, changed.items())]
    application = ", ".join([*words, *(f"fitted to {size}" for size in fitting.values())])
    entries: list[Entry] = []
    out: list[LeftOut] = []
    for number, row in enumerate(model.rows(phase, values), 1):
        source: Source = {
            "suite": suite,
            "row": number,
            "application": application,
            "label": row.where or None,
            "note": None,
            "needed": True,
            "count": row.count,
        }
        try:
            entries += _row_entries(row, source, limit)
        except BadInput as error:
            sizes = " ".join(f"{n}={v}" for n, v in row.values.items())
            out.append(LeftOut(f"{row.op} {sizes}", row.where, row.count, str(error)))
    return entries, out


def _stated(name: str, value: str | int) -> str:
    """A parameter in the name of an application, whose kernels are those of one device."""
    if name == models.DEVICES:
        return "on one device" if value == 1 else f"on one of {value} devices"
    return f"{name} {value}"


def _row_entries(row: Row, source: Source, limit: fit.Limit | None) -> list[Entry]:
    """An entry for each direction of a kernel; `BadInput` says why this version cannot measure it."""
    op = all_ops().get(row.op)
    if op is None:
        raise BadInput(f"there is no operation {row.op}")
    if unknown := [d for d in row.directions if d not in op.directions]:
        raise BadInput(f"{op.name} has no direction {unknown[0]}")
    fields = {f.name for f in fields_of(op.Problem)}
    settings = {n: str(v) for n, v in row.values.items() if n not in fields}
    check_settings(op.name, settings)
    wanted = {n: v for n, v in row.values.items() if n in fields}
    if limit is None:
        problem = make_problem(op, wanted)
    else:
        problem = fit.fitted(op, make_problem(op, fit.in_bounds(wanted)), row.directions, settings, limit)
        source = {**source, "note": fit.changes(wanted, problem)}
    stated = tuple(sorted(settings.items()))
    patterns = (Pattern(op.name, problem, direction, settings=stated) for direction in row.directions)
    return [Entry(pattern, source, row.precision, row.settings) for pattern in patterns]


def _model(path: Path) -> models.ModelSuite:
    if SUITES in path.parents:
        return _package_model(path)
    return models.parse_model(toml_text(path), path.name, models.models_folder_text(ARCHITECTURES))


@cache
def _package_model(path: Path) -> models.ModelSuite:
    return models.parse_model(_package_text(path), path.name, models.models_folder_text(ARCHITECTURES))


@cache
def _package_text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def toml_text(path: Path, wanted: str = "a model") -> str:
    """The text of a user's model or trace."""
    return text_of(
        path, wanted, models.MOST_TRACE_BYTES if path.suffix.lower() == MODELS[1] else models.MOST_MODEL_BYTES
    )


@cache
def _package_members(path: Path) -> tuple[str, ...]:
    return models.parse_members(_package_text(path), path.name)


def _members(path: Path) -> tuple[str, ...]:
    """The suites that a file lists in place of kernels."""
    if SUITES in path.parents:
        return _package_members(path)
    return models.parse_members(toml_text(path), path.name)


def _model_path(name: str, of: str) -> Path:
    path = _path_of(split_name(name)[0])
    if path is None or path.suffix != ".toml" or SUITES not in path.parents or _members(path):
        raise BadInput(f"{of} lists {shorten(name)!r}, which is no model of this version")
    return path


def _fitted(entries: Iterable[Entry], base: str, text: str) -> list[Entry]:
    """The lines of a suite with smaller twins of the problems that need more memory."""
    limit = fit.Limit.parse(text)
    # All directions of a row have the same problem.
    ways: dict[tuple[str, object], dict[str, None]] = {}
    listed = list(entries)
    for e in listed:
        direction = e.pattern.direction or all_ops()[e.pattern.op].directions[0]
        ways.setdefault((e.pattern.op, e.pattern.problem), {})[direction] = None
    made = []
    for e in listed:
        p, source = e.pattern, e.source
        problem = fit.fitted(all_ops()[p.op], p.problem, tuple(ways[p.op, p.problem]), dict(p.settings), limit)
        if source is not None:
            source = {**source, "suite": _named(base, {FIT: text})}
            if note := fit.changes(p.problem.values, problem):
                source["note"] = note
        made.append(dataclasses.replace(e, pattern=dataclasses.replace(p, problem=problem), source=source))
    return made


@contextmanager
def _located(path: Path, line: int) -> Iterator[None]:
    """Puts file and line before the sentence of a `BadInput`."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{path}, line {line}: {error}") from None
