"""Case → the words and the environment of the worker process that measures it. Pure."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

# Every OpenMP and BLAS runtime reads one of these before its library's first call.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

# The case decides how many threads there are and where they run; these would decide otherwise.
OVERRIDES = (
    *("OMP_THREAD_LIMIT", "OMP_PROC_BIND", "OMP_PLACES", "OMP_NESTED", "OMP_MAX_ACTIVE_LEVELS"),
    *("KMP_AFFINITY", "KMP_HW_SUBSET", "KMP_DEVICE_THREAD_LIMIT", "KMP_ALL_THREADS", "GOMP_CPU_AFFINITY"),
    *("GOTO_NUM_THREADS", "OPENBLAS_MAIN_FREE", "MKL_DOMAIN_NUM_THREADS", "MKL_THREADING_LAYER", "MKL_INTERFACE_LAYER"),
)

# What users may have set to change how fast a library runs; the record repeats it.
TUNING_PREFIXES = (
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "MALLOC_"),
    *("MPIR_", "MPICH_", "OMPI_", "PRTE_", "PMIX_MCA_", "I_MPI_", "FI_", "UCX_", "CCL_", "NCCL_", "RCCL_", "GLOO_"),
    *("CUDA_", "CUBLAS", "CUDNN_", "CUSPARSE", "NVIDIA_", "HIP_", "ROCR_", "HIPBLAS", "ROCBLAS_"),
)


def worker_command(descriptor: int) -> list[str]:
    """The worker reads a request on standard input and answers on this descriptor."""
    return [sys.executable, "-P", "-m", "deepbench.worker", str(descriptor)]


def rank_command() -> list[str]:
    """A rank finds its hub in its environment."""
    return [sys.executable, "-P", "-m", "deepbench.rank"]


def worker_environment(threads: int, pin: str, cpus: list[int], inherited: Mapping[str, str]) -> dict[str, str]:
    """The parent's environment, with as many threads as the case says and, if it says so, bound to cores."""
    environment = {k: v for k, v in inherited.items() if k not in OVERRIDES}
    # The worker ignores the folder it is started in (-P), where a user may have a random.py; so say where we are.
    here = str(Path(__file__).parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (here, inherited.get("PYTHONPATH"))))
    environment.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    environment.update(OMP_DYNAMIC="false", MKL_DYNAMIC="FALSE", PYTHONUNBUFFERED="1")
    if pin == "cores":
        places = ",".join(f"{{{cpu}}}" for cpu in cpus[:threads])
        environment.update(OMP_PROC_BIND="true", OMP_PLACES=places)
    return environment


def worker_cpus(threads: int, pin: str, cpus: list[int]) -> list[int] | None:
    """The CPUs a pinned worker may use; None leaves the mask alone."""
    return cpus[:threads] if pin == "cores" else None


def tuning(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change how libraries run, for the record."""
    return {k: v for k, v in sorted(environment.items()) if k.startswith(TUNING_PREFIXES)}
