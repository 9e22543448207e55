"""Reduce-scatter: all ranks' vectors of `n` elements are added, and each rank gets its part of n / ranks of the sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deepbench.core.collective import CollectiveOp, Parts, stretch

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class ReduceScatterOp(CollectiveOp):
    name = "reduce_scatter"
    Problem = Parts
    adds = True
    smoke = (Parts(4, 2), Parts(999, 3))

    def sizes(self, problem: Any) -> tuple[int, int]:
        return problem.n, problem.n // problem.ranks

    def bus_factor(self, problem: Any) -> float:
        """(ranks - 1)/ranks: each rank's own part need not travel."""
        return float((problem.ranks - 1) / problem.ranks)

    def wanted(self, problem: Any, rank: int, of: Sequence[Array], first: int, count: int) -> Array:
        begin = rank * (problem.n // problem.ranks) + first
        return stretch(of[0], begin, count)


OP = ReduceScatterOp()
