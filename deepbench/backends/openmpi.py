"""Open MPI, installed in its own prefix."""

from __future__ import annotations

from collections.abc import Sequence

from deepbench.core.case import Case
from deepbench.native import mpi
from deepbench.native.mpi_backend import MPIBackend

# Numbers of coll/tuned: `ompi_info --param coll tuned --level 9`.
NUMBERS = {
    "linear": 1,
    "reduce_broadcast": 2,
    "recursive_doubling": 3,
    "ring": 4,
    "segmented_ring": 5,
    "rabenseifner": 6,
}
ALGORITHMS = {
    "all_reduce": {
        name: {
            # Without components that take precedence over `tuned`.
            "OMPI_MCA_coll": "tuned,basic,libnbc,inter,self,sync,ftagree",
            "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
            "OMPI_MCA_coll_tuned_allreduce_algorithm": str(number),
        }
        for name, number in NUMBERS.items()
    }
}

# As root it runs only with both variables of a tool set.
ALLOW_ROOT = tuple(f"{tool}_ALLOW_RUN_AS_ROOT{more}" for tool in ("OMPI", "PRTE") for more in ("", "_CONFIRM"))

# Variables that ranks on other hosts need.
CARRIED = ("DEEPBENCH_COORDINATOR", "PYTHONPATH", "MPI4PY_LIBMPI", "OMP_NUM_THREADS", "OMPI_MCA_btl", *ALLOW_ROOT)


class OpenMPI(MPIBackend):
    name = "openmpi"
    title = "Open MPI"
    flavour = mpi.OPEN_MPI
    algorithms = ALGORITHMS
    # By framework: other parameters of MCA describe the job, and one is its key.
    tuning_variables = (
        *(f"OMPI_MCA_{name}*" for name in ("accelerator", "bml", "btl", "coll", "hwloc", "mpi_", "mpool", "mtl")),
        *(f"OMPI_MCA_{name}*" for name in ("op_", "opal_", "osc", "pml", "rcache", "rmaps", "smsc")),
        *("PRTE_MCA_hwloc*", "PRTE_MCA_rmaps*"),
    )

    def launcher(self, ranks: int, hosts: Sequence[str]) -> list[str] | None:
        """PRTE_MCA_plm_ssh_agent names a replacement for ssh."""
        words = [mpi.find(self.flavour).mpiexec, "--bind-to", "none", "--oversubscribe"]
        used, each = mpi.spread(ranks, hosts)
        words += ["--host", ",".join(f"{host}:{each}" for host in used or ["localhost"])]
        if hosts:
            words += [word for name in CARRIED for word in ("-x", name)]
        return [*words, "-n", str(ranks)]

    def environment(self, case: Case) -> dict[str, str]:
        """`OMPI_MCA_btl` skips the probes for fast networks, which take a second where there is none."""
        allow_root = dict.fromkeys(ALLOW_ROOT, "1")
        return {"OMPI_MCA_btl": "^ofi,uct", **allow_root, **super().environment(case)}


BACKEND = OpenMPI()
