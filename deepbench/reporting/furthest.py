"""The problems that use the least of the machine, and why: by share of their limit, or by time above it."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from deepbench.core import units
from deepbench.judge.limits import UNEXPLAINED, NearestLimit
from deepbench.reporting.cases import Ranking
from deepbench.reporting.table import Column, Table, number
from deepbench.results.summary import Summary

MOST = 10
"""How many of them a page and a terminal list."""


# A part of the evidence that names a limit which explains less than a tenth of the time.
SMALL_SHARE = re.compile(r"[^()]* \d %")


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

    @property
    def short_why(self) -> str:
        """The same in fewer words: the nearest limit, and others that explain at least a tenth of the time."""
        start = "unexplained" if self.limit.name == UNEXPLAINED else self.limit.nearest
        nearest = f" {units.percent(self.limit.share)}"
        evidence = self.limit.evidence.split(", ")
        parts = [part for part in evidence if part.endswith(nearest) or not SMALL_SHARE.fullmatch(part)]
        return f"{start}: {', '.join(parts)}" if parts else start


def kernels(
    summaries: Sequence[Summary], groups: Iterable[Ranking], nearest: Sequence[NearestLimit | None]
) -> list[Kernel]:
    """The fastest library of each problem with a known limit; disturbed times do not count.

    `nearest` has the limit of each summary, and `groups` are all rankings of them.
    """
    positions = {id(s): i for i, s in enumerate(summaries)}
    fastest = (positions[id(g.ranked[0])] for g in groups if g.ranked and not g.ranked[0].is_disturbed)
    return [Kernel(i, summaries[i], limit) for i in fastest if (limit := nearest[i])]


ORDERS: dict[str, Callable[[Kernel], float]] = {
    "limit": lambda kernel: kernel.limit.share,
    "excess": lambda kernel: -kernel.excess_s,
}
"""`limit`: the lowest share of the nearest limit comes first. `excess`: the most time above it."""


def furthest(found: Iterable[Kernel], order: str = "limit", most: int = MOST) -> list[Kernel]:
    """The first ones in one of the `ORDERS`."""
    return heapq.nsmallest(most, found, key=lambda kernel: (ORDERS[order](kernel), kernel.position))


def table(found: Sequence[Kernel], order: str, most: int) -> Table:
    """One row per problem, in one of the `ORDERS`."""
    rows = [
        {
            "problem": f"{k.summary.record['op']} {k.summary.problem_title}",
            "precision": k.summary.record["precision"],
            "library": k.summary.library_title,
            "threads": None if k.summary.is_group else k.summary.record["threads"],
            "time": k.summary.time_s,
            "share": k.limit.share,
            "excess": k.excess_s,
            "limited_by": k.limit.name,
            "why": k.short_why,
            "evidence": k.why,
        }
        for k in furthest(found, order, most)
    ]
    columns = [
        *(Column("problem"), Column("precision", title="type"), Column("library")),
        *(number("threads", narrow=1), number("time", units.seconds)),
        *(number("share", units.percent, "% of limit", narrow=1), number("excess", units.seconds, "above limit")),
        Column("why"),
    ]
    rest = len(found) - len(rows)
    notes = [
        *(
            [f"{rest} more problem{'s are' if rest > 1 else ' is'} not shown; --csv and --json list all."]
            if rest
            else []
        ),
        "% of limit: share of the time of the fastest library that the nearest limit explains; above limit: the rest "
        "of the time. why: the nearest limit, and the share for every limit that explains "
        "a tenth of the time (docs/comparing.md). Disturbed times are left out.",
    ]
    return Table(columns, rows, notes, more_for_programs=("limited_by", "evidence"))
