"""Result files as Python objects: one class per kind of file, all with the methods that verbs use.

`core/kinds.py` lists the kinds. `load` reads a file with the class of its kind. What a kind does not have, such as a
roofline of trained applications, raises `BadInput` in one sentence: `FileResults` says which.
"""

from __future__ import annotations

import gc
import html
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from deepbench.core.case import Case, Pattern, parse_case, parse_patterns
from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.core.kinds import KERNELS, Kind, kind_of_header, wing
from deepbench.core.op import find_op
from deepbench.core.precision import find_precision
from deepbench.core.words import count
from deepbench.reporting.output import Report
from deepbench.reporting.table import Column, Part, Table, print_parts

# Imports inside functions keep the start of the command short: `list` needs neither sessions nor results.
if TYPE_CHECKING:
    from pandas import DataFrame

    from deepbench.judge.devices import DeviceScaling
    from deepbench.judge.gate import GateVerdict
    from deepbench.judge.limits import Limits
    from deepbench.reporting.page.preset import Preset
    from deepbench.reporting.sections import Sections
    from deepbench.reporting.site import SitePage
    from deepbench.results.file import ResultFile
    from deepbench.results.record import Header, Record
    from deepbench.results.summary import Summary

__all__ = [
    "EXPORTS",
    "FIGURES",
    "VIEWS",
    "Column",
    "FileResults",
    "Gated",
    "Lacks",
    "OnLoad",
    "Part",
    "Report",
    "Results",
    "Table",
    "comparison_report",
    "everything_stays",
    "kind_of",
    "load",
    "load_kernels",
    "print_parts",
    "results_of",
]

OnLoad = Callable[[Mapping[str, str], str], None]
"""Is called with the libraries that are loaded because a file names them, by variable, and with this file."""

EXPORTS = {"xlsx": (".xlsx",), "parquet": (".parquet",), "sqlite": (".db", ".sqlite", ".sqlite3")}
"""What `save_as` writes, and how the names of these files end."""

VIEWS = ("application", "backend", "limit", "excess", "parts", "ranks")
"""What `by` arranges cases by."""

FIGURES = ("roofline", "rates", "ratios")
"""What `plot` draws."""

# Of cases: what a figure needs.
NEEDED = {
    "roofline": "that has a time and computes anything",
    "rates": "that has a time",
    "ratios": "whose times were undisturbed on both sides",
}


