"""Result files: JSON Lines, appended and flushed record by record, one file a run.

A file is data from a stranger: it is parsed as strict JSON, checked against the schema, and nothing in it is run.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from deepbench.core.errors import BadInput
from deepbench.core.json_lines import from_line, printable, sanitized, to_bytes, to_line
from deepbench.results.limit import Limit, read_limit
from deepbench.results.record import SCHEMA, Record
from deepbench.results.schema import schema_error, semantic_error

# The longest run so far imagined (all suites, --rigorous, three libraries, two precisions) stays below.
LARGEST_FILE_BYTES = 512 * 2**20


@dataclass
class ResultFile:
    """What a result file says."""

    path: Path
    header: dict[str, Any]
    records: list[Record] = field(default_factory=list)
    """As in the file, but equal parts are one object, and samples and their CPU times arrays: not to be changed."""
    limits: list[Limit] = field(default_factory=list)
    alike: dict[bytes, Any] = field(default_factory=dict, repr=False)
    """While reading: parts of records that several have, by their JSON."""
    complete_bytes: int = 0
    """Length up to the last complete line."""
    truncated: bool = False
    """Whether an incomplete line follows it, which is ignored."""

    @property
    def order(self) -> list[str]:
        """The texts of the planned cases: rounds are in random order, tables are not."""
        return [planned["case"] for planned in self.header["plan"]["cases"]]


class Store:
    """A result file open for appending; one process at a time."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self.path = path

    @classmethod
    def create(cls, path: Path, header: dict[str, Any]) -> Store:
        """A new file with its first line; `BadInput` when it is there already or cannot be made."""
        try:
            file = open(path, "xb", buffering=0)  # noqa: SIM115  (closed by `close`)
        except FileExistsError:
            raise BadInput(
                f"{path} is there already; go on with it by --resume, or choose another name with -o"
            ) from None
        except OSError as error:
            raise BadInput(f"cannot write {path}: {error.strerror}; choose another name with -o") from None
        store = cls(file, path)
        store._lock()
        try:
            store.append(header)
        except BadInput:
            store.close()
            path.unlink(missing_ok=True)  # nothing is in it, so nothing is lost
            raise
        return store

    @classmethod
    def reopen(cls, path: Path) -> Store:
        """An existing file, to append to after `append_after`. Open it before reading it, so that nobody else writes."""
        try:
            file = open(path, "r+b", buffering=0)  # noqa: SIM115
        except FileNotFoundError:
            raise BadInput(f"{printable(str(path))} does not exist; wanted a file that `deepbench run` wrote") from None
        except OSError as error:
            raise BadInput(f"cannot write {printable(str(path))}: {error.strerror}") from None
        store = cls(file, path)
        store._lock()
        return store

    def append_after(self, found: ResultFile) -> None:
        """Append behind the last complete line; a torn one is cut off."""
        self._file.truncate(found.complete_bytes)
        self._file.seek(found.complete_bytes)

    def append(self, line: dict[str, Any]) -> None:
        """Write one line and hand it to the operating system; all of it is in the file, or none."""
        start = self._file.tell()
        content = memoryview(to_line(line).encode())
        try:
            while content:
                content = content[self._file.write(content) :]
        except KeyboardInterrupt:
            self._undo(start)
            raise
        except OSError as error:
            self._undo(start)
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            remedy = "free some space" if full else "mend it"
            raise BadInput(
                f"cannot write {self.path}: {error.strerror}; what was measured before is kept; "
                f"{remedy}, then go on with: deepbench run --resume -o {self.path}"
            ) from None

    def _undo(self, start: int) -> None:
        self._file.truncate(start)
        self._file.seek(start)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise BadInput(f"{self.path} is being written by another run; wait for it to end") from None
        except OSError:
            pass  # some network file systems have no locks


def read_results(path: Path) -> ResultFile:
    """Read and check a result file; `BadInput` in one sentence for anything else."""
    found = ResultFile(path, {})
    for number, line in enumerate(file_lines(path), 1):
        if not line.endswith(b"\n"):
            found.truncated = True
            break
        _add(found, number, line[:-1])
        found.complete_bytes += len(line)
    found.alike.clear()
    if not found.complete_bytes:
        raise BadInput(f"{path} has no complete line: it is not a result file, or was cut off at once")
    return found


