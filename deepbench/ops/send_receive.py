"""Send and receive: each rank sends `n` elements to the next, the last one to rank 0, and gets as many: a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deepbench.core.collective import Collective, CollectiveOp, stretch

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class SendReceiveOp(CollectiveOp):
    name = "send_receive"
    repeats = True
    smoke = (Collective(1, 2), Collective(1001, 3))

    def bus_factor(self, problem: Any) -> float:
        """1: every byte goes over one link."""
        return 1.0

    def wanted(self, problem: Any, rank: int, of: Sequence[Array], first: int, count: int) -> Array:
        return stretch(of[(rank - 1) % problem.ranks], first, count)


OP = SendReceiveOp()
