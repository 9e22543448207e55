"""The results of many files over time: `history` reads them, and says when a case became slower or faster."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepbench.api.filters import Choice
from deepbench.api.results import everything_stays, load
from deepbench.core.aliases import did_you_mean
from deepbench.core.errors import BadInput, Unavailable, shorten
from deepbench.core.json_lines import printable
from deepbench.core.words import join
from deepbench.reporting.progress import shown

if TYPE_CHECKING:
    from deepbench.core.progress import Progress
    from deepbench.judge.history import CollectedRuns, History, MachineHistory, TimedRun
    from deepbench.reporting.output import Report
    from deepbench.results.file import ResultFile
    from deepbench.results.record import Record

# More files, or more of their bytes, are not read: they would take an hour.
MOST_FILES, MOST_BYTES = 100_000, 16 * 2**30

# Names that a message lists.
MOST_NAMED = 8


def history(
    sources: str | Path | Iterable[str | Path],
    *,
    ops: Choice = None,
    backends: Choice = None,
    precisions: Choice = None,
    directions: Choice = None,
    applications: Choice = None,
    threads: int | Iterable[int] | None = None,
    ranks: int | Iterable[int] | None = None,
    device: str | None = None,
    settings: Mapping[str, Choice] | None = None,
    hosts: Choice = None,
    since: str | datetime | None = None,
    ignore_host: bool = False,
    margin: float | None = None,
    skip_damaged: bool = False,
    progress: bool | Progress = False,
) -> HistoryResults:
    """Each case of many result files over time, with the points at which it became slower or faster.

    Args:
        sources: a folder with result files and fleet files, also in its subfolders; or several folders and files.
        ops, backends, precisions, directions, applications, threads, ranks: only cases with these.
        device: only cases on this device, such as `cuda`.
        settings: only cases with these settings, such as `{"weights": "packed"}`.
        hosts: only these hosts; `node*` stands for several.
        since: only runs that began at this date or later: ISO 8601, in UTC where it names no time zone.
        ignore_host: put hosts of one kind into one series, for runners whose names change.
        margin: changes below this share do not count; None: 2 %.
        skip_damaged: leave out damaged lines of files.
        progress: True shows a progress bar; a function is called with an `Activity` per file.

    Change points need ruptures; without it there are none, and `not_searched` says so. Files that cannot be read are
    left out: `refused` says which and why. `BadInput` where nothing is left, or where there is too much to read.
    """
    from deepbench.core.progress import Activity
    from deepbench.judge import change_points
    from deepbench.judge.history import CollectedRuns, History, TooMuch, explain, find_changes

    now = datetime.now(UTC)
    names = {"op": ops, "backend": backends, "precision": precisions, "direction": directions, "threads": threads}
    chosen = _ChosenCases(
        {name: _several(values) for name, values in names.items() if values is not None},
        {text.casefold() for text in _several(applications)},
        _several(ranks),
        device,
        {name: _several(values) for name, values in (settings or {}).items()},
    )
    if margin is not None and not 0 < margin < 1:
        raise BadInput(f"the margin must be between 0 and 1, found {margin!r}")
    found = History([], change_points.MARGIN if margin is None else margin)
    runs = CollectedRuns(chosen, now, ignore_host)
    reading = _Reading(runs, found, _several(hosts), _start(since, now), skip_damaged)
    paths = _files([sources] if isinstance(sources, str | Path) else list(sources))
    with everything_stays(), shown(progress) as show:
        try:
            for number, path in enumerate(paths):
                show(Activity(printable(path.name), number, len(paths)))
                reading.read(path)
        except TooMuch as error:
            raise BadInput(f"{error}; name fewer files or cases, or a date with --since (since=)") from None
        found.machines = runs.machines()
        if not found.machines:
            raise BadInput(reading.why_nothing(chosen, len(paths)))
        try:
            find_changes(found.machines, found.margin)
        except Unavailable as error:
            found.not_searched = str(error)
        found.not_explained = explain(found.machines, _reader(skip_damaged))
    return HistoryResults(found)


class HistoryResults:
    """Each case of many files over time: machines, cases, times and change points; a table and a page of them."""

    def __init__(self, found: History) -> None:
        self.found = found

    @property
    def machines(self) -> list[MachineHistory]:
        """By host; each has its `runs` and its `cases`, and a case its `times` and `changes`."""
        return self.found.machines

    @property
    def not_searched(self) -> str | None:
        """Why no change points were searched, and the remedy; None if they were."""
        return self.found.not_searched

    @property
    def refused(self) -> list[str]:
        """Files that could not be read, each with the reason."""
        return self.found.refused

    @property
    def left_out(self) -> list[str]:
        """Files that do not belong to a history, each with the reason."""
        return self.found.left_out

    def report(self, full: bool = False) -> Report:
        """What `deepbench history` prints; `full`: all machines and cases, also those that did not change."""
        from deepbench.reporting import history as tables

        return tables.report(self.found, full)

    def page(self, title: str | None = None) -> bytes:
        """A page with a chart per case. It needs no other file and no network."""
        from deepbench.reporting.page import history as pages

        return pages.page(self.found, title)

    def write_page(self, output: str | Path, title: str | None = None) -> None:
        """Write this page; one that exists is replaced."""
        from deepbench.core.files import replacing

        if not str(output).lower().endswith((".html", ".htm")):
            raise BadInput(f"the page needs a name that ends in .html, found {str(output)[-60:]!r}")
        page = self.page(title)
        with replacing(Path(output)) as draft:
            draft.write_bytes(page)

    def __repr__(self) -> str:
        from deepbench.reporting.table import plain_text

        return plain_text(self.report().print)


# ---- which files


@dataclass
class _Reading:
    """Reads files into runs; what cannot be read or does not belong there is listed with its reason."""

    runs: CollectedRuns
    found: History
    hosts: tuple[str, ...]
    start: datetime | None
    skip_damaged: bool
    other_hosts: dict[str, None] = field(default_factory=dict)
    earlier: int = 0

    def read(self, path: Path) -> None:
        """Add a file, or each host of a fleet file."""
        from deepbench.judge.history import INCONSISTENT
        from deepbench.results.file import first_line

        # The first line is enough to see that a file is too old.
        if self.start is not None and self._is_before(first_line(path).get("started")):
            self.earlier += 1
            return
        try:
            results = load(path, skip_damaged=self.skip_damaged)
        except BadInput as error:
            self.found.refused.append(str(error))
            return
        except INCONSISTENT as error:
            self.found.refused.append(_named(path, None, _inconsistent(error)))
            return
        try:
            parts = results.by_host()
        except BadInput as error:
            self.found.left_out.append(str(error))
            return
        for host, file in parts:
            self._add(path, host, file)

    def _add(self, path: Path, name: str | None, file: ResultFile) -> None:
        from deepbench.judge.history import INCONSISTENT, TooMuch, host_of

        host = name or host_of(file.header["machine"])
        if self.hosts and not any(fnmatchcase(host or "", pattern) for pattern in self.hosts):
            self.other_hosts.setdefault(host or "(no name)")
        elif self._is_before(file.header["started"]):
            self.earlier += 1
        else:
            try:
                self.runs.add(file, name)
            except TooMuch:
                raise
            except BadInput as error:
                self.found.left_out.append(_named(path, name, str(error)))
            except INCONSISTENT as error:
                self.found.refused.append(_named(path, name, _inconsistent(error)))

    def _is_before(self, started: Any) -> bool:
        """Whether a header says that the run began too early; False where it says nothing that can be understood."""
        from deepbench.judge.history import moment

        try:
            return self.start is not None and isinstance(started, str) and moment(started, self.runs.now) < self.start
        except BadInput:
            return False

    def why_nothing(self, chosen: _ChosenCases, files: int) -> str:
        """Why there is no history, and what to do next."""
        if self.hosts and self.other_hosts:
            there = join([shorten(printable(name)) for name in list(self.other_hosts)[:MOST_NAMED]])
            return f"no file is of the host {shorten(printable(self.hosts[0]))}; there are results of {there}"
        if unknown := chosen.unknown():
            return unknown
        if self.earlier:
            return (
                f"no run began at that date or later: {self.earlier} began before; wanted an earlier date with --since"
            )
        if reasons := [*self.found.refused, *self.found.left_out]:
            more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
            return f"none of {files} files has a history: {reasons[0]}{more}"
        return f"no case of {files} files passes the filters; leave one of them out"


def _files(sources: Sequence[str | Path]) -> list[Path]:
    """All result files of these folders, and files that are named; `BadInput` where there is none, or too much."""
    found: dict[str, Path] = {}
    size = 0
    for source in map(Path, sources):
        for path in _of_source(source):
            if (real := os.path.realpath(path)) in found:
                continue
            found[real] = path
            try:
                size += os.stat(path).st_size
            except OSError:
                continue  # reading it says why
            if len(found) > MOST_FILES or size > MOST_BYTES:
                what = f"{MOST_FILES} result files" if len(found) > MOST_FILES else f"{MOST_BYTES} bytes of results"
                raise BadInput(f"{printable(str(source))} has more than {what}; name a smaller folder")
    if not found:
        named = ", ".join(shorten(printable(str(source))) for source in sources) or "nothing"
        raise BadInput(f"there are no result files (.jsonl, .jsonl.gz) in {named}; wanted a folder of them")
    return list(found.values())


def _of_source(source: Path) -> Iterator[Path]:
    """A file, or the result files in a folder and its subfolders, but not in hidden ones."""
    from deepbench.results.file import GZIP, JSONL

    if not source.is_dir():
        if not os.path.lexists(source):
            raise BadInput(f"{printable(str(source))} does not exist; wanted a folder of result files")
        yield source
        return
    for root, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.endswith((JSONL, JSONL + GZIP)):
                yield Path(root) / name


def _reader(skip_damaged: bool) -> Any:
    """A function that reads the file of a run again. Of the last ones nothing is read twice."""

    @lru_cache(maxsize=2)
    def parts(path: Path) -> dict[str | None, ResultFile]:
        return dict(load(path, skip_damaged=skip_damaged).by_host())

    def read(run: TimedRun) -> ResultFile:
        try:
            return parts(run.path)[run.of_host]
        except KeyError:
            raise BadInput(f"{printable(str(run.path))} has changed") from None

    return read


def _inconsistent(error: Exception) -> str:
    return printable(f"its values are inconsistent ({type(error).__name__}: {shorten(str(error), 200)})")


def _named(path: Path, host: str | None, reason: str) -> str:
    of_host = f", host {shorten(printable(host))}" if host else ""
    return f"{printable(str(path))}{of_host}: {reason}"


# ---- which cases


@dataclass(frozen=True)
class _ChosenCases:
    """Whether the case of a record passes the filters, and which words the records have."""

    words: Mapping[str, tuple[Any, ...]]
    applications: set[str]
    ranks: tuple[int, ...]
    device: str | None
    settings: Mapping[str, tuple[str, ...]]
    known: dict[str, dict[Any, None]] = field(default_factory=dict)

    def __call__(self, record: Record) -> bool:
        values: Mapping[str, Any] = record
        for name in self.words:
            self.known.setdefault(name, {}).setdefault(values[name])
        return (
            all(values[name] in wanted for name, wanted in self.words.items())
            and (not self.ranks or record["problem"].get("ranks") in self.ranks)
            and (self.device is None or record["device"] in (self.device, self.device.partition(":")[0]))
            and all(record["settings"].get(name) in wanted for name, wanted in self.settings.items())
            and (not self.applications or self._has_application(record))
        )

    def _has_application(self, record: Record) -> bool:
        named = (source["application"] for source in record["sources"])
        return any(name is not None and name.casefold() in self.applications for name in named)

    def unknown(self) -> str | None:
        """A word that no record has, in a sentence with those that there are."""
        for name, wanted in self.words.items():
            known = list(map(str, self.known.get(name, {})))
            if known and not set(map(str, wanted)) & set(known):
                hint = did_you_mean(str(wanted[0]), known)
                there = ", ".join(map(shorten, known[:MOST_NAMED])) + ", …" * (len(known) > MOST_NAMED)
                return f"no case has the {name} {shorten(str(wanted[0]))}{hint}; there are {there}"
        return None


def _several(values: Any) -> tuple[Any, ...]:
    return () if values is None else (values,) if isinstance(values, str | int) else tuple(dict.fromkeys(values))


def _start(since: str | datetime | None, now: datetime) -> datetime | None:
    """The first moment that counts."""
    if since is None:
        return None
    try:
        found = datetime.fromisoformat(since) if isinstance(since, str) else since
        found = (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadInput(f"--since wants a date such as 2026-03-01, found {shorten(printable(str(since)))!r}") from None
    if found > now:
        raise BadInput(f"--since {shorten(printable(str(since)))} is in the future; wanted an earlier date")
    return found
