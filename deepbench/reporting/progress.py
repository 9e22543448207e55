"""The progress bar of everything that takes long."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Column

from deepbench.core import units
from deepbench.core.json_lines import printable
from deepbench.core.progress import Activity, Progress, no_progress


class Bar:
    """A bar with the time left on a terminal; elsewhere one line of text every 30 seconds.

    Call it with each activity. It draws during these calls only: a bar that moves by itself would take time from the
    cores that are measured.
    """

    LINE_EVERY_S = 30.0

    def __init__(self, console: Console | None = None) -> None:
        """Draws on standard error where no console is given."""
        self._console = console or Console(stderr=True, highlight=False)
        self._progress = RichProgress(
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
        self._done = self._done_before = 0
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

    def __call__(self, at: Activity) -> None:
        """Show an activity. `total` may change from one to the next."""
        now, left = time.monotonic(), "measuring"
        if at.notice:
            self._console.print(at.notice, markup=False, style="bold yellow")
        if at.total != self._total or at.done < self._done_before:  # other work, which may take longer or shorter
            self._total, self._began, self._done = at.total, now, at.done
        if at.left_s is not None and not self._estimated:
            self._estimated = True
            self._console.print(f"estimated  {units.duration(at.left_s)}", markup=False)
        self._done_before, done = at.done, at.done - self._done
        if at.total is not None and (at.left_s is not None or done > 0):
            left_s = at.left_s if at.left_s is not None else (now - self._began) * (at.total - at.done) / done
            left = f"{units.duration(max(0.0, left_s))} left"
        text = printable(at.text)
        if self._console.is_terminal:
            self._progress.update(self._task, description=text, completed=at.done, total=at.total, left=left)
            self._progress.refresh()
        elif now - self._printed > self.LINE_EVERY_S:
            self._printed = now
            count = f"{at.done} of {at.total} done, " if at.total is not None else ""
            self._console.print(f"{count}{left}: {text}", markup=False, no_wrap=True, overflow="ellipsis")


def shown(progress: bool | Progress) -> AbstractContextManager[Progress]:
    """The function that is called with each step: what was given, a progress bar, or one that does nothing."""
    if callable(progress):
        return nullcontext(progress)
    return Bar() if progress else nullcontext(no_progress)
