"""Fleet files: the results of the same cases on many hosts.

A fleet file is JSON Lines: a header (`schema` deepbench-fleet/1), then one line per host and run with the lines of its
result file, and one line per timed link between two hosts, with its record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from deepbench.core.errors import BadInput
from deepbench.core.files import open_regular
from deepbench.core.json_lines import from_line, printable, sanitized
from deepbench.results.file import LARGEST_FILE_BYTES, WANTED, ResultFile, file_lines
from deepbench.results.old_files import complete, read_limit, without_secrets
from deepbench.results.record import Record
from deepbench.results.schema import schema_error, semantic_error

SCHEMA = "deepbench-fleet/1"

Pair = tuple[str, str]


@dataclass(frozen=True)
class HostRun:
    """What one host returned in one run."""

    host: str
    run: int
    status: Literal["ok", "failed", "missing"]
    """`ok`: it returned a complete file; `missing`: it has not joined."""
    reason: str | None
    lines: list[Any]
    """The header, limits and records of its result file."""

    @property
    def records(self) -> list[Record]:
        """The records among the lines."""
        return [line for line in self.lines if "case" in line]


@dataclass
class FleetFile:
    """The content of a fleet file."""

    path: Path
    header: dict[str, Any]
    runs: list[HostRun] = field(default_factory=list)
    links: list[tuple[Pair, Record]] = field(default_factory=list)
    truncated: bool = False
    """Whether an incomplete last line was ignored."""

    @property
    def hosts(self) -> list[str]:
        """The expected hosts, then others that joined."""
        return list(dict.fromkeys([*self.header["expected"], *(r.host for r in self.runs)]))

    def results_of(self, host: str) -> ResultFile:
        """All runs of one host as an ordinary result file, each run as a round."""
        runs = [r for r in self.runs if r.host == host and r.lines]
        if not runs:
            raise BadInput(f"{self.path} has no results of host {host[:60]!r}; it has {', '.join(self.hosts)}")
        merged = ResultFile(self.path, runs[0].lines[0])
        for run in runs:
            merged.limits += [limit for line in run.lines if (limit := read_limit(line))]
            merged.records += [record | {"round": run.run} for record in run.records]
        return merged


def is_fleet(path: Path) -> bool:
    """Whether the first line of a file is the header of a fleet file."""
    try:
        with open_regular(path, LARGEST_FILE_BYTES, WANTED) as file:
            value = json.loads(file.readline(1 << 20))
    except (BadInput, OSError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("schema") == SCHEMA


def read_fleet(path: Path) -> FleetFile:
    """Read and check a fleet file; `BadInput` names the line and what is wrong with it."""
    content: FleetFile | None = None
    for number, line in enumerate(file_lines(path), 1):
        if not line.endswith(b"\n"):
            if content is not None:
                content.truncated = True
            break
        try:
            value = sanitized(from_line(line))
            if content is None:
                content = FleetFile(path, _header(value))
            elif "link" in value:
                a, b = value["link"]
                content.links.append(((str(a), str(b)), _record(value["record"])))
            else:
                if value["status"] not in ("ok", "failed", "missing") or not isinstance(value["run"], int):
                    raise ValueError("unknown status or run")
                what = str(value["host"]), value["run"], value["status"], value["reason"] and str(value["reason"])
                content.runs.append(HostRun(*what, check_lines(value["lines"])))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = printable(str(error).strip().partition("\n")[0][:200])
            raise BadInput(f"{path}, line {number}: not a line of a fleet file ({reason})") from None
    if content is None:
        raise BadInput(f"{path} has no complete line; expected a file that `deepbench fleet` wrote")
    return content


def check_lines(lines: Iterable[Any]) -> list[Any]:
    """The lines of a result file from another host; `ValueError` says what is wrong with them."""
    checked = [_checked(line) for line in lines]
    if any(("schema" in line) != (number == 0) for number, line in enumerate(checked)):
        raise ValueError("a result file has one header, its first line")
    return checked


def _checked(line: Any) -> Any:
    error = schema_error(line) or semantic_error(line)
    if error:
        raise ValueError(error)
    line = without_secrets(line)
    return complete(line) if "case" in line else line


def _record(line: Any) -> Record:
    if "case" not in line:
        raise ValueError("no record")
    record: Record = _checked(line)
    return record


def _header(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise ValueError(f"no schema {SCHEMA}")
    expected = value.get("expected")
    if not isinstance(expected, list) or not all(isinstance(host, str) for host in expected):
        raise ValueError("expected must be a list of hosts")
    header: dict[str, Any] = without_secrets(value)
    return header
