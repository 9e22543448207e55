"""The ring that Baidu made known for deep learning: all-reduce by messages between neighbours, in NumPy, to be read.

The vector is cut into one chunk a rank. In `ranks - 1` steps each rank sends a chunk to its right and adds the one that
comes from its left: then every rank holds the whole sum of one chunk. In as many steps more these travel on round the
ring. Each byte is sent 2·(ranks - 1)/ranks times, which no algorithm can beat, and each chunk is added in the order of
the ring, so the result has the same bits whenever ranks arrive. Messages go through MPICH.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from deepbench.core.backend import GroupBackend, kernel
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.native import mpi

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.collective import Group
    from deepbench.core.op import Arrays


class Ring(GroupBackend):
    name = "ring"
    title = "our ring"

    def open(self) -> dict[str, Any]:
        self.mpi = mpi.Mpi(mpi.MPICH)
        return {**self.mpi.facts(), "name": "ring over MPICH"}

    def launcher(self, ranks: int, hosts: Sequence[str]) -> list[str] | None:
        return mpi.hydra(mpi.MPICH, ranks, hosts)

    def environment(self, case: Case) -> dict[str, str]:
        if case.settings["overlap"] != "none":
            raise Unsupported("the ring does nothing while something else runs; choose overlap=none")
        if case.settings["algorithm"] != "default":
            raise Unsupported("the ring is a ring; choose algorithm=default")
        return {"MPI4PY_LIBMPI": mpi.find(mpi.MPICH).library}

    def join(self, group: Group, case: Case) -> None:
        self.world = self.mpi.initialise(case.settings["mpi_threads"], group.ranks)

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
                out, into = chunks[(rank - step) % ranks], chunks[(rank - step - 1) % ranks]
                comes = incoming[: into.size]
                world.Sendrecv([out, kind], right, recvbuf=[comes, kind], source=left)
                np.add(into, comes, out=into)
            for step in range(ranks - 1):
                out, into = chunks[(rank + 1 - step) % ranks], chunks[(rank - step) % ranks]
                world.Sendrecv([out, kind], right, recvbuf=[into, kind], source=left)

        def together() -> None:
            if in_place:
                receive[...] = send
            world.Barrier()

        return Kernel(run=run, barrier=Kernel(run=together), notes={"implementation": "Sendrecv and NumPy"})


BACKEND = Ring()
