"""All-reduce: every rank gets the sum of all ranks' vectors of `n` elements. Any algorithm that is deterministic.

Out of place from `send` to `receive`, or in place (`place=in`), as frameworks add gradients. Between GPUs each rank has
a process, or one process drives all cards (`processes=one`), as the original did on one machine. With `overlap=gemm`
each rank multiplies matrices meanwhile, as training computes one layer's gradient while the last one's travels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deepbench.core.collective import Collective, CollectiveOp, stretch

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class AllReduceOp(CollectiveOp):
    name = "all_reduce"
    settings = {  # noqa: RUF012  (ClassVar in Op)
        "place": ("out", "in"),
        "processes": ("each", "one"),
        "overlap": ("none", "gemm"),
        **CollectiveOp.settings,
    }
    variants = ("processes", *CollectiveOp.variants)
    adds = same_everywhere = repeats = True
    smoke = (Collective(1, 2), Collective(2, 3), Collective(1000, 2), Collective(1001, 3))

    def bus_factor(self, problem: Any) -> float:
        """2·(ranks - 1)/ranks: what the best algorithm sends of each byte, there and back."""
        return float(2 * (problem.ranks - 1) / problem.ranks)

    def wanted(self, problem: Any, rank: int, of: Sequence[Array], first: int, count: int) -> Array:
        return stretch(of[0], first, count)


OP = AllReduceOp()
