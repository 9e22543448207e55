"""Intel MPI, installed in its own prefix."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native import mpi
from deepbench.native.mpi_backend import MPIBackend

# Numbers of I_MPI_ADJUST_ALLREDUCE in Intel's Developer Reference, "I_MPI_ADJUST Family".
NUMBERS = {"recursive_doubling": 1, "rabenseifner": 2, "reduce_broadcast": 3, "ring": 8, "tree": 9, "direct": 19}
ALGORITHMS = {"all_reduce": {name: {"I_MPI_ADJUST_ALLREDUCE": str(number)} for name, number in NUMBERS.items()}}


class IntelMPI(MPIBackend):
    name = "intelmpi"
    title = "Intel MPI"
    flavour = mpi.INTEL_MPI
    algorithms = ALGORITHMS
    # Not the variables of its launcher (I_MPI_HYDRA_…), which describe the job.
    tuning_variables = (
        *("I_MPI_ADJUST_*", "I_MPI_ASYNC_PROGRESS*", "I_MPI_CBWR", "I_MPI_COLL_*", "I_MPI_EAGER*", "I_MPI_FABRICS*"),
        *("I_MPI_INTRANODE_*", "I_MPI_MALLOC*", "I_MPI_OFFLOAD*", "I_MPI_OFI_*", "I_MPI_PIN*", "I_MPI_PLATFORM*"),
        *("I_MPI_SHM*", "I_MPI_SPIN_COUNT", "I_MPI_THREAD_*", "I_MPI_TUNING*", "I_MPI_WAIT_MODE"),
    )

    def environment(self, case: Case) -> dict[str, str]:
        """The first variable tells it where its files are; the second stops it from pinning ranks."""
        return {"I_MPI_ROOT": mpi.find(self.flavour).prefix, "I_MPI_PIN": "0", **super().environment(case)}


BACKEND = IntelMPI()
