"""All-reduce: every rank receives the sum of all ranks' vectors of `n` elements. Any deterministic algorithm counts.

The result goes to a second buffer, or with `place=in` replaces the input, as frameworks add gradients. Between GPUs,
each rank has its own process, or with `processes=one` one process drives all GPUs, as the original did on one machine.
With `overlap=gemm` each rank multiplies matrices at the same time, as training overlaps the all-reduce of one layer's
gradient with the computation of the next.
"""

from __future__ import annotations

from typing import Any

from deepbench.core.collective import Collective, CollectiveOp


class AllReduceOp(CollectiveOp):
    name = "all_reduce"
    settings = {  # noqa: RUF012  (ClassVar in Op)
        "place": ("out", "in"),
        "processes": ("each", "one"),
        "overlap": ("none", "gemm"),
        **CollectiveOp.settings,
    }
    variants = ("processes", *CollectiveOp.variants)
    reduces = equal_on_all_ranks = is_periodic = True
    smoke = (Collective(1, 2), Collective(2, 3), Collective(1000, 2), Collective(1001, 3))

    def bus_factor(self, problem: Any) -> float:
        """2·(ranks - 1) / ranks: transfers of each byte by an optimal algorithm."""
        return float(2 * (problem.ranks - 1) / problem.ranks)


OP = AllReduceOp()
