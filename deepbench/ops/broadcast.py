"""Broadcast: every rank gets the `n` elements of rank 0, such as the weights that training starts from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deepbench.core.collective import Collective, CollectiveOp, stretch

if TYPE_CHECKING:
    import numpy as np

    from deepbench.core.case import Case
    from deepbench.core.op import Arrays

    Array = np.ndarray[Any, Any]


class BroadcastOp(CollectiveOp):
    name = "broadcast"
    same_everywhere = repeats = True
    smoke = (Collective(1, 2), Collective(1001, 3))

    def bus_factor(self, problem: Any) -> float:
        """1: every byte goes to every rank once."""
        return 1.0

    def wanted(self, problem: Any, rank: int, of: Sequence[Array], first: int, count: int) -> Array:
        return stretch(of[0], first, count)

    def begin(self, case: Case, rank: int, arrays: Arrays) -> None:
        """The root's data is where all others will find it."""
        if rank == 0:
            arrays["receive"][...] = arrays["send"]
        else:
            super().begin(case, rank, arrays)


OP = BroadcastOp()
