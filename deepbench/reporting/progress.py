"""The progress bar of everything that takes long."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column

from deepbench.core import units

if TYPE_CHECKING:
    from deepbench.measuring.session import Step


class Bar:
    """A bar with the time left on a terminal; elsewhere one line of text every 30 seconds.

    Call it with each step. It draws during these calls only: a bar that moves by itself would take time from the
    cores that are measured.
    """

    LINE_EVERY_S = 30.0

    def __init__(self, console: Console | None = None) -> None:
        """Draws on standard error where no console is given."""
        self._console = console or Console(stderr=True, highlight=False)
        self._progress = Progress(
            *(TextColumn("{task.fields[left]}"), BarColumn(bar_width=12), MofNCompleteColumn()),
            # The case in progress: what does not fit on the line is cut off.
            TextColumn(
                "{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
            ),
            console=self._console,
            auto_refresh=False,
            expand=True,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, left="measuring")
        self._printed = self._began = time.monotonic()
        self._total: int | None = None
        self._done = 0
        self._estimated = False

    def __enter__(self) -> Bar:
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._progress.stop()

    def __call__(self, step: Step) -> None:
        """Show a step. `total` may change from step to step."""
        now, left = time.monotonic(), "measuring"
        if step.total != self._total:  # other steps, which may take longer or shorter
            self._total, self._began, self._done = step.total, now, step.done
        if step.left_s is not None and not self._estimated:
            self._estimated = True
            self._console.print(f"estimated  {units.duration(step.left_s)}", markup=False)
        done = step.done - self._done
        if step.total is not None and (step.left_s is not None or done > 0):
            left_s = step.left_s if step.left_s is not None else (now - self._began) * (step.total - step.done) / done
            left = f"{units.duration(max(0.0, left_s))} left"
        if self._console.is_terminal:
            self._progress.update(self._task, description=step.text, completed=step.done, total=step.total, left=left)
            self._progress.refresh()
        elif now - self._printed > self.LINE_EVERY_S:
            self._printed = now
            count = f"{step.done} of {step.total} done, " if step.total is not None else ""
            self._console.print(f"{count}{left}: {step.text}", markup=False, no_wrap=True, overflow="ellipsis")
