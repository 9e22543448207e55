"""A table of the problems that use the least of the machine, and why (`judge/furthest.py`)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from deepbench.core import units
from deepbench.judge.furthest import LimitedKernel, furthest
from deepbench.judge.limits import UNEXPLAINED
from deepbench.reporting.table import Column, Table, number

# A part of the evidence that names a limit which explains less than a tenth of the time.
SMALL_SHARE = re.compile(r"[^()]* \d %")


def why(kernel: LimitedKernel) -> str:
    """What explains the time, and the share that each limit explains."""
    is_unexplained = kernel.limit.name == UNEXPLAINED
    start = "no limit explains half of the time" if is_unexplained else f"limited by {kernel.limit.nearest}"
    return f"{start}: {kernel.limit.evidence}"


def short_why(kernel: LimitedKernel) -> str:
    """The same in fewer words: the nearest limit, and others that explain at least a tenth of the time."""
    start = "unexplained" if kernel.limit.name == UNEXPLAINED else kernel.limit.nearest
    nearest = f" {units.percent(kernel.share)}"
    evidence = kernel.limit.evidence.split(", ")
    parts = [part for part in evidence if part.endswith(nearest) or not SMALL_SHARE.fullmatch(part)]
    return f"{start}: {', '.join(parts)}" if parts else start


def table(found: Sequence[LimitedKernel], order: str, most: int) -> Table:
    """One row per problem, in one of the `ORDERS`."""
    rows = [
        {
            "problem": f"{k.summary.record['op']} {k.summary.problem_title}",
            "precision": k.summary.record["precision"],
            "library": k.summary.library_title,
            "threads": None if k.summary.is_group else k.summary.record["threads"],
            "time": k.summary.time_s,
            "share": k.share,
            "excess": k.excess_s,
            "limited_by": k.limit.name,
            "why": short_why(k),
            "evidence": why(k),
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
        "a tenth of the time (docs/comparing.md). Disturbed times are left out, and limits that were measured too low.",
    ]
    return Table(columns, rows, notes, more_for_programs=("limited_by", "evidence"))
