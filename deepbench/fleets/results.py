"""A fleet file as a Python object: hosts, and which of them differ."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from deepbench.api.results import FileResults, Results
from deepbench.core.errors import BadInput
from deepbench.core.json_lines import printable
from deepbench.core.kinds import FLEET
from deepbench.fleets.file import FleetFile, read_fleet

if TYPE_CHECKING:
    from deepbench.fleets.judge import Judgement
    from deepbench.reporting.output import Report
    from deepbench.reporting.table import Table
    from deepbench.results.file import ResultFile


class FleetResults(FileResults):
    """The results of the same cases on many hosts."""

    kind = FLEET
    file: FleetFile

    @classmethod
    def read(cls, path: Path, skip_damaged: bool = False) -> Self:
        """The checked content of a fleet file; `BadInput` names what is wrong with it."""
        return cls(read_fleet(path, skip_damaged))

    @cached_property
    def judgement(self) -> Judgement:
        """Which hosts and links stand out."""
        from deepbench.fleets.judge import judge

        return judge(self.file)

    def heading(self, environment: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
        """None: every host has a machine and libraries of its own."""
        return []

    @property
    def size_text(self) -> tuple[str, str]:
        """`hosts`, and how many there are."""
        return "hosts", f"{len(self)}"

    @property
    def hosts(self) -> list[str]:
        """The names of the hosts."""
        return self.file.hosts

    def host(self, name: str) -> Results:
        """The results of one host."""
        return Results(self.file.results_of(name))

    def by_host(self) -> list[tuple[str | None, ResultFile]]:
        """The files of all hosts that returned any result."""
        returned = {run.host for run in self.file.runs if run.lines}
        return [(host, self.file.results_of(host)) for host in self.hosts if host in returned]

    def table(self, full: bool = False) -> Table:
        """One row per host."""
        from deepbench.fleets import tables

        return tables.by_host(self.file, self.judgement)

    def report(self, full: bool = False) -> Report:
        """The verdict, then hosts, kernels and links; CSV and Markdown have the hosts."""
        from deepbench.fleets import tables
        from deepbench.reporting.output import Report, json_text
        from deepbench.reporting.table import print_parts

        if full:
            self.refuse_view("--full")
        table = self.table()
        forms = {"csv": table.csv, "markdown": table.markdown}
        forms["json"] = lambda: json_text(tables.to_json(self.file, self.judgement))

        def show(console: Any) -> None:
            console.print()
            print_parts(tables.parts(self.file, self.judgement), console)

        return Report(show, forms)

    def drain_lines(self, manager: str | None = None) -> list[str]:
        """Lines for a shell that would drain the slow hosts, and comments; nothing is run.

        `manager` is `slurm` or `kubernetes`; None: what the file says. `BadInput` where it says neither.
        """
        from deepbench.fleets.drain import drain_lines

        return drain_lines(self.file, self.judgement, manager)

    def write_prometheus(self, path: str | Path) -> None:
        """Write the verdict on each host as a file for the textfile collector of Prometheus' node exporter."""
        from deepbench.fleets.prometheus import write

        write(Path(path), self.file, self.judgement)

    def refuse_view(self, option: str) -> None:
        """Say that a view is of one host."""
        from deepbench.core.shell import command

        raise BadInput(f"{option} is of one host; choose one: {command('show', self.path, '--host', 'NAME')}")

    def __len__(self) -> int:
        return len(self.hosts)

    def __repr__(self) -> str:
        return f"{printable(str(self.path))}: {len(self)} hosts\n{self.table()}"
