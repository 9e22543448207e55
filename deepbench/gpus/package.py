"""The Python package `aiconfigurator-core`: kernel times of ten GPUs in Parquet tables, data sheets, and deployments.

Its tables are read where the package is installed (`pip install -e ".[gpus]"`), or in the folder that
`DEEPBENCH_GPU_TABLES` names. Nothing of the package is executed or imported:

    systems/<gpu>.yaml                                              the data sheet
    systems/data/<gpu>/<family>/<framework>/<version>/<table>_perf.parquet
    systems/silicon_sample.csv                                      measured deployments
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import util
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from deepbench.core.aliases import did_you_mean
from deepbench.core.errors import BadInput, Unavailable, shorten
from deepbench.core.files import open_regular
from deepbench.core.json_lines import printable

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

PACKAGE = "aiconfigurator_core"
FOLDER = "DEEPBENCH_GPU_TABLES"
REMEDY = 'pip install "aiconfigurator-core<0.13" pyarrow pyyaml lightgbm (90 MB)'

# The largest table of version 0.12.0 has 11 MB and 126,360 rows.
MOST_BYTES = 256 * 2**20
MOST_UNPACKED = 2 * 2**30
MOST_ROWS = 1_000_000
MOST_TABLES = 20_000
MOST_COLUMNS = 200
MOST_WORDS = 10_000
SUFFIX = "_perf.parquet"

# What names of folders look like. Others are left out.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class TableFile:
    """One Parquet file: the times of one kind of kernel on a GPU with one version of a framework."""

    machine: str
    family: str
    framework: str
    version: str
    stem: str
    """The name of the file without its ending, such as `gemm`."""
    path: Path

    @property
    def source(self) -> str:
        """`vllm 0.24.0`."""
        return f"{self.framework} {self.version}"


@cache
def folder() -> Path | None:
    """The folder with data sheets and tables; None if the package is not installed."""
    if named := os.environ.get(FOLDER):
        return Path(named)
    try:
        found = util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        found = None
    places = found.submodule_search_locations if found is not None else None
    return next((Path(place) / "systems" for place in places or () if (Path(place) / "systems").is_dir()), None)


def require_folder() -> Path:
    """The folder; `Unavailable` says how to install the package."""
    found = folder()
    if found is None:
        raise Unavailable("the published kernel times of GPUs are in a package that is not installed", remedy=REMEDY)
    if not (found / "data").is_dir():
        raise BadInput(f"{printable(str(found))} has no folder data with tables; {FOLDER} names the folder systems")
    return found


@cache
def machines() -> tuple[str, ...]:
    """The names of GPUs that have a data sheet and tables; none without the package."""
    found = folder()
    if found is None or not (found / "data").is_dir():
        return ()
    names = (path.name for path in (found / "data").iterdir() if _NAME.fullmatch(path.name) and path.is_dir())
    with_sheet = (name for name in names if (found / f"{name}.yaml").is_file())
    return tuple(sorted(name for name in with_sheet if any((found / "data" / name).glob(f"*/*/*/*{SUFFIX}"))))


def is_machine(text: str) -> bool:
    """Whether this is the name of a GPU of the package, exactly."""
    return text.lower() in machines()


def find(text: str) -> str:
    """The GPU with this name, ignoring case; `BadInput` lists the names."""
    require_folder()
    if not is_machine(text):
        known = machines()
        raise BadInput(
            f"{shorten(text)!r} is no GPU of the published tables; there are {', '.join(known)}"
            f"{did_you_mean(text.lower(), known)}"
        )
    return text.lower()


@cache
def tables(machine: str) -> tuple[TableFile, ...]:
    """All tables of a GPU."""
    return tuple(_tables(require_folder() / "data" / machine, machine))


def _tables(root: Path, machine: str) -> Iterator[TableFile]:
    found = 0
    for path in sorted(root.glob(f"*/*/*/*{SUFFIX}")):
        family, framework, version, name = path.relative_to(root).parts
        if all(_NAME.fullmatch(part) for part in (family, framework, version, name)):
            found += 1
            if found > MOST_TABLES:
                raise BadInput(f"{printable(str(root))} has more than {MOST_TABLES} tables")
            yield TableFile(machine, family, framework, version, name.removesuffix(SUFFIX), path)


def facts(file: TableFile) -> tuple[str, ...]:
    """What changes when a table is replaced: its place, size and date."""
    try:
        status = file.path.stat()
    except OSError as error:
        raise BadInput(f"cannot read {printable(str(file.path))}: {error.strerror}") from None
    return *file.path.parts[-5:], str(status.st_size), str(status.st_mtime_ns)


def row_count(file: TableFile) -> int:
    """How many rows a table has, by its last bytes."""
    with _opened(file.path) as (_, metadata):
        return int(metadata.num_rows)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], Any]]:
    """A table and its metadata. `BadInput` says what is wrong with it, also while it is read."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise Unavailable("Parquet tables need PyArrow", remedy=REMEDY) from None
    named = printable(str(path))
    with open_regular(path, MOST_BYTES, "a table in Parquet") as stream:
        try:
            metadata = parquet.read_metadata(stream)
            unpacked = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
            rows, columns = metadata.num_rows, metadata.num_columns
            if not (0 <= rows <= MOST_ROWS and 0 <= unpacked <= MOST_UNPACKED and columns <= MOST_COLUMNS):
                raise BadInput(
                    f"{named} has {rows} rows, {columns} columns and {unpacked} bytes; "
                    f"at most {MOST_ROWS}, {MOST_COLUMNS} and {MOST_UNPACKED} are read"
                )
            yield stream, metadata
        except (ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
            raise BadInput(f"{named} cannot be read as a table in Parquet: {shorten(printable(str(error)))}") from None


def read(file: TableFile, integers: Mapping[str, int | None], texts: Mapping[str, str | None]) -> RawColumns:
    """Some columns of a table: whole numbers, texts, and `latency` in milliseconds as `seconds`.

    Args:
        file: the table.
        integers: names of columns with whole numbers, with the value where the table has no such column; None:
            the table must have it.
        texts: the same of columns with texts.

    `BadInput` for a table that lacks a column, or has another type in it.
    """
    import numpy as np

    with _opened(file.path) as (stream, metadata):
        from pyarrow import parquet, types

        named = printable(str(file.path))
        # A text takes memory once, however many rows have it: some kilobytes could become terabytes.
        repeated = {metadata.schema.column(i).path for i in range(metadata.num_columns)} & set(texts)
        opened = parquet.ParquetFile(stream, metadata=metadata, read_dictionary=sorted(repeated))
        schema = opened.schema_arrow
        wanted = [*integers, *texts, LATENCY]
        having = [name for name in wanted if schema.get_field_index(name) >= 0]
        missing = [n for n in wanted if n not in having and (n == LATENCY or {**integers, **texts}[n] is None)]
        if missing:
            names = shorten(", ".join(map(printable, schema.names)))
            raise BadInput(f"{named} has no column {missing[0]}; it has {names}")
        for name in having:
            kind = schema.field(name).type
            if types.is_dictionary(kind):
                kind = kind.value_type
            is_text = types.is_string(kind) or types.is_large_string(kind)
            is_number = types.is_integer(kind) or (name == LATENCY and types.is_floating(kind))
            if not (is_text if name in texts else is_number):
                raise BadInput(f"{named}: the column {name} has the type {shorten(printable(str(kind)))}")
        table = opened.read(columns=having)
        rows = table.num_rows
        whole = {
            name: table.column(name).cast("int64").fill_null(-1).to_numpy()
            if name in having
            else np.full(rows, default, np.int64)
            for name, default in integers.items()
        }
        words = {
            name: _words(table.column(name), f"{named}: the column {name}")
            if name in having
            else Words.same(str(default), rows)
            for name, default in texts.items()
        }
        milliseconds = table.column(LATENCY).cast("float64").fill_null(float("nan")).to_numpy()
    return RawColumns(whole, words, milliseconds * 1e-3)


def _words(column: Any, named: str) -> Words:
    """A column of texts, by the different ones."""
    import numpy as np
    from pyarrow import compute, types

    coded = column if types.is_dictionary(column.type) else compute.dictionary_encode(column)
    chunks = coded.unify_dictionaries().chunks
    texts = chunks[0].dictionary if chunks else ()
    if len(texts) > MOST_WORDS:
        raise BadInput(f"{named} has {len(texts)} different texts; at most {MOST_WORDS} are read")
    values = [printable(str(text.as_py() or "")[:200]) for text in texts]
    codes = [chunk.indices.cast("int64").fill_null(len(values)).to_numpy(zero_copy_only=False) for chunk in chunks]
    return Words([*values, ""], np.concatenate([np.zeros(0, np.int64), *codes]))


LATENCY = "latency"


@dataclass(frozen=True)
class Words:
    """A column of texts: the different ones, and which of them each row has."""

    values: list[str]
    codes: Array

    @classmethod
    def same(cls, value: str, rows: int) -> Words:
        """The same text in every row."""
        import numpy as np

        return cls([value], np.zeros(rows, np.int64))

    def mapped(self, known: Mapping[str, int], other: int = -1) -> Array:
        """A number for each row by its text; `other` for texts that are unknown."""
        import numpy as np

        numbers = np.array([known.get(value, other) for value in self.values] or [other], np.int64)
        found: Array = numbers[self.codes]
        return found


@dataclass(frozen=True)
class RawColumns:
    """Columns of a table, as they are in the file."""

    integers: dict[str, Array]
    words: dict[str, Words]
    seconds: Array
