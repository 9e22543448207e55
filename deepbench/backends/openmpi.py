"""Open MPI, from a prefix of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deepbench.backends.mpich import MPIBackend
from deepbench.native import mpi

if TYPE_CHECKING:
    from deepbench.core.case import Case

# Numbers of coll/tuned: `ompi_info --param coll tuned --level 9`.
TUNED = {
    "linear": 1,
    "reduce_broadcast": 2,
    "recursive_doubling": 3,
    "ring": 4,
    "segmented_ring": 5,
    "rabenseifner": 6,
}


ALLOWED = tuple(f"{tool}_ALLOW_RUN_AS_ROOT{more}" for tool in ("OMPI", "PRTE") for more in ("", "_CONFIRM"))

# What a rank on another host needs of our environment.
CARRIED = ("DEEPBENCH_COORDINATOR", "PYTHONPATH", "MPI4PY_LIBMPI", "OMP_NUM_THREADS", "OMPI_MCA_btl", *ALLOWED)


class OpenMPI(MPIBackend):
    name = "openmpi"
    title = "Open MPI"
    flavour = mpi.OPEN_MPI
    ALGORITHMS = {  # noqa: RUF012  (ClassVar in MPIBackend)
        "all_reduce": {
            name: {
                # Components that would be asked before `tuned` are left out.
                "OMPI_MCA_coll": "tuned,basic,libnbc,inter,self,sync,ftagree",
                "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
                "OMPI_MCA_coll_tuned_allreduce_algorithm": str(number),
            }
            for name, number in TUNED.items()
        }
    }

    def launcher(self, ranks: int, hosts: Sequence[str]) -> list[str] | None:
        """PRTE_MCA_plm_ssh_agent names what stands for ssh. Other hosts get the variables that are named here."""
        words = [mpi.find(self.flavour).mpiexec, "--bind-to", "none", "--oversubscribe"]
        used, each = mpi.spread(ranks, hosts)
        words += ["--host", ",".join(f"{host}:{each}" for host in used or ["localhost"])]
        if hosts:
            words += [word for name in CARRIED for word in ("-x", name)]
        return [*words, "-n", str(ranks)]

    @property
    def default(self) -> bool:  # type: ignore[override]  # an attribute elsewhere
        """Where it is: it is asked for by installing it beside MPICH."""
        return mpi.present(self.flavour)

    def environment(self, case: Case) -> dict[str, str]:
        """As root it runs only when told so twice; probing for fast networks that are not there costs a second."""
        allowed = dict.fromkeys(ALLOWED, "1")
        return {"OMPI_MCA_btl": "^ofi,uct", **allowed, **super().environment(case)}


BACKEND = OpenMPI()
