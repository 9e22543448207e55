"""The problems that use the least of the machine: by share of their limit, or by time above it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from deepbench.judge.limits import NearestLimit
from deepbench.results.summary import Summary

MOST = 10
"""How many of them a page and a terminal list."""


@dataclass(frozen=True)
class LimitedKernel:
    """The fastest library of one problem, compared with its nearest limit."""

    position: int
    """Among the cases of the file."""
    summary: Summary
    limit: NearestLimit
    share: float
    """The part of the time that the limit explains; at most 1."""

    @property
    def excess_s(self) -> float:
        """The part of the time that the limit does not explain, in seconds."""
        return (1 - self.share) * self.summary.time_s


def kernels(
    summaries: Sequence[Summary], fastest: Iterable[Summary], nearest: Sequence[NearestLimit | None]
) -> list[LimitedKernel]:
    """Those of the fastest summary of each problem that have a known limit; disturbed times do not count.

    `nearest` has the limit of each of `summaries`. One that was measured too low has no share, and does not count.
    """
    positions = {id(s): i for i, s in enumerate(summaries)}
    trusted = (positions[id(s)] for s in fastest if not s.is_disturbed)
    return [
        LimitedKernel(i, summaries[i], limit, limit.share)
        for i in trusted
        if (limit := nearest[i]) is not None and limit.share is not None
    ]


ORDERS: dict[str, Callable[[LimitedKernel], float]] = {
    "limit": lambda kernel: kernel.share,
    "excess": lambda kernel: -kernel.excess_s,
}
"""`limit`: the lowest share of the nearest limit comes first. `excess`: the most time above it."""


def furthest(found: Iterable[LimitedKernel], order: str = "limit", most: int = MOST) -> list[LimitedKernel]:
    """The first ones in one of the `ORDERS`."""
    return heapq.nsmallest(most, found, key=lambda kernel: (ORDERS[order](kernel), kernel.position))
