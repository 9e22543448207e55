"""MPICH: the MPI that `pip install` brings, and the base of the others."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from deepbench.core.backend import GroupBackend, kernel
from deepbench.core.collective import products
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.native import mpi

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.collective import Group
    from deepbench.core.op import Arrays

FLOATS = ("f32", "f16", "bf16")


class MPIBackend(GroupBackend):
    """An MPI. Subclasses say which, and what its algorithms are called."""

    flavour: ClassVar[mpi.Flavour]
    ALGORITHMS: ClassVar[dict[str, dict[str, dict[str, str]]]]
    """Op → our name of an algorithm → the variables that choose it."""

    def open(self) -> dict[str, Any]:
        self.mpi = mpi.Mpi(self.flavour)
        return self.mpi.facts()

    def launcher(self, ranks: int, hosts: Sequence[str]) -> list[str] | None:
        return mpi.hydra(self.flavour, ranks, hosts)

    def environment(self, case: Case) -> dict[str, str]:
        return {"MPI4PY_LIBMPI": mpi.find(self.flavour).library, **self.algorithm(case)}

    def algorithm(self, case: Case) -> dict[str, str]:
        """The variables that choose the algorithm of the case."""
        wanted, known = case.settings["algorithm"], self.ALGORITHMS.get(case.op, {})
        if wanted == "default":
            return {}
        if case.settings.get("overlap", "none") != "none":
            raise Unsupported("these switches are of MPI_Allreduce, not of MPI_Iallreduce; choose algorithm=default")
        if wanted not in known:
            there_are = ", ".join(["default", *known])
            raise Unsupported(f"{self.title} has no algorithm {wanted} for {case.op}; there are {there_are}")
        return known[wanted]

    def join(self, group: Group, case: Case) -> None:
        self.world = self.mpi.initialise(case.settings["mpi_threads"], group.ranks)

    @kernel("all_reduce", precisions=FLOATS)
    def all_reduce(self, case: Case, arrays: Arrays) -> Kernel:
        m, send, receive = self.mpi, arrays["send"], arrays["receive"]
        if case.settings["overlap"] == "gemm":
            return self._overlapped(case, arrays)
        inside = case.settings["place"] == "in"
        source: Any = int(m.MPI.IN_PLACE) if inside else send
        kind, total, world = m.word(m.type(case.precision.data)), m.word(m.MPI.SUM), m.word(self.world)
        call = m.call("MPI_Allreduce", source, receive, send.size, kind, total, world)
        # In place each call adds what the last one left: numbers would grow beyond all bounds.
        before = [mpi.refill(receive, send)] if inside else []
        return Kernel(calls=(call,), barrier=m.barrier(self.world, *before), notes={"implementation": "MPI_Allreduce"})

    def _overlapped(self, case: Case, arrays: Arrays) -> Kernel:
        """MPI_Iallreduce, products with MPI_Test between them, MPI_Wait; and both parts alone."""
        if case.settings["place"] == "in":
            raise Unsupported("overlap is measured out of place; choose place=out")
        m, kind = self.mpi, self.mpi.type(case.precision.data)
        send, receive = [arrays["send"], kind], [arrays["receive"], kind]
        requests: list[Any] = []
        alone = products(arrays["send"].nbytes, lambda: None)
        beside = products(arrays["send"].nbytes, lambda: requests[0].Test())

        def both() -> None:
            requests[:] = [self.world.Iallreduce(send, receive, m.MPI.SUM)]
            beside()
            requests[0].Wait()

        def reduce() -> None:
            self.world.Iallreduce(send, receive, m.MPI.SUM).Wait()

        barrier = m.barrier(self.world)
        parts = {"all_reduce": Kernel(run=reduce, barrier=barrier), "gemm": Kernel(run=alone, barrier=barrier)}
        return Kernel(run=both, barrier=barrier, parts=parts, notes={"implementation": "MPI_Iallreduce, matmul"})

    @kernel("reduce_scatter", precisions=FLOATS)
    def reduce_scatter(self, case: Case, arrays: Arrays) -> Kernel:
        m, send, receive = self.mpi, arrays["send"], arrays["receive"]
        kind, total, world = m.word(m.type(case.precision.data)), m.word(m.MPI.SUM), m.word(self.world)
        return self._kernel("MPI_Reduce_scatter_block", send, receive, receive.size, kind, total, world)

    @kernel("all_gather", precisions=FLOATS)
    def all_gather(self, case: Case, arrays: Arrays) -> Kernel:
        send, (kind, world) = arrays["send"], self._words(case)
        return self._kernel("MPI_Allgather", send, send.size, kind, arrays["receive"], send.size, kind, world)

    @kernel("all_to_all", precisions=FLOATS)
    def all_to_all(self, case: Case, arrays: Arrays) -> Kernel:
        send, (kind, world) = arrays["send"], self._words(case)
        part = send.size // case.problem.ranks
        return self._kernel("MPI_Alltoall", send, part, kind, arrays["receive"], part, kind, world)

    @kernel("broadcast", precisions=FLOATS)
    def broadcast(self, case: Case, arrays: Arrays) -> Kernel:
        receive, (kind, world) = arrays["receive"], self._words(case)
        return self._kernel("MPI_Bcast", receive, receive.size, kind, 0, world)

    @kernel("send_receive", precisions=FLOATS)
    def send_receive(self, case: Case, arrays: Arrays) -> Kernel:
        send, receive, (kind, world) = arrays["send"], arrays["receive"], self._words(case)
        ranks, rank, tag = case.problem.ranks, self.world.rank, 0
        right, left = (rank + 1) % ranks, (rank - 1) % ranks
        ignored = ctypes.create_string_buffer(STATUS_BYTES)
        sent, received = (send, send.size, kind, right, tag), (receive, receive.size, kind, left, tag)
        return self._kernel("MPI_Sendrecv", *sent, *received, world, ignored)

    def _words(self, case: Case) -> tuple[int, int]:
        """A datatype that carries the elements, and the communicator, as C passes them."""
        return self.mpi.word(self.mpi.carrier(case.precision.data)), self.mpi.word(self.world)

    def _kernel(self, name: str, *arguments: Any) -> Kernel:
        call = self.mpi.call(name, *arguments)
        return Kernel(calls=(call,), barrier=self.mpi.barrier(self.world), notes={"implementation": name})


# More than the MPI_Status of any implementation.
STATUS_BYTES = 256


def _algorithms(names: dict[str, str]) -> dict[str, dict[str, str]]:
    # Release/gather through shared memory would be taken before any of them.
    off = {"MPIR_CVAR_DEVICE_COLLECTIVES": "none"}
    return {ours: {**off, "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": theirs} for ours, theirs in names.items()}


class MPICH(MPIBackend):
    name = "mpich"
    title = "MPICH"
    flavour = mpi.MPICH
    ALGORITHMS = {  # noqa: RUF012  (ClassVar in MPIBackend)
        "all_reduce": _algorithms(
            {
                "ring": "ring",
                "recursive_doubling": "recursive_doubling",
                "recursive_exchange": "recexch",
                "recursive_multiplying": "recursive_multiplying",
                "rabenseifner": "reduce_scatter_allgather",
                "tree": "tree",
            }
        )
    }


BACKEND = MPICH()
