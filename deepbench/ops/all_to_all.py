"""All-to-all: each rank sends n / ranks elements to every rank, so it sends and receives `n` elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepbench.core.collective import CollectiveOp, Parts, concatenated_slice

if TYPE_CHECKING:
    from deepbench.core.collective import Tiles
    from deepbench.core.op import Array


class AllToAllOp(CollectiveOp):
    name = "all_to_all"
    Problem = Parts
    smoke = (Parts(4, 2), Parts(999, 3))

    def bus_factor(self, problem: Any) -> float:
        """(ranks - 1) / ranks: a rank's own part is not transferred."""
        return float((problem.ranks - 1) / problem.ranks)

    def expected(self, problem: Any, rank: int, tiles: Tiles, first: int, count: int) -> Array:
        part = problem.n // problem.ranks
        return concatenated_slice(tiles, rank * part, part, first, count)


OP = AllToAllOp()
