"""Broadcast: every rank receives the `n` elements of rank 0, such as the initial weights of a training run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepbench.core.collective import Collective, CollectiveOp

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays


class BroadcastOp(CollectiveOp):
    name = "broadcast"
    equal_on_all_ranks = is_periodic = True
    smoke = (Collective(1, 2), Collective(1001, 3))

    def bus_factor(self, problem: Any) -> float:
        """1: every rank receives every byte once."""
        return 1.0

    def reset_rank(self, case: Case, rank: int, arrays: Arrays) -> None:
        """As for all collectives, but the root already has its data in `receive`."""
        if rank == 0:
            arrays["receive"][...] = arrays["send"]
        else:
            super().reset_rank(case, rank, arrays)


OP = BroadcastOp()
