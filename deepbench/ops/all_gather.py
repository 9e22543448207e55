"""All-gather: each rank contributes n / ranks elements; every rank receives all `n` elements in rank order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepbench.core.collective import CollectiveOp, Parts, concatenated_slice

if TYPE_CHECKING:
    from deepbench.core.collective import Tiles
    from deepbench.core.op import Array


class AllGatherOp(CollectiveOp):
    name = "all_gather"
    Problem = Parts
    equal_on_all_ranks = True
    smoke = (Parts(4, 2), Parts(999, 3))

    def bus_factor(self, problem: Any) -> float:
        """(ranks - 1) / ranks: a rank's own part is not transferred."""
        return float((problem.ranks - 1) / problem.ranks)

    def sizes(self, problem: Any) -> tuple[int, int]:
        return problem.n // problem.ranks, problem.n

    def expected(self, problem: Any, rank: int, tiles: Tiles, first: int, count: int) -> Array:
        part = problem.n // problem.ranks
        return concatenated_slice(tiles, 0, part, first, count)


OP = AllGatherOp()