@contextmanager
def everything_stays() -> Iterator[None]:
    """Without garbage collection: what is read stays until the end, and collecting takes a third of the time."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def load(path: str | Path, *, skip_damaged: bool = False) -> Any:
    """Read a result file; `BadInput` in one sentence for anything else. Nothing in a file is executed.

    Returns the class of the kind of the file: `Results` of kernels, `TrainingResults`, `ServingResults`,
    `PredictionResults` or `FleetResults`. With `skip_damaged`, damaged lines are left out; `results.damaged` has their
    numbers.
    """
    return kind_of(path).results_class().read(Path(path), skip_damaged)


def load_kernels(path: str | Path, *, skip_damaged: bool = False) -> Results:
    """Read a file of kernels; `BadInput` for a file of another kind."""
    found = load(path, skip_damaged=skip_damaged)
    return found if isinstance(found, Results) else found.refuse("wanted here are kernels, of deepbench run")


def results_of(file: ResultFile) -> Any:
    """The content of a file as the class of its kind."""
    return kind_of_header(file.header).results_class()(file)


def kind_of(path: str | Path) -> Kind:
    """The kind of a file, by its first line. What cannot be read counts as kernels, whose reader says why."""
    from deepbench.results.file import first_line

    return kind_of_header(first_line(Path(path)))


class FileResults(ABC):
    """What all kinds of result files have: a path, damaged lines, a table, and what verbs do with them."""

    kind: Kind

    def __init__(self, file: Any) -> None:
        self.file = file

    @classmethod
    def read(cls, path: Path, skip_damaged: bool = False) -> Self:
        """The checked content of a file; `BadInput` names what is wrong with it."""
        from deepbench.results.file import read_results

        return cls(read_results(path, skip_damaged))

    @property
    def path(self) -> Path:
        """The file."""
        found: Path = self.file.path
        return found

    @property
    def damaged(self) -> list[int]:
        """The numbers of the lines that were left out because they are damaged."""
        found: list[int] = self.file.damaged
        return found

    @property
    def gaps(self) -> list[str]:
        """Which lines of the file were left out, in sentences."""
        from deepbench.results.file import damage_text

        found = [f"{self.path}: left out {damage_text(self.damaged)}"] if self.damaged else []
        return found + [f"{self.path}: the last line is incomplete and was ignored"] * self.file.truncated

    def heading(self, environment: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
        """Labels and texts above a table: machine, libraries, and how much the file has.

        `environment` is that of a session which has not measured yet.
        """
        from deepbench.reporting.heading import heading

        label, size = self.size_text
        found = [*heading(self.file, environment), (label, f"{size}, file {self.path}")]
        if self.damaged:
            from deepbench.results.file import damage_text

            found.append(("left out", damage_text(self.damaged)))
        return found

    @abstractmethod
    def report(self, full: bool = False) -> Report:
        """What `deepbench show` prints, and the same for programs."""

    @property
    @abstractmethod
    def size_text(self) -> tuple[str, str]:
        """A label and how much the file has, for the heading of tables."""

    def refuse(self, instead: str) -> NoReturn:
        """Say what the file has, and what would be wanted."""
        raise BadInput(f"{printable(str(self.path))} has {self.kind.noun}; {instead}")

    # ---- what verbs ask of a file; a kind that does not have it says so

    def by(self, view: str, full: bool = False) -> Table:
        """Cases arranged in another way (`VIEWS`); `full`: all rows."""
        self.refuse("--by is for files of kernels")

    def save_as(self, form: str, path: Path) -> None:
        """Write the cases in a form of other programs (`EXPORTS`)."""
        self.refuse(f"--{form} is for files of kernels")

    def roofline(self, width: int) -> list[str]:
        """The roofline as lines of text of this width."""
        self.refuse("a roofline is drawn of kernels")

    def plot(
        self,
        output: str | Path | None = None,
        kind: str = "roofline",
        other: Any = None,
        *,
        op: str | None = None,
        precision: str | None = None,
        title: str | None = None,
        width: float = 7.0,
    ) -> Any:
        """Draw a figure (`FIGURES`); returns Matplotlib's `Figure`."""
        self.refuse("figures are drawn of kernels")

    def lacks(self) -> Lacks:
        """What the file lacks to be published."""
        self.refuse("--complete is for files of kernels")

    def host(self, name: str) -> FileResults:
        """The results of one host of a fleet."""
        self.refuse("--host is for files of a fleet, which deepbench fleet writes")

    def by_host(self) -> list[tuple[str | None, ResultFile]]:
        """The files of kernels in it: itself, or one for each host of a fleet with the name of this host."""
        self.refuse("a history is of kernels")

    def logs(self, folder: Path) -> list[Path]:
        """Write the logs of training runs in MLPerf's format; returns their paths."""
        self.refuse("--mllog is for files of deepbench train")

    def compare(self, other: Any, margin: float | None = None, unchecked: bool = False) -> Any:
        """What differs from another file of the same kind; ratios are its times over those of this one."""
        self.refuse("compare takes files of kernels or of trained applications")

    def of_metric(self, metric: str) -> Self:
        """The same with another time of each process in the place of its samples, such as that of the first call."""
        self.refuse("--metric is for files of kernels")

    def comparison(self, other: Any, margin: float, unchecked: bool, full: bool) -> Report:
        """What `deepbench compare` prints."""
        self.refuse("compare takes files of kernels or of trained applications")

    def gate(self, other: Any, margin: float, unchecked: bool = False) -> Gated:
        """Whether anything is slower in another file of the same kind."""
        self.refuse("gate takes files of kernels or of trained applications")

    def measure_again(
        self, other: Any, gated: Gated, margin: float, unchecked: bool, trusted: bool, on_load: OnLoad
    ) -> Gated:
        """Measure the regressions of a gate again, and judge them by that alone."""
        self.refuse("--rerun measures kernels again; measure both files again instead")

    @classmethod
    def write_page(
        cls,
        results: Sequence[Any],
        output: Path,
        title: str | None,
        against: Sequence[str],
        networks: Sequence[str | Path],
        preset: Preset,
    ) -> None:
        """Write a page about files of this kind; the first is compared with each of the others."""
        results[0].refuse("a report is about files of kernels or of applications")

    @classmethod
    def site_page(cls, file: ResultFile, title: str) -> SitePage | None:
        """The page of a file on a site; None where the page of kernels shows it."""
        return None


