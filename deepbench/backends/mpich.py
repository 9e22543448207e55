"""MPICH, the MPI that `pip install mpich` provides."""

from __future__ import annotations

from deepbench.native.mpi_backend import MPIBackend

# Values of MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM.
NAMES = {
    "ring": "ring",
    "recursive_doubling": "recursive_doubling",
    "recursive_exchange": "recexch",
    "recursive_multiplying": "recursive_multiplying",
    "rabenseifner": "reduce_scatter_allgather",
    "tree": "tree",
}
# Without the first variable, MPICH would use release/gather through shared memory instead.
ALGORITHMS = {
    "all_reduce": {
        ours: {"MPIR_CVAR_DEVICE_COLLECTIVES": "none", "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": theirs}
        for ours, theirs in NAMES.items()
    }
}


class MPICH(MPIBackend):
    name = "mpich"
    title = "MPICH"
    algorithms = ALGORITHMS
    tuning_variables = ("MPIR_CVAR_*", "MPICH_*")


BACKEND = MPICH()
