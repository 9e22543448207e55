"""The ring all-reduce that Baidu popularized for deep learning, in NumPy over MPICH, as code to read.

The vector is split into one chunk per rank. In each of `ranks - 1` steps, every rank sends a chunk to its right
neighbor and adds the one from its left neighbor; then every rank has the complete sum of one chunk. In `ranks - 1` more
steps, these chunks travel around the ring. Each byte is sent 2·(ranks - 1)/ranks times, the minimum for any algorithm.
Each chunk is added in the order of the ring, so the bits of the result do not depend on when ranks arrive.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from deepbench.core.backend import kernel
from deepbench.core.case import Case
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native.mpi_backend import MPIProcess


class Ring(MPIProcess):
    name = "ring"
    title = "our ring"

    def open(self) -> dict[str, Any]:
        return {**super().open(), "name": "ring over MPICH"}

    @kernel("all_reduce", precisions=("f32", "f16"))
    def all_reduce(self, case: Case, arrays: Arrays) -> Kernel:
        import numpy as np

        world, ranks, rank = self.world, case.problem.ranks, self.world.rank
        send, receive = arrays["send"], arrays["receive"]
        kind = self.mpi.type(case.precision.data)
        bounds = [i * send.size // ranks for i in range(ranks + 1)]
        chunks = [receive[a:b] for a, b in pairwise(bounds)]
        incoming = np.empty(max(c.size for c in chunks), receive.dtype)
        left, right = (rank - 1) % ranks, (rank + 1) % ranks
        in_place = case.settings["place"] == "in"

        def run() -> None:
            if not in_place:
                receive[...] = send
            for step in range(ranks - 1):
                out, total = chunks[(rank - step) % ranks], chunks[(rank - step - 1) % ranks]
                part = incoming[: total.size]
                world.Sendrecv([out, kind], right, recvbuf=[part, kind], source=left)
                np.add(total, part, out=total)
            for step in range(ranks - 1):
                out, target = chunks[(rank + 1 - step) % ranks], chunks[(rank - step) % ranks]
                world.Sendrecv([out, kind], right, recvbuf=[target, kind], source=left)

        def barrier() -> None:
            if in_place:
                receive[...] = send
            world.Barrier()

        return Kernel(run=run, barrier=Kernel(run=barrier), notes={"implementation": "Sendrecv and NumPy"})


BACKEND = Ring()
