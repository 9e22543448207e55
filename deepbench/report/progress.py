"""The progress bar of a run. It draws between cases only: a spinner would take its share of the cores we time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from deepbench.core import units
from deepbench.core.case import Case
from deepbench.plan.cases import Planned
from deepbench.plan.modes import Rounds
from deepbench.plan.rounds import next_round
from deepbench.results.record import Record


class Bar:
    """A bar with the time left on a terminal; a plain line every so often where output is piped."""

    PLAIN_EVERY_S = 30.0

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = console.is_terminal
        self._progress = Progress(
            TextColumn("{task.fields[left]}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._weights: dict[str, float] = {}
        self._remaining: dict[str, int] = {}
        self._records: dict[str, list[Record]] = {}
        self._rounds: Rounds | None = None
        self._started = self._said = time.monotonic()
        self._done_s = 0.0
        self._ends: float | None = None

    def __enter__(self) -> Bar:
        if self._live:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._progress.stop()

    def say(self, text: str) -> None:
        """What goes on before the first case."""
        if self._live:
            if not self._progress.tasks:
                self._progress.add_task(text, total=None, left="measuring")
            self._progress.update(self._progress.task_ids[0], description=text)
            self._progress.refresh()

    def start(
        self,
        planned: Sequence[Planned],
        records: Sequence[Record],
        rounds: Rounds,
        estimate: Callable[[Case], float],
        ends: float | None = None,
    ) -> None:
        """Begin to count; `records` are those of an earlier run, `ends` when a budget is spent (monotonic clock)."""
        self._ends = ends
        self._rounds = rounds
        self._weights = {p.case.text: estimate(p.case) for p in planned}
        for record in records:
            if record["status"] != "interrupted":
                self._records.setdefault(record["case"], []).append(record)
        for p in planned:
            self._note(p.case.text)
        self._started = self._said = time.monotonic()
        self._console.print(f"estimated  {self._left_text(1.0)}", markup=False)
        self.say("")

    def started(self, case: Case, round_number: int) -> None:
        """Show what is being measured, then keep still."""
        if self._live:
            done, total = self._counts()
            self._progress.update(
                self._progress.task_ids[0],
                description=f"round {round_number}  {case.text}",
                completed=done,
                total=total,
                left=f"{self._left_text(self._pace())} left",
            )
            self._progress.refresh()

    def finished(self, record: Record) -> None:
        """Count it; where nobody watches, say a line now and then."""
        text = record["case"]
        self._records.setdefault(text, []).append(record)
        self._note(text)
        self._done_s += self._weights[text]
        now = time.monotonic()
        if not self._live and now - self._said > self.PLAIN_EVERY_S:
            self._said = now
            done, total = self._counts()
            left = self._left_text(self._pace())
            self._console.print(f"{done} of {total} measured, {left} left", markup=False)

    def _pace(self) -> float:
        """Seconds that a second of the estimate really takes, once enough has been seen to say so."""
        elapsed = time.monotonic() - self._started
        return elapsed / self._done_s if self._done_s > 5 else 1.0

    def _note(self, text: str) -> None:
        """Work out again how many rounds a case still needs: the least, and beyond that one at a time."""
        assert self._rounds is not None, "start comes first"
        records = self._records.get(text, [])
        wanted = next_round(records, self._rounds) is not None
        self._remaining[text] = max(1, self._rounds.least - len(records)) if wanted else 0

    def _counts(self) -> tuple[int, int]:
        done = sum(map(len, self._records.values()))
        return done, done + sum(self._remaining.values())

    def _left_text(self, pace: float) -> str:
        if self._ends is not None:
            return units.duration(max(0.0, self._ends - time.monotonic()))
        return units.duration(pace * sum(self._weights[text] * n for text, n in self._remaining.items()))
