"""All-to-all: each rank sends n / ranks elements to every rank, and gets as many from each: `n` sent, `n` received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deepbench.core.collective import CollectiveOp, Parts, joined

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class AllToAllOp(CollectiveOp):
    name = "all_to_all"
    Problem = Parts
    smoke = (Parts(4, 2), Parts(999, 3))

    def bus_factor(self, problem: Any) -> float:
        """(ranks - 1)/ranks: what a rank sends itself need not travel."""
        return float((problem.ranks - 1) / problem.ranks)

    def wanted(self, problem: Any, rank: int, of: Sequence[Array], first: int, count: int) -> Array:
        part = problem.n // problem.ranks
        return joined([(of[r], rank * part) for r in range(problem.ranks)], part, first, count)


OP = AllToAllOp()
