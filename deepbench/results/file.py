"""Result files: JSON Lines, one file per run. Each line is appended and flushed as soon as it is known.

Files that gzip compressed (`.jsonl.gz`) are read like others, but not continued.

A result file may come from anyone: each line is compared with its checksum, parsed as strict JSON and checked against
the schema, and nothing in it is executed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import sys
from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from deepbench.core import variables
from deepbench.core.errors import BadInput
from deepbench.core.files import GZIP_MAGIC, SAFELY, NotWritten, decompressed, open_regular
from deepbench.core.json_lines import (
    from_line,
    printable,
    sanitized,
    to_bytes,
    to_line,
    with_checksum,
    without_checksum,
)
from deepbench.results.consistency import Consistency
from deepbench.results.record import MEASURED, SCHEMA, Header, Limit, NetworkSteps, Record, Serving, Training
from deepbench.results.schema import schema_error
from deepbench.results.secrets import without_secrets
from deepbench.results.work import by_case

# Larger than the longest run we expect: all suites with --rigorous, three libraries and two precisions.
LARGEST_FILE_BYTES = 512 * 2**20

# A compressed file grows to this, or to so many times its size. Real ones grow seven times, and a repeated record 200.
LARGEST_GROWN_BYTES = 32 * 2**20
MOST_GROWTH = 20

# A record has some kilobytes, the header of the longest run and all of a host in a fleet some megabytes. JSON of small
# parts needs thirty times its size in memory.
LONGEST_LINE_BYTES = 32 * 2**20

# With more damaged lines it is another file: the number and the reason of each are kept.
MOST_DAMAGED = 10_000

# How the names of files with results end.
JSONL, GZIP = ".jsonl", ".gz"

WANTED = "a result file that `deepbench run` wrote"

# The value of `checksums` in the header of a file whose lines have checksums.
CHECKSUMS = "crc32"

# Numbers of damaged lines that a sentence names.
MOST_NUMBERS = 10


@dataclass
class ResultFile:
    """The content of a result file."""

    path: Path
    header: Header = field(repr=False)
    """Never changed after it was written: make a new one."""
    records: list[Record] = field(default_factory=list, repr=False)
    """Do not change them: records share equal parts. Samples and CPU times are arrays, which JSON does not know."""
    limits: list[Limit] = field(default_factory=list, repr=False)
    steps: list[tuple[int, NetworkSteps]] = field(default_factory=list, repr=False)
    """Steps of networks, and behind how many records they are."""
    training: list[Training] = field(default_factory=list, repr=False)
    """Events of the runs in `plan.training`."""
    serving: list[Serving] = field(default_factory=list, repr=False)
    """Scenarios in which their models answered."""
    complete_bytes: int = 0
    """Length up to the end of the last complete line."""
    truncated: bool = False
    """Whether an incomplete last line was ignored."""
    damaged: list[int] = field(default_factory=list)
    """The numbers of the lines that were left out because they are damaged; the header is line 1."""

    @property
    def order(self) -> list[str]:
        """The texts of the planned cases, in the order of the plan. Rounds are measured in random order."""
        return [planned["case"] for planned in self.header["plan"]["cases"]]

    @property
    def chosen_variables(self) -> dict[str, str]:
        """Environment variables that changed the libraries' own choices, such as OPENBLAS_CORETYPE, by name.

        Groups, and training runs of several ranks, are left out: DeepBench sets such variables for their ranks.
        """
        processes = (r["process"] for r in self.records if not r["is_group"])
        found = (p.get("environment") for p in processes if p is not None)
        # Records share equal parts, so there are few.
        environments = [*{id(e): e for e in found if isinstance(e, dict)}.values(), *self._environments_of_runs()]
        texts = [{name: value for name, value in e.items() if isinstance(value, str)} for e in environments]
        return {name: value for e in texts for name, value in variables.chosen(e).items()}

    def _environments_of_runs(self) -> list[dict[str, str]]:
        alone = {number for number, setup in enumerate(self.header["plan"].get("training", [])) if setup["ranks"] == 1}
        trained = (event["start"] for event in self.training if "start" in event and event["run"] in alone)
        served = (event["start"] for event in self.serving if "start" in event)
        return [start["environment"] for start in chain(trained, served) if "environment" in start]

    @property
    def incomplete(self) -> str | None:
        """What the file lacks of its plan, as a sentence; None if nothing."""
        plan, done = self.header["plan"], by_case(self.records)
        if plan["mode"] == "imported":
            return None
        least = 1 if plan.get("budget_s") else plan["rounds"]["least"]
        missing = sum(text not in done for text in self.order)
        # A case that failed needs no further round.
        few = sum(len(rounds) < least and all(r["status"] in MEASURED for r in rounds) for rounds in done.values())
        parts = [f"{missing:,} of {len(self.order):,} planned cases not measured"] if missing else []
        parts += [f"cases with fewer than {least} rounds: {few:,}"] if few else []
        return f"INCOMPLETE: {'; '.join(parts)}" if parts else None


def title_of(path: Path) -> str:
    """The path without the ending of a result file: `results/mine.jsonl.gz` → `results/mine`."""
    return path.as_posix().removesuffix(GZIP).removesuffix(JSONL)


class Store:
    """A result file opened for appending by one process at a time."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self.path = path
        self._checksums = True

    @classmethod
    def create(cls, path: Path, header: Mapping[str, Any]) -> Store:
        """A new file with its header; `BadInput` if it exists or cannot be created."""
        if path.suffix == GZIP:
            raise BadInput(f"{path}: results are written uncompressed, as they come; leave out {GZIP}")
        try:
            file = open(path, "xb", buffering=0)  # noqa: SIM115  (closed by `close`)
        except FileExistsError:
            raise BadInput(
                f"{path} already exists; continue it with --resume, or choose another name with -o"
            ) from None
        except OSError as error:
            raise NotWritten(path, error) from None
        store = cls(file, path)
        store._lock()
        try:
            store.append({**header, "checksums": CHECKSUMS})
        except BadInput:
            store.discard()
            raise
        return store

    @classmethod
    def reopen(cls, path: Path) -> Store:
        """Lock an existing file. Read it only after that, then call `append_after`."""
        with open_regular(path, LARGEST_FILE_BYTES, WANTED) as compressed:
            if compressed.read(len(GZIP_MAGIC)) == GZIP_MAGIC:
                raise BadInput(
                    f"{path} is compressed, so nothing can be appended; first: gunzip {shlex.quote(str(path))}"
                )
        try:
            file = open(os.open(path, os.O_RDWR | SAFELY), "r+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise BadInput(f"cannot write {printable(str(path))}: {error.strerror}") from None
        store = cls(file, path)
        store._lock()
        return store

    def append_after(self, content: ResultFile) -> None:
        """Append after the last complete line; an incomplete one is removed.

        Lines get checksums if those of the file have them: files of earlier versions have none.
        """
        self._checksums = "checksums" in content.header
        self._truncate(content.complete_bytes)

    def append(self, line: Mapping[str, Any]) -> None:
        """Write one line and flush it. An error leaves no part of the line in the file."""
        start = self._file.tell()
        content = memoryview(_encoded(line, self._checksums))
        try:
            while content:
                content = content[self._file.write(content) :]
        except KeyboardInterrupt:
            self._truncate(start)
            raise
        except OSError as error:
            self._truncate(start)
            raise NotWritten(self.path, error) from None

    def _truncate(self, size: int) -> None:
        self._file.truncate(size)
        self._file.seek(size)

    @property
    def is_in_place(self) -> bool:
        """Whether the file is still where it was opened: nobody has moved, removed or replaced it."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.stat(self.path))
        except OSError:
            return False

    def discard(self) -> None:
        """Close and remove a new file in which nothing is measured yet: it would only block its name."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise BadInput(f"{self.path} is being written by another run; wait until it ends") from None
        except OSError:
            pass  # some network file systems have no locks


def first_line(path: Path) -> dict[str, Any]:
    """The values of the first line, unchecked: they say which kind of file it is. Empty where it cannot be read."""
    try:
        with open_regular(path, LARGEST_FILE_BYTES, WANTED) as file:
            line = decompressed(file, LARGEST_FILE_BYTES).readline(LONGEST_LINE_BYTES)
        value = from_line(line)
    except (BadInput, OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_results(path: Path, skip_damaged: bool = False, checked: bool = True) -> ResultFile:
    """Read and check a result file; `BadInput` names the damaged lines and what is wrong with the first.

    With `skip_damaged` they are left out instead. A record that contradicts itself or the limits in the file gets the
    status `inconsistent`. `checked=False` is for files of this package: their values are read as they are.
    """
    content: ResultFile | None = None
    shared: dict[bytes, Any] = {}
    damaged: dict[int, str] = {}
    for number, line in enumerate(file_lines(path), 1):
        if not line.endswith(b"\n"):
            if content is not None:
                content.truncated = True
            break
        if content is None:
            content = ResultFile(path, _header(path, line[:-1]))
        else:
            try:
                has_checksum = "checksums" in content.header
                value = (_parse if checked else _json)(line[:-1], has_checksum, "binary or damaged")
            except ValueError as error:
                damaged[number] = str(error)
                require_few_damaged(path, damaged)
            else:
                if "schema" in value:
                    raise BadInput(f"{path}, line {number}: a second header; were files concatenated?")
                if "limit" in value:
                    content.limits.append(value["limit"])
                elif "training" in value:
                    content.training.append(value["training"])
                elif "serving" in value:
                    content.serving.append(value["serving"])
                elif "step" in value:
                    content.steps.append((len(content.records), value["step"]))
                else:
                    content.records.append(_compact(value, shared) if checked else value)
        content.complete_bytes += len(line)
    if content is None:
        raise BadInput(f"{path} has no complete line: it is not a result file, or it was truncated")
    if damaged and not skip_damaged:
        raise refused(path, damaged)
    content.damaged = list(damaged)
    if checked:
        is_here = not content.header["plan"].get("hosts")
        cpus = content.header["machine"].get("cpus_allowed") if is_here else None
        content.records = Consistency().marked(content.records, content.limits, cpus)
    return content


def refused(path: Path, damaged: Mapping[int, str]) -> BadInput:
    """The error of a file with damaged lines, by their number and what is wrong with each."""
    number, reason = next(iter(damaged.items()))
    what = f"{path}, line {number}: {reason}"
    if len(damaged) > 1:
        what = f"{path}: {damage_text(damaged)}; line {number}: {reason}"
    readers = "show, compare, gate, report and site read the other lines with --skip-damaged"
    return BadInput(f"{what}; {readers} (Python: skip_damaged=True)")


def require_few_damaged(path: Path, damaged: Collection[int]) -> None:
    """`BadInput` if more lines are damaged than in any file that is worth to be read."""
    if len(damaged) > MOST_DAMAGED:
        raise BadInput(f"{printable(str(path))} has more than {MOST_DAMAGED} damaged lines; expected {WANTED}")


def damage_text(numbers: Collection[int]) -> str:
    """Such as `3 damaged lines (12, 40, 41)`."""
    named = ", ".join(map(str, sorted(numbers)[:MOST_NUMBERS])) + ", …" * (len(numbers) > MOST_NUMBERS)
    return f"{len(numbers)} damaged line{'s' if len(numbers) > 1 else ''} ({named})"


def file_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, which may be compressed; `BadInput` if it cannot be read or is too large."""
    with open_regular(path, LARGEST_FILE_BYTES, WANTED) as file:
        stored = os.fstat(file.fileno()).st_size
        if stored == 0:
            raise BadInput(f"{printable(str(path))} is empty; expected {WANTED}")
        try:
            size = number = 0
            content, most = decompressed(file, LARGEST_FILE_BYTES), LARGEST_FILE_BYTES
            if content is not file:
                most = min(most, max(LARGEST_GROWN_BYTES, MOST_GROWTH * stored))
            while line := content.readline(LONGEST_LINE_BYTES + 1):
                size += len(line)
                number += 1
                if len(line) > LONGEST_LINE_BYTES:
                    raise BadInput(
                        f"{printable(str(path))}, line {number}: it has more than {LONGEST_LINE_BYTES} bytes; "
                        f"expected {WANTED}"
                    )
                if size > most:
                    has = f"{printable(str(path))} has more than {most} bytes"
                    more = "" if content is file else f" once it is decompressed, from {stored}"
                    raise BadInput(f"{has}{more}; expected {WANTED}")
                yield line
        except OSError as error:
            raise BadInput(f"cannot read {printable(str(path))}: {error.strerror}") from None


def _header(path: Path, line: bytes) -> Header:
    """The checked header; without it no line can be read."""
    try:
        value = _json(line, False, "not a result file of deepbench")
        _check_schema_name(path, value)
        without_checksum(line, "checksums" in value)
        _check_schema(value)
    except ValueError as error:
        raise BadInput(f"{path}, line 1: {error}; nothing was read") from None
    return cast(Header, without_secrets(value))


def _parse(line: bytes, has_checksum: bool, cause: str) -> Any:
    """The checked value of a line after the header; `ValueError` says what is wrong with it."""
    value = _json(line, has_checksum, cause)
    _check_schema(value)
    return without_secrets(value)


def _json(line: bytes, has_checksum: bool, cause: str) -> Any:
    line = without_checksum(line, has_checksum)
    try:
        value = from_line(line)
        if b"\\" in line or not line.decode().isprintable():
            value = sanitized(value)
    except (ValueError, RecursionError):
        raise ValueError(f"not JSON ({cause})") from None
    return value


def _check_schema(value: Any) -> None:
    if reason := schema_error(value):
        raise ValueError(f"{reason}; see docs/results.md")


# Parts that many of the up to 100,000 records of a file have in common. Equal ones are kept once.
SHARED = (
    *("problem", "settings", "types", "sources", "other_flop", "library", "notes", "warnings"),
    *("variants", "baselines"),
)
SHARED_IN_PROCESS = ("cpus", "openmp_runtimes", "environment", "rules")
SHARED_IN_CHECK = ("before", "after")
SHARED_IN_MEASUREMENT = ("steal_s", "involuntary_switches", "slices")  # mostly equal
SHARED_TEXTS = (
    *("case", "op", "direction", "precision", "backend", "status"),
    *("device", "library_title", "problem_title"),
)

# Lists of a measurement whose numbers all differ: an array takes a quarter of the memory.
ARRAYS = ("samples_s", "cpu_s")


def _compact(record: Any, shared: dict[bytes, Any]) -> Record:
    """The same record in half the memory. `shared` holds the parts of earlier records by their JSON."""
    for name in SHARED_TEXTS:
        record[name] = sys.intern(record[name])
    measurement = record["measurement"]
    for name in ARRAYS if measurement else ():
        if None not in measurement[name]:
            measurement[name] = array("d", measurement[name])
    owners = (
        (record, SHARED),
        (record["check"], SHARED_IN_CHECK),
        (record["process"], SHARED_IN_PROCESS),
        (measurement, SHARED_IN_MEASUREMENT),
    )
    with contextlib.suppress(TypeError):  # too deeply nested for orjson
        for owner, names in owners:
            for name in names if owner else ():
                if name in owner:
                    owner[name] = shared.setdefault(to_bytes(owner[name]), owner[name])
    return record  # type: ignore[no-any-return]


def plain_record(record: Record) -> Record:
    """The same record with lists where the reader keeps arrays."""
    measurement = record["measurement"]
    if not measurement:
        return record
    lists = {name: list(value) for name, value in measurement.items() if isinstance(value, array)}
    return cast(Record, {**record, "measurement": {**measurement, **lists}})


def lines_of(file: ResultFile) -> Iterator[bytes]:
    """The lines of a file with this content: header, limits, records with steps of networks between, applications."""
    lines: list[Mapping[str, Any]] = [file.header, *({"limit": limit} for limit in file.limits)]
    steps = list(file.steps)
    for number, record in enumerate(file.records):
        while steps and steps[0][0] <= number:
            lines.append({"step": steps.pop(0)[1]})
        lines.append(plain_record(record))
    lines += [{"step": step} for _, step in steps]
    lines += [{"training": event} for event in file.training]
    lines += [{"serving": line} for line in file.serving]
    for line in lines:
        yield _encoded(line, "checksums" in file.header)


def _encoded(line: Mapping[str, Any], checksum: bool) -> bytes:
    text = to_line(line).encode()
    return with_checksum(text[:-1]) + b"\n" if checksum else text


def _check_schema_name(path: Path, value: Any) -> None:
    name = value.get("schema") if isinstance(value, dict) else None
    if name == SCHEMA:
        return
    if isinstance(name, str) and name.startswith("deepbench/"):
        raise BadInput(f"{path} has schema {name[:40]}, but this version reads {SCHEMA}; use a newer DeepBench")
    raise BadInput(f"{path}, line 1: no schema {SCHEMA}; expected a result file that `deepbench run` wrote")


def default_path(folder: Path, stamp: str) -> Path:
    """An unused file name such as `deepbench-20261121-113000.jsonl`."""
    path = folder / f"deepbench-{stamp}.jsonl"
    count = 1
    while os.path.lexists(path):
        count += 1
        path = folder / f"deepbench-{stamp}-{count}.jsonl"
    return path
