"""Files of applications as Python objects: runs that were trained, and models that answered queries."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepbench.api.results import FileResults, Gated
from deepbench.core.errors import BadInput
from deepbench.core.json_lines import printable
from deepbench.core.kinds import SERVING, TRAINING

if TYPE_CHECKING:
    from deepbench.applications.judge.serving import Served
    from deepbench.applications.judge.trained import Trained
    from deepbench.applications.judge.training_pairs import TrainingPair
    from deepbench.reporting.output import Report
    from deepbench.reporting.page.preset import Preset
    from deepbench.reporting.site import SitePage
    from deepbench.reporting.table import Part, Table
    from deepbench.results.file import ResultFile
    from deepbench.results.record import Header


class ApplicationResults(FileResults):
    """What files of training and of serving have in common."""

    file: ResultFile

    @property
    def header(self) -> Header:
        """The first line: machine, libraries and plan."""
        return self.file.header

    @property
    def size_text(self) -> tuple[str, str]:
        """`runs`, and how many have ended."""
        runs, ended = len(self.header["plan"]["training"]), sum("end" in event for event in self.file.training)
        return "runs", f"{runs}" if ended in (0, runs) else f"{ended} of {runs} ended"

    @cached_property
    def trained(self) -> list[Trained]:
        """The applications that the file has trained, each with all of its seeds."""
        from deepbench.applications.judge.trained import runs_of, trained

        return trained(runs_of(self.file))

    @cached_property
    def served(self) -> list[Served]:
        """How fast its models answered queries, one entry per scenario."""
        from deepbench.applications.judge.serving import served

        return served(self.file)

    def logs(self, folder: Path) -> list[Path]:
        """Write one log per run in the MLLOG format; returns their paths."""
        from deepbench.applications.reporting import mllog

        return mllog.write(self.file, folder)

    def _served_parts(self) -> list[Part]:
        from deepbench.applications.reporting import serving

        return [serving.table(self.served), serving.batch_lines(self.served)] if self.file.serving else []

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
        """Write a page about files of applications; the first is compared with each of the others."""
        from deepbench.applications.reporting import page

        if others := [*against, *map(str, networks), *preset.words]:
            raise BadInput(f"trained applications have a page of their own; leave out {', '.join(others)}")
        page.write_page([r.file for r in results], output, title)

    @classmethod
    def site_page(cls, file: ResultFile, title: str) -> SitePage:
        """The page of a file on a site."""
        from deepbench.applications.reporting import page
        from deepbench.reporting.site import SitePage

        setups = file.header["plan"].get("training", [])
        return SitePage(
            "training.html",
            page.content([(file, title)]),
            printable(title),
            "trained applications",
            f"trained: {', '.join(dict.fromkeys(s['application'] for s in setups))}",
            ", ".join(dict.fromkeys(s["framework"] for s in setups)),
        )


class TrainingResults(ApplicationResults):
    """A file of `deepbench train`: runs of applications, each with its curve and its times."""

    kind = TRAINING

    def table(self, full: bool = False) -> Table:
        """One row per setup."""
        from deepbench.applications.reporting import training

        return training.table(self.trained)

    def report(self, full: bool = False) -> Report:
        """What the runs of a file reached and how fast, and where their time went; then how fast models answered."""
        from deepbench.applications.reporting import training
        from deepbench.reporting.output import Report
        from deepbench.reporting.table import Table, markdown_of, print_parts

        def show(console: Any) -> None:
            console.print()
            console.print(training.common(self.trained), markup=False)
            print_parts([self.table(), training.parts_table(self.trained), *self._served_parts()], console)

        tables = [self.table(), *(part for part in self._served_parts() if isinstance(part, Table))]
        # Programs get one table: the rows of scenarios, which have a `scenario`, follow those of training.
        columns = {column.name: column for table in tables for column in table.columns}
        more = [name for table in tables for name in table.more_for_programs]
        every = Table(
            list(columns.values()),
            [row for table in tables for row in table.rows],
            more_for_programs=list(dict.fromkeys(name for name in more if name not in columns)),
        )
        forms = {"json": every.json, "csv": every.csv, "markdown": lambda: markdown_of(tables)}
        return Report(show, forms)

    def compare(self, other: Any, margin: float | None = None, unchecked: bool = False) -> list[TrainingPair]:
        """The applications and rungs that both files have."""
        return self._pairs(other, margin)[0]

    def _pairs(self, other: TrainingResults, margin: float | None) -> tuple[list[TrainingPair], list[str]]:
        from deepbench.applications.judge.training_pairs import MARGIN, pairs
        from deepbench.judge import selftest

        drift = selftest.between_files(self.file, other.file)
        found, left = pairs(self.trained, other.trained, MARGIN if margin is None else margin, drift=drift)
        if not found:
            raise BadInput(f"{self.path} and {other.path} have no application and rung in common")
        return found, left

    def comparison(self, other: Any, margin: float, unchecked: bool, full: bool) -> Report:
        """A table of applications, and in which conditions the files differ."""
        from deepbench.applications.judge.training_pairs import differences
        from deepbench.applications.reporting.training import pairs_table
        from deepbench.reporting.output import Report

        found, left = self._pairs(other, margin)
        table = pairs_table(found)
        return Report.of_table(replace(table, notes=[*table.notes, *left, *differences(self.file, other.file)]))

    def gate(self, other: Any, margin: float, unchecked: bool = False) -> Gated:
        """Whether an application takes longer to its target in the other file, or misses it."""
        from deepbench.applications.judge import training_pairs
        from deepbench.applications.reporting.training import pairs_table
        from deepbench.judge import selftest

        drift = selftest.between_files(self.file, other.file)
        outcome = training_pairs.gate(self.trained, other.trained, margin, drift)
        if not outcome.cases:
            raise BadInput(f"{self.path} and {other.path} have no application and rung in common")
        table = pairs_table(training_pairs.judged(self.trained, other.trained, margin, drift)[0])
        notes = [*table.notes, *training_pairs.differences(self.file, other.file)]
        return Gated(outcome, None, table=replace(table, notes=notes))

    def __len__(self) -> int:
        return sum(len(one.runs) for one in self.trained)

    def __repr__(self) -> str:
        return f"{self._heading}\n{self.table()}" if self.trained else self._heading

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self._heading)}</p>{self.table()._repr_html_() if self.trained else ''}"

    @property
    def _heading(self) -> str:
        from deepbench.results.file import damage_text

        ended = sum(run.status == "ok" for one in self.trained for run in one.runs)
        damage = f"; {damage_text(self.damaged)} left out" if self.damaged else ""
        return f"{printable(str(self.path))}: {len(self)} training runs, {ended} to their end{damage}"


class ServingResults(ApplicationResults):
    """A file of `deepbench serve -o`: how fast trained models answered queries."""

    kind = SERVING

    def table(self, full: bool = False) -> Table:
        """One row per model and scenario."""
        from deepbench.applications.reporting import serving

        return serving.table(self.served)

    def report(self, full: bool = False) -> Report:
        """A table of scenarios, and batches against latency."""
        from deepbench.reporting.output import Report
        from deepbench.reporting.table import print_parts

        def show(console: Any) -> None:
            console.print()
            print_parts(self._served_parts(), console)

        return replace(Report.of_table(self.table()), print=show)

    def __len__(self) -> int:
        return len(self.served)

    def __repr__(self) -> str:
        return f"{printable(str(self.path))}\n{self.table()}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(printable(str(self.path)))}</p>{self.table()._repr_html_()}"