class Results(FileResults):
    """The results of one file of kernels: one summary per case, the records they come from, and tables of both."""

    kind = KERNELS
    file: ResultFile

    @property
    def header(self) -> Header:
        """The first line: machine, libraries and plan."""
        return self.file.header

    def by_host(self) -> list[tuple[str | None, ResultFile]]:
        """This file; it names its host itself."""
        return [(None, self.file)]

    @cached_property
    def summaries(self) -> list[Summary]:
        """One summary per case, in the order of the plan."""
        from deepbench.results.summary import summarize

        return summarize(self.file.records, self.file.order)

    @cached_property
    def limits(self) -> Limits:
        """The limits of the machine, as far as the file knows them."""
        from deepbench.judge import limits

        return limits.of_file(self.file, self.summaries)

    @cached_property
    def training_steps(self) -> list[DeviceScaling]:
        """Training steps of models on the numbers of devices that the suites name (`devices=1,2,4`)."""
        from deepbench.judge import suite_devices

        return suite_devices.of_summaries(self.summaries)

    @property
    def records(self) -> list[Record]:
        """Every line of the file that measured something, as plain values that `json.dumps` takes."""
        from deepbench.results.file import plain_record

        return [plain_record(record) for record in self.file.records]

    @property
    def cases(self) -> list[Case]:
        """The cases that were planned."""
        return [parse_case(text) for text in self.file.order]

    def __len__(self) -> int:
        return len(self.summaries)

    def __iter__(self) -> Iterator[Summary]:
        return iter(self.summaries)

    def select(self, case: Case | str) -> list[Summary]:
        """The summaries of a case; words of its text may be missing, and then there may be several."""
        patterns = parse_patterns(case.text if isinstance(case, Case) else case)
        return [s for s in self.summaries if any(_fits(pattern, s.record) for pattern in patterns)]

    def samples(self, case: Case | str) -> list[list[float]]:
        """Seconds per call of each sample, one list per process. The words must name one case of the file."""
        chosen = self.select(case)
        if len(chosen) != 1:
            text = shorten(case.text if isinstance(case, Case) else case)
            known = "; ".join(s.record["case"] for s in chosen[:3])
            raise BadInput(
                f"{text!r} is {f'several cases: {known}' if chosen else f'not in {self.path}'}; name one case"
            )
        return [list(r["measurement"]["samples_s"]) for r in chosen[0].rounds if r["measurement"]]

    def table(self, full: bool = False) -> Sections | Table:
        """What the command prints: a section per operation with one row per problem; `full`: one row per library."""
        from deepbench.reporting.cases import library_table
        from deepbench.reporting.sections import sections

        return (library_table if full else sections)(self.summaries, self.limits)

    def report(self, full: bool = False) -> Report:
        """What `deepbench show` prints, and the same for programs."""
        from deepbench.reporting import export

        def show(console: Any) -> None:
            if self.file.incomplete:
                console.print(self.file.incomplete, style="bold red", markup=False)
            console.print()
            self.table(full).print(console)

        return Report(
            show,
            {
                "json": lambda: export.to_json(self.file, self.summaries),
                "csv": lambda: export.to_csv(self.file, self.summaries),
                "markdown": lambda: export.to_markdown(self.file, self.summaries),
            },
        )

    def fastest(self, op: str | None = None) -> Table:
        """Libraries ranked by problem, fastest first, with 95 % confidence intervals; of one operation or of all."""
        from deepbench.reporting import cases as tables

        if op is not None:
            find_op(op)
        return tables.ranking_table([s for s in self.summaries if op in (None, s.record["op"])])

    def to_frame(self) -> DataFrame:
        """A pandas DataFrame with one row per case and the columns of the CSV export. Times are in seconds."""
        from deepbench.reporting import export

        try:
            import pandas
        except ImportError:
            raise BadInput("data frames need pandas; install it: pip install pandas") from None
        return pandas.DataFrame(export.rows(self.summaries, self.limits))

    @property
    def size_text(self) -> tuple[str, str]:
        """`cases`, and how many were measured how often."""
        plan = self.header["plan"]
        if plan["mode"] == "imported":
            how = f"times of {self.header['tool'].partition(', imported from ')[2]}"
        else:
            least, most = plan["rounds"]["least"], plan["rounds"]["most"]
            processes = f"{least}" if least == most else f"{least} to {most}"
            how = f"{processes} process{'es' if processes != '1' else ''} per case, mode {plan['mode']}"
        count, measured = len(plan["cases"]), len({r["case"] for r in self.file.records})
        return "cases", f"{count if measured in (0, count) else f'{measured} of {count} measured'}, {how}"

    def by(self, view: str, full: bool = False) -> Table:
        """Cases arranged in another way (`VIEWS`); `full`: all rows. `BadInput` where there is nothing to show."""
        from deepbench.core.shell import command
        from deepbench.judge import furthest
        from deepbench.reporting import components, groups, views
        from deepbench.reporting import furthest as furthest_table
        from deepbench.reporting.cases import rankings

        if view == "application":
            table = views.by_application(self.summaries)
            reason = "no case comes from a suite that names applications; run deepbench/server"
        elif view in furthest.ORDERS:
            nearest = [self.limits.nearest(s) for s in self.summaries]
            fastest = [r.ranked[0] for r in rankings(self.summaries) if r.ranked]
            found = furthest.kernels(self.summaries, fastest, nearest)
            table = furthest_table.table(found, view, len(found) if full else furthest.MOST)
            reason = f"no limit of this machine is known; see {command('roofline')}"
        elif view == "parts":
            table = components.table(self.summaries)
            words = ["recurrent", "cell=lstm", "input_size=512", "hidden=512", "batch=16", "timesteps=25"]
            reason = f"no case with a time has parts; measure some with {command('run', *words, '--with-parts')}"
        elif view == "ranks":
            table = groups.by_ranks(self.summaries)
            reason = "no all-reduce has a time; run all_reduce n=100000 ranks=2"
        elif view == "backend":
            table = views.by_backend(self.summaries)
            reason = f"no case has a time; see {command('show', self.path)}"
        else:
            raise BadInput(f"--by is {', '.join(VIEWS[:-1])} or {VIEWS[-1]}, found {shorten(view)}")
        if not table.rows:
            raise BadInput(f"{self.path}: {reason}")
        return table

    def save_as(self, form: str, path: Path) -> None:
        """Write the cases as a workbook (`xlsx`), for data frames (`parquet`) or for SQL (`sqlite`)."""
        from deepbench.reporting import database

        write = {"xlsx": database.xlsx, "parquet": database.parquet, "sqlite": database.sqlite}[form]
        write(self.file, self.summaries, path)

    def roofline(self, width: int) -> list[str]:
        """The roofline as lines of text of this width; `BadInput` where no case computes anything."""
        from deepbench.reporting import plot

        lines = plot.roofline(self.summaries, self.limits, width)
        if not lines:
            raise BadInput(f"no case of {self.path} computes anything, so there is no roofline")
        return lines

    def plot(
        self,
        output: str | Path | None = None,
        kind: str = "roofline",
        other: FileResults | str | Path | None = None,
        *,
        op: str | None = None,
        precision: str | None = None,
        title: str | None = None,
        width: float = 7.0,
    ) -> Any:
        """Draw a figure; returns Matplotlib's `Figure`, to change or to save.

        Args:
            output: a file that ends in .svg, .pdf or .png; None: the figure is not written.
            kind: `roofline`, `rates` (bars of each library by problem), or `ratios` of the times of another file.
            other: results or a result file, for `ratios` alone.
            op: only this operation.
            precision: only this precision.
            title: the title of the figure; None: the name of the file.
            width: of the figure, in inches.

        `BadInput` without Matplotlib, and where there is nothing to draw.
        """
        from deepbench.reporting import figures, plot

        figures.require_width(width)
        if kind not in FIGURES:
            raise BadInput(f"a figure is {', '.join(FIGURES[:-1])} or {FIGURES[-1]}, found {shorten(kind)!r}")
        if (kind == "ratios") is (other is None):
            wanted = "ratios need a second file" if other is None else f"{kind} is drawn of one file, not of two"
            raise BadInput(f"{wanted}; give two files with ratios, and one with {' or '.join(FIGURES[:-1])}")
        if output is not None:
            figures.require_name(Path(output))
        if op is not None:
            find_op(op)
        if precision is not None:
            find_precision(precision)

        def is_chosen(s: Summary) -> bool:
            return op in (None, s.record["op"]) and precision in (None, s.record["precision"])

        chosen, name = list(filter(is_chosen, self.summaries)), printable(title or self.path.name)
        figure: Any = None
        if kind == "roofline":
            found = plot.roofs(chosen, self.limits)
            figure = figures.roofline(found, name, width) if found.kernels else None
        elif kind == "rates":
            figure = figures.rates(chosen, name, width) if any(s.is_ranked for s in chosen) else None
        else:
            second = other if isinstance(other, FileResults) else load_kernels(other)  # type: ignore[arg-type]
            compared = self.compare(second)
            self._require_common(compared, second)
            cases = [c for c in compared.cases if is_chosen(c.a)]
            figure = figures.ratios(cases, (printable(self.path.name), printable(second.path.name)), title, width)
        if figure is None:
            words = " ".join(filter(None, (op, precision)))
            raise BadInput(f"{printable(str(self.path))} has no case{f' of {words}' if words else ''} {NEEDED[kind]}")
        if output is not None:
            figures.save(figure, Path(output))
        return figure

    def lacks(self) -> Lacks:
        """What the file lacks to be published."""
        from deepbench.results.completeness import COMPLETE, intervals_text, lacks_of

        return Lacks(lacks_of(self.file, self.summaries), COMPLETE, intervals_text(self.summaries))

    # ---- two files

    def compare(self, other: Any, margin: float | None = None, unchecked: bool = False) -> Any:
        """A `Comparison` of the cases in common; ratios are the times of the other file over those of this one."""
        from deepbench.judge import selftest
        from deepbench.judge.compare import MARGIN, compare_files

        drift = selftest.between_files(self.file, other.file)
        return compare_files(self.file, other.file, MARGIN if margin is None else margin, unchecked, drift)

    def of_metric(self, metric: str) -> Self:
        """The same with another time of each process in the place of its samples; `judge.metrics` has the names."""
        from deepbench.judge.metrics import find_metric, with_metric

        return type(self)(with_metric(self.file, find_metric(metric)))

    def comparison(self, other: Any, margin: float, unchecked: bool, full: bool) -> Report:
        """What `deepbench compare` prints. `BadInput` without a case in common."""
        found = self.compare(other, margin, unchecked)
        self._require_common(found, other)
        return comparison_report(found, (printable(self.path.name), printable(other.path.name)), full)

    def gate(self, other: Any, margin: float, unchecked: bool = False) -> Gated:
        """Whether any case is slower in the other file, or fails there. `BadInput` without a case in common."""
        from deepbench.judge import gate as gates
        from deepbench.judge.compare import MARGIN

        # What counts as the same stays small where a larger slowdown is allowed.
        found = self.compare(other, min(margin, MARGIN), unchecked)
        self._require_common(found, other, found.broken)
        names = printable(self.path.name), printable(other.path.name)
        return Gated(gates.judge(found, margin), found, names)

    def measure_again(
        self, other: Any, gated: Gated, margin: float, unchecked: bool, trusted: bool, on_load: OnLoad
    ) -> Gated:
        """Measure the regressions of a gate again, in turn where the libraries of this file are still here."""
        from dataclasses import replace

        from deepbench.judge import gate as gates
        from deepbench.judge.compare import MARGIN
        from deepbench.measuring import sides

        again = sides.measure_again(self.file, other.file, gated.regressions(), trusted=trusted, on_load=on_load)
        before, after = map(Results, again)
        found = before.compare(after, min(margin, MARGIN), unchecked)
        return replace(gated, outcome=gates.after_rerun(gated.outcome, gates.judge(found, margin)))

    def _require_common(self, found: Any, other: FileResults, broken: Any = ()) -> None:
        if not found.cases and not broken:
            reason = f" ({found.left_out[0]})" if found.left_out else ""
            if found.unchecked:
                times = count(found.unchecked, "case")
                reason = f": the times of {times} were not checked; --unchecked compares them (Python: unchecked=True)"
            raise BadInput(f"{self.path} and {other.path} have no measured case in common{reason}")

    # ---- pages

    @classmethod
    def write_page(
        cls,
        results: Sequence[Any],
        output: Path,
        title: str | None,
        against: Sequence[str],
        networks: Sequence[str | Path],
        preset: Preset,
    ) -> None:
        """Write a page about files of kernels; the first is compared with each of the others."""
        from deepbench.reporting.page import report as page

        steps = wing("networks").steps_of(networks) if networks else None
        page.write_report([r.file for r in results], against, output, title, steps, preset)

    def __repr__(self) -> str:
        return f"{self._heading}\n{self.table()}" if self.summaries else self._heading

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self._heading)}</p>{self.table()._repr_html_() if self.summaries else ''}"

    @property
    def _heading(self) -> str:
        from deepbench.results.file import damage_text

        count, timed = len(self.summaries), sum(s.is_ranked for s in self.summaries)
        damage = f"; {damage_text(self.damaged)} left out" if self.damaged else ""
        return f"{printable(str(self.path))}: {count} case{'s' if count != 1 else ''}, {timed} with a time{damage}"


