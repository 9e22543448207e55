"""The base classes of backends that communicate through MPI."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar

from deepbench.core.backend import GroupBackend, kernel
from deepbench.core.case import Case
from deepbench.core.collective import FLOATS, RankGroup, products
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native import mpi

# What MPI can add: no version of it that mpi4py serves has a datatype for bf16. Other collectives move bf16 as bits.
SUMMED = ("f32", "f16")

# More bytes than the MPI_Status of any implementation has.
STATUS_BYTES = 256


class MPIProcess(GroupBackend):
    """Ranks that an MPI starts and connects. Subclasses set `flavour`."""

    flavour: ClassVar[mpi.Flavour] = mpi.MPICH

    @property
    def default(self) -> bool:  # type: ignore[override]  # an attribute elsewhere
        """If it is installed. MPICH always, so that runs without it say how to install it."""
        return self.flavour is mpi.MPICH or mpi.present(self.flavour)

    def open(self) -> dict[str, Any]:
        self.mpi = mpi.Mpi(self.flavour)
        return self.mpi.facts()

    def launcher(self, ranks: int, hosts: Sequence[str]) -> list[str] | None:
        return mpi.hydra(mpi.find(self.flavour).mpiexec, ranks, hosts)

    def environment(self, case: Case) -> dict[str, str]:
        return {"MPI4PY_LIBMPI": mpi.find(self.flavour).library, **super().environment(case)}

    def join(self, group: RankGroup, case: Case) -> None:
        self.world = self.mpi.initialize(case.settings["mpi_threads"], group.ranks)


class MPIBackend(MPIProcess):
    """The collectives of an MPI library."""

    overlaps = True

    def environment(self, case: Case) -> dict[str, str]:
        if case.settings["algorithm"] != "default" and case.settings.get("overlap", "none") != "none":
            raise Unsupported(
                "algorithms can be chosen for MPI_Allreduce, not MPI_Iallreduce; choose algorithm=default"
            )
        return super().environment(case)

    @kernel("all_reduce", precisions=SUMMED)
    def all_reduce(self, case: Case, arrays: Arrays) -> Kernel:
        m, send, receive = self.mpi, arrays["send"], arrays["receive"]
        if case.settings["overlap"] == "gemm":
            return self._overlapped(case, arrays)
        in_place = case.settings["place"] == "in"
        source: Any = int(m.MPI.IN_PLACE) if in_place else send
        call = m.call("MPI_Allreduce", source, receive, send.size, *self._sum(case))
        # In place, each call adds to the last result, and values would grow without bounds.
        before = [mpi.refill(receive, send)] if in_place else []
        return Kernel(calls=(call,), barrier=m.barrier(self.world, *before), notes={"implementation": "MPI_Allreduce"})

    def _overlapped(self, case: Case, arrays: Arrays) -> Kernel:
        """MPI_Iallreduce, products with MPI_Test in between, MPI_Wait; and both parts separately."""
        if case.settings["place"] == "in":
            raise Unsupported("overlap is measured out of place; choose place=out")
        m, kind = self.mpi, self.mpi.type(case.precision.data)
        send, receive = [arrays["send"], kind], [arrays["receive"], kind]
        requests: list[Any] = []
        multiply = products(arrays["send"].nbytes, lambda: None)
        multiply_and_test = products(arrays["send"].nbytes, lambda: requests[0].Test())

        def both() -> None:
            requests[:] = [self.world.Iallreduce(send, receive, m.MPI.SUM)]
            multiply_and_test()
            requests[0].Wait()

        def reduce() -> None:
            self.world.Iallreduce(send, receive, m.MPI.SUM).Wait()

        barrier = m.barrier(self.world)
        parts = {"all_reduce": Kernel(run=reduce, barrier=barrier), "gemm": Kernel(run=multiply, barrier=barrier)}
        return Kernel(run=both, barrier=barrier, parts=parts, notes={"implementation": "MPI_Iallreduce, matmul"})

    @kernel("reduce_scatter", precisions=SUMMED)
    def reduce_scatter(self, case: Case, arrays: Arrays) -> Kernel:
        send, receive = arrays["send"], arrays["receive"]
        return self._kernel("MPI_Reduce_scatter_block", send, receive, receive.size, *self._sum(case))

    @kernel("all_gather", precisions=FLOATS)
    def all_gather(self, case: Case, arrays: Arrays) -> Kernel:
        send, (kind, world) = arrays["send"], self._carrier(case)
        return self._kernel("MPI_Allgather", send, send.size, kind, arrays["receive"], send.size, kind, world)

    @kernel("all_to_all", precisions=FLOATS)
    def all_to_all(self, case: Case, arrays: Arrays) -> Kernel:
        send, (kind, world) = arrays["send"], self._carrier(case)
        count = send.size // case.problem.ranks
        return self._kernel("MPI_Alltoall", send, count, kind, arrays["receive"], count, kind, world)

    @kernel("broadcast", precisions=FLOATS)
    def broadcast(self, case: Case, arrays: Arrays) -> Kernel:
        receive, (kind, world) = arrays["receive"], self._carrier(case)
        return self._kernel("MPI_Bcast", receive, receive.size, kind, 0, world)

    @kernel("send_receive", precisions=FLOATS)
    def send_receive(self, case: Case, arrays: Arrays) -> Kernel:
        send, receive, (kind, world) = arrays["send"], arrays["receive"], self._carrier(case)
        ranks, rank, tag = case.problem.ranks, self.world.rank, 0
        right, left = (rank + 1) % ranks, (rank - 1) % ranks
        status = ctypes.create_string_buffer(STATUS_BYTES)
        to, source = (send, send.size, kind, right, tag), (receive, receive.size, kind, left, tag)
        return self._kernel("MPI_Sendrecv", *to, *source, world, status)

    def _sum(self, case: Case) -> tuple[int, int, int]:
        """Datatype, operation and communicator of a sum, as C passes them."""
        m = self.mpi
        return m.word(m.type(case.precision.data)), m.word(m.MPI.SUM), m.word(self.world)

    def _carrier(self, case: Case) -> tuple[int, int]:
        """A datatype of the elements' width, and the communicator, as C passes them."""
        carrier = self.mpi.MPI.FLOAT if case.precision.data == "f32" else self.mpi.MPI.UINT16_T
        return self.mpi.word(carrier), self.mpi.word(self.world)

    def _kernel(self, name: str, *arguments: Any) -> Kernel:
        call = self.mpi.call(name, *arguments)
        return Kernel(calls=(call,), barrier=self.mpi.barrier(self.world), notes={"implementation": name})