def file_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file that may be one of ours; `BadInput` for what cannot be read or is too large."""
    try:
        if not path.is_file():
            kind = "is a folder" if path.is_dir() else "is no regular file" if path.exists() else "does not exist"
            raise BadInput(f"{path} {kind}; wanted a result file that `deepbench run` wrote")
        size = path.stat().st_size
        if size > LARGEST_FILE_BYTES:
            raise BadInput(f"{path} has {size} bytes; result files of up to {LARGEST_FILE_BYTES} bytes are read")
        if size == 0:
            raise BadInput(f"{path} is empty; wanted a result file that `deepbench run` wrote")
        with open(path, "rb") as file:
            yield from file
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"cannot read {printable(str(path))}: {text}") from None


def _add(found: ResultFile, number: int, line: bytes) -> None:
    """Sort one line into header, records or limits."""
    try:
        value = from_line(line)
        # Strict JSON has no control characters but those that it escapes, and one: then there is nothing to clean.
        if not line.isascii() or b"\\" in line or b"\x7f" in line:
            value = sanitized(value)
    except (ValueError, RecursionError):
        what = "binary or cut" if number > 1 else "not a result file of deepbench"
        raise BadInput(f"{found.path}, line {number}: not JSON ({what}); nothing of it was used") from None
    if number == 1:
        _check_schema_name(found.path, value)
    elif isinstance(value, dict) and "schema" in value:
        raise BadInput(f"{found.path}, line {number}: a second first line; was the file concatenated?")
    reason = schema_error(value) or semantic_error(value)
    if reason:
        raise BadInput(f"{found.path}, line {number}: {reason}; see docs/results.md")
    if number == 1:
        found.header = value
    elif limit := read_limit(value):
        found.limits.append(limit)
    else:
        found.records.append(_compact(found, value))


# What most records of a file have alike: kept once, because a file may have a hundred thousand of them.
ALIKE = ("problem", "settings", "types", "sources", "other_flop", "library", "notes", "warnings")
ALIKE_IN_PROCESS = ("cpus", "openmp_runtimes", "environment", "rules")
ALIKE_IN_CHECK = ("before", "after")
ALIKE_IN_MEASUREMENT = ("steal_s", "involuntary_switches")  # mostly noughts
ALIKE_TEXTS = ("case", "op", "direction", "precision", "backend", "status")

# Lists of a measurement in which every number is another: an array takes a quarter of the memory.
LONG = ("samples_s", "cpu_s")


def _compact(found: ResultFile, value: Record) -> Record:
    """The same record in half the memory."""
    parts = (
        (value, ALIKE),
        (value["check"], ALIKE_IN_CHECK),
        (value["process"], ALIKE_IN_PROCESS),
        (value["measurement"], ALIKE_IN_MEASUREMENT),
    )
    for name in ALIKE_TEXTS:
        value[name] = sys.intern(value[name])
    for name in LONG if value["measurement"] else ():
        if None not in value["measurement"][name]:
            value["measurement"][name] = array("d", value["measurement"][name])
    with contextlib.suppress(TypeError):  # nested deeper than anybody needs
        for whole, names in parts:
            for name in names if whole else ():
                if name in whole:
                    whole[name] = found.alike.setdefault(to_bytes(whole[name]), whole[name])
    return value


def _check_schema_name(path: Path, value: Any) -> None:
    name = value.get("schema") if isinstance(value, dict) else None
    if name == SCHEMA:
        return
    if isinstance(name, str) and name.startswith("deepbench/"):
        raise BadInput(f"{path} has schema {name[:40]}, this DeepBench reads {SCHEMA}; use a newer DeepBench")
    raise BadInput(f"{path}, line 1: no schema {SCHEMA}; wanted a result file that `deepbench run` wrote")


def default_path(folder: Path, stamp: str) -> Path:
    """A name that is not taken yet: deepbench-20261121-113000.jsonl."""
    path = folder / f"deepbench-{stamp}.jsonl"
    count = 1
    while os.path.lexists(path):
        count += 1
        path = folder / f"deepbench-{stamp}-{count}.jsonl"
    return path