def comparison_report(found: Any, names: tuple[str, str], full: bool) -> Report:
    """Differences of the sides, geometric means, cases and the answer; CSV has the cases."""
    from deepbench.reporting import compare as tables
    from deepbench.reporting.output import json_text
    from deepbench.reporting.table import markdown_of

    def parts(table: Table) -> Any:
        return tables.parts(found, names, table)

    return Report(
        lambda console: print_parts(parts(tables.listed(found, full)), console),
        {
            "json": lambda: json_text(tables.to_json(found)),
            "csv": lambda: tables.cases(found).csv(),
            "markdown": lambda: markdown_of(parts(tables.cases(found))),
        },
    )


@dataclass(frozen=True)
class Lacks:
    """What a file lacks to be published."""

    lacks: Sequence[str]
    complete: str
    """What a file has that lacks nothing."""
    intervals: str | None
    """How wide the intervals of its times are; None where there are none."""


@dataclass(frozen=True)
class Gated:
    """Whether anything is slower in the second of two files."""

    outcome: GateVerdict
    comparison: Any
    """The comparison it comes from; None for files that are not of kernels."""
    names: tuple[str, str] = ("", "")
    table: Table | None = None
    """What people see besides the sentences."""
    gaps: Sequence[str] = ()
    """Which lines of the files were left out."""

    def regressions(self) -> list[str]:
        """The cases that are slower or fail."""
        from deepbench.judge.gate import REGRESSION

        return [j.case for j in self.outcome.of(REGRESSION)]

    def parts(self) -> list[Part]:
        """The verdict, what differs, and the answer, for people."""
        from deepbench.judge import gate as gates
        from deepbench.reporting import compare as tables

        lines = gates.sentences(self.outcome)
        if self.comparison is None:
            return [lines, *([self.table] if self.table is not None else [])]
        broken = tuple(self.comparison.broken)
        others = [text for text in self.comparison.left_out if not (broken and text.startswith(broken))]
        below = [f"differs: {text}" for text in self.comparison.differences]
        below += [f"not compared: {text}" for text in others[:5]]
        return [[*lines, *below], tables.answer_of_gate(self.comparison, self.outcome)]

    def markdown(self) -> str:
        """A summary for a pull request."""
        from deepbench.judge import gate as gates
        from deepbench.reporting import compare as tables
        from deepbench.reporting.table import markdown_of

        if self.comparison is None:
            return markdown_of(self.parts())
        answer = tables.answer_of_gate(self.comparison, self.outcome)
        return tables.gate_markdown(self.comparison, self.names, [*gates.sentences(self.outcome), *answer])

    def junit(self) -> str:
        """JUnit XML for a CI system."""
        from deepbench.judge import gate as gates

        return gates.junit(self.outcome)


def _fits(pattern: Pattern, record: Record) -> bool:
    """Whether a record is of a case that has all words of the pattern."""
    words = {
        "direction": pattern.direction,
        "precision": pattern.precision,
        "backend": pattern.backend,
        "threads": pattern.threads,
    }
    return (
        record["op"] == pattern.op
        and {**pattern.problem.values, **record["problem"]} == pattern.problem.values
        and all(value is None or record[name] == value for name, value in words.items())  # type: ignore[literal-required]
        and all(record["settings"].get(name) == value for name, value in pattern.settings)
    )
