"""Reduce-scatter: the vectors of `n` elements of all ranks are added; each rank receives its n / ranks of the sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepbench.core.collective import CollectiveOp, Parts, periodic_slice

if TYPE_CHECKING:
    from deepbench.core.collective import Tiles
    from deepbench.core.op import Array


class ReduceScatterOp(CollectiveOp):
    name = "reduce_scatter"
    Problem = Parts
    reduces = True
    smoke = (Parts(4, 2), Parts(999, 3))

    def bus_factor(self, problem: Any) -> float:
        """(ranks - 1) / ranks: a rank's own part is not transferred."""
        return float((problem.ranks - 1) / problem.ranks)

    def sizes(self, problem: Any) -> tuple[int, int]:
        return problem.n, problem.n // problem.ranks

    def expected(self, problem: Any, rank: int, tiles: Tiles, first: int, count: int) -> Array:
        return periodic_slice(tiles(0), rank * (problem.n // problem.ranks) + first, count)


OP = ReduceScatterOp()
