"""Send and receive: each rank sends `n` elements to the next one, and the last rank to rank 0, as in a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepbench.core.collective import Collective, CollectiveOp, periodic_slice

if TYPE_CHECKING:
    from deepbench.core.collective import Tiles
    from deepbench.core.op import Array


class SendReceiveOp(CollectiveOp):
    name = "send_receive"
    is_periodic = True
    smoke = (Collective(1, 2), Collective(1001, 3))

    def bus_factor(self, problem: Any) -> float:
        """1: every byte crosses one link."""
        return 1.0

    def expected(self, problem: Any, rank: int, tiles: Tiles, first: int, count: int) -> Array:
        return periodic_slice(tiles((rank - 1) % problem.ranks), first, count)


OP = SendReceiveOp()
