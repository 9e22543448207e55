"""All-gather: each rank has n / ranks elements, and gets those of all ranks, one after the other: `n` elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deepbench.core.collective import CollectiveOp, Parts, joined

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class AllGatherOp(CollectiveOp):
    name = "all_gather"
    Problem = Parts
    same_everywhere = True
    smoke = (Parts(4, 2), Parts(999, 3))

    def sizes(self, problem: Any) -> tuple[int, int]:
        return problem.n // problem.ranks, problem.n

    def bus_factor(self, problem: Any) -> float:
        """(ranks - 1)/ranks: each rank's own part need not travel."""
        return float((problem.ranks - 1) / problem.ranks)

    def wanted(self, problem: Any, rank: int, of: Sequence[Array], first: int, count: int) -> Array:
        part = problem.n // problem.ranks
        return joined([(of[r], 0) for r in range(problem.ranks)], part, first, count)


OP = AllGatherOp()
