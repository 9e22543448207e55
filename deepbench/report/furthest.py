"""The problems that reach the lowest share of what the machine can do, and why."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deepbench.core import units
from deepbench.judge.limits import UNEXPLAINED, NearestLimit
from deepbench.report.cases import Ranking
from deepbench.report.table import Column, Table, number
from deepbench.results.summary import Summary

MOST = 10
"""How many of them a page and a terminal list."""


@dataclass(frozen=True)
class Kernel:
    """The fastest library of one problem, compared with its nearest limit."""

    position: int
    """Among the cases of the file."""
    summary: Summary
    limit: NearestLimit

    @property
    def excess_s(self) -> float:
        """The part of the time that the limit does not explain, in seconds."""
        return max(0.0, 1 - self.limit.share) * self.summary.time_s

    @property
    def why(self) -> str:
        """What explains the time, and the share that each limit explains."""
        is_unexplained = self.limit.name == UNEXPLAINED
        start = "no limit explains half of the time" if is_unexplained else f"limited by {self.limit.nearest}"
        return f"{start}: {self.limit.evidence}"


def kernels(
    summaries: Sequence[Summary], groups: Iterable[Ranking], nearest: Sequence[NearestLimit | None]
) -> list[Kernel]:
    """The fastest library of each problem with a known limit; disturbed times do not count.

    `nearest` has the limit of each summary, and `groups` are all rankings of them.
    """
    positions = {id(s): i for i, s in enumerate(summaries)}
    fastest = (positions[id(g.ranked[0])] for g in groups if g.ranked and not g.ranked[0].is_disturbed)
    return [Kernel(i, summaries[i], limit) for i in fastest if (limit := nearest[i])]


def furthest(found: Iterable[Kernel], most: int = MOST) -> list[Kernel]:
    """Those that reach the lowest share of their nearest limit, the lowest first."""
    return heapq.nsmallest(most, found, key=lambda kernel: (kernel.limit.share, kernel.position))


def table(found: Sequence[Kernel], most: int) -> Table:
    """One row per problem, the lowest share first."""
    rows = [
        {
            "problem": f"{k.summary.record['op']} {k.summary.problem_title}",
            "precision": k.summary.record["precision"],
            "library": k.summary.library_title,
            "threads": None if k.summary.is_group else k.summary.record["threads"],
            "time": k.summary.time_s,
            "share": k.limit.share,
            "excess": k.excess_s,
            "limit": k.limit.name,
            "why": k.why,
        }
        for k in furthest(found, most)
    ]
    columns = [
        *(Column("problem"), Column("precision", title="type"), Column("library")),
        *(number("threads", narrow=1), number("time", units.seconds)),
        *(number("share", units.percent, "of limit"), number("excess", units.seconds, "unexplained", narrow=2)),
        Column("why"),
    ]
    rest = len(found) - len(rows)
    notes = [
        *(
            [f"{rest} more problem{'s come' if rest > 1 else ' comes'} closer to a limit; --csv and --json list all."]
            if rest
            else []
        ),
        "of limit: share of the time of the fastest library that the nearest limit explains; unexplained: the rest of "
        "the time. why: the same share for every limit (docs/comparing.md). Disturbed times are left out.",
    ]
    return Table(columns, rows, notes, more_for_programs=("limit",))
