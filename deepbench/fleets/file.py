"""Fleet files: the results of the same cases on many hosts.

A fleet file is JSON Lines: a header (`schema` deepbench-fleet/1), then one line per host and run with the lines of its
result file, and one line per timed link between two hosts, with its record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from deepbench.core.errors import BadInput
from deepbench.core.json_lines import from_line, printable, sanitized, without_checksum
from deepbench.results.consistency import Consistency
from deepbench.results.file import ResultFile, file_lines, refused, require_few_damaged
from deepbench.results.record import Limit, Record
from deepbench.results.schema import schema_error
from deepbench.results.secrets import without_secrets

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
    lines: list[Any] = field(default_factory=list)
    """The header, limits and records of its result file."""

    @property
    def records(self) -> list[Record]:
        """The records among the lines."""
        return [line for line in self.lines if "case" in line]

    @property
    def limits(self) -> list[Limit]:
        """The limits among the lines."""
        return [line["limit"] for line in self.lines if "limit" in line]

    def marked(self, consistency: Consistency) -> HostRun:
        """The same with the status `inconsistent` where a record contradicts itself or the limits of the host."""
        others = [line for line in self.lines if "case" not in line]
        return replace(self, lines=others + consistency.marked(self.records, self.limits))


@dataclass
class FleetFile:
    """The content of a fleet file."""

    path: Path
    header: dict[str, Any]
    runs: list[HostRun] = field(default_factory=list)
    links: list[tuple[Pair, Record]] = field(default_factory=list)
    truncated: bool = False
    """Whether an incomplete last line was ignored."""
    damaged: list[int] = field(default_factory=list)
    """The numbers of the lines that were left out because they are damaged; the header is line 1."""

    @property
    def hosts(self) -> list[str]:
        """The expected hosts, then others that joined."""
        return list(dict.fromkeys([*self.header["expected"], *(r.host for r in self.runs)]))

    def results_of(self, host: str) -> ResultFile:
        """All runs of one host as an ordinary result file, each run as a round."""
        runs = [r for r in self.runs if r.host == host and r.lines]
        if not runs:
            raise BadInput(f"{self.path} has no results of host {host[:60]!r}; it has {', '.join(self.hosts)}")
        merged = ResultFile(self.path, runs[0].lines[0], truncated=self.truncated, damaged=self.damaged)
        for run in runs:
            merged.limits += run.limits
            merged.records += [record | {"round": run.run} for record in run.records]
        return merged


def read_fleet(path: Path, skip_damaged: bool = False) -> FleetFile:
    """Read and check a fleet file; `BadInput` names the damaged lines and what is wrong with the first.

    With `skip_damaged` they are left out instead.
    """
    content: FleetFile | None = None
    damaged: dict[int, str] = {}
    consistency = Consistency()
    for number, line in enumerate(file_lines(path), 1):
        if not line.endswith(b"\n"):
            if content is not None:
                content.truncated = True
            break
        try:
            value = from_line(without_checksum(line[:-1], content is not None and "checksums" in content.header))
            value = sanitized(value)
            if content is None:
                content = FleetFile(path, _header(value))
                without_checksum(line[:-1], "checksums" in value)
            elif "link" in value:
                a, b = value["link"]
                (record,) = consistency.marked([_record(value["record"])], [])
                content.links.append(((str(a), str(b)), record))
            else:
                if value["status"] not in ("ok", "failed", "missing") or not isinstance(value["run"], int):
                    raise ValueError("unknown status or run")
                what = str(value["host"]), value["run"], value["status"], value["reason"] and str(value["reason"])
                content.runs.append(HostRun(*what, check_lines(value["lines"])).marked(consistency))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = printable(str(error).strip().partition("\n")[0][:200])
            damaged[number] = f"not a line of a fleet file ({reason})"
            if content is None:
                raise BadInput(f"{path}, line {number}: {damaged[number]}") from None
            require_few_damaged(path, damaged)
    if content is None:
        raise BadInput(f"{path} has no complete line; expected a file that `deepbench fleet` wrote")
    if damaged and not skip_damaged:
        raise refused(path, damaged)
    content.damaged = list(damaged)
    return content


def lines_of(text: str) -> list[Any]:
    """The lines of a result file from another host, without checksums; `ValueError` says what is wrong with them."""
    lines = check_lines(sanitized(from_line(without_checksum(line, False))) for line in text.encode().splitlines())
    if lines:
        lines[0].pop("checksums", None)
    return lines


def check_lines(lines: Iterable[Any]) -> list[Any]:
    """The lines of a result file from another host; `ValueError` says what is wrong with them."""
    checked = [_checked(line) for line in lines]
    if any(("schema" in line) != (number == 0) for number, line in enumerate(checked)):
        raise ValueError("a result file has one header, its first line")
    return checked


def _checked(line: Any) -> Any:
    if error := schema_error(line):
        raise ValueError(error)
    return without_secrets(line)


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
