"""Intel MPI, from a prefix of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepbench.backends.mpich import MPIBackend
from deepbench.native import mpi

if TYPE_CHECKING:
    from deepbench.core.case import Case

# Numbers of I_MPI_ADJUST_ALLREDUCE in Intel's Developer Reference, "I_MPI_ADJUST Family".
ADJUST = {
    "recursive_doubling": 1,
    "rabenseifner": 2,
    "reduce_broadcast": 3,
    "ring": 8,
    "tree": 9,
    "direct": 19,
}


class IntelMPI(MPIBackend):
    name = "intelmpi"
    title = "Intel MPI"
    flavour = mpi.INTEL_MPI
    ALGORITHMS = {  # noqa: RUF012  (ClassVar in MPIBackend)
        "all_reduce": {name: {"I_MPI_ADJUST_ALLREDUCE": str(number)} for name, number in ADJUST.items()}
    }

    @property
    def default(self) -> bool:  # type: ignore[override]  # an attribute elsewhere
        """Where it is: it is asked for by installing it beside MPICH."""
        return mpi.present(self.flavour)

    def environment(self, case: Case) -> dict[str, str]:
        """It finds its own files by this; and it pins ranks unless told not to."""
        return {"I_MPI_ROOT": mpi.find(self.flavour).prefix, "I_MPI_PIN": "0", **super().environment(case)}


BACKEND = IntelMPI()
