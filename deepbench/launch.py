"""Case → the words and the environment of the worker process that measures it. Pure."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# Every OpenMP and BLAS runtime reads one of these before its library's first call.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

# The case decides how many threads there are and where they run; these would decide otherwise.
OVERRIDES = (
    *("OMP_THREAD_LIMIT", "OMP_PROC_BIND", "OMP_PLACES", "OMP_NESTED", "OMP_MAX_ACTIVE_LEVELS"),
    *("KMP_AFFINITY", "KMP_HW_SUBSET", "KMP_DEVICE_THREAD_LIMIT", "KMP_ALL_THREADS", "GOMP_CPU_AFFINITY"),
    *("GOTO_NUM_THREADS", "OPENBLAS_MAIN_FREE", "MKL_DOMAIN_NUM_THREADS", "MKL_THREADING_LAYER", "MKL_INTERFACE_LAYER"),
)

# Set for every worker.
FIXED = ("OMP_DYNAMIC", "MKL_DYNAMIC")

# What users may have set to change how fast a library runs; the record repeats it.
TUNING_PREFIXES = (
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "MALLOC_"),
    *("MPIR_", "MPICH_", "OMPI_", "PRTE_", "PMIX_MCA_", "I_MPI_", "FI_", "UCX_", "CCL_", "NCCL_", "RCCL_", "GLOO_"),
    *("CUDA_", "CUBLAS", "CUDNN_", "CUSPARSE", "NVIDIA_", "HIP_", "ROCR_", "HIPBLAS", "ROCBLAS_"),
)


# What a command on another host needs beside these.
CARRIED_PREFIXES = ("DEEPBENCH_", "PYTHON", "LD_LIBRARY_PATH", "MPI4PY_", "DASK_")


def worker_command(descriptor: int) -> list[str]:
    """The worker reads a request on standard input and answers on this descriptor."""
    return [sys.executable, "-P", "-m", "deepbench.worker", str(descriptor)]


def rank_command() -> list[str]:
    """A rank finds its hub in its environment."""
    return [sys.executable, "-P", "-m", "deepbench.rank"]


REMOTE_SHELL = "DEEPBENCH_REMOTE_SHELL"
"""Names what is called in the place of ssh: `PROGRAM HOST COMMAND`."""


def on_host(host: str, environment: Mapping[str, str], command: Sequence[str]) -> list[str]:
    """The words that run a command on another host, with the part of an environment that it needs."""
    known = {k: v for k, v in environment.items() if k.startswith(CARRIED_PREFIXES + TUNING_PREFIXES)}
    variables = [f"{k}={v}" for k, v in sorted(known.items()) if k != REMOTE_SHELL]
    shell = environment.get(REMOTE_SHELL) or "ssh"
    return [shell, host, shlex.join(["env", *variables, *command])]


def package_path(inherited: Mapping[str, str]) -> dict[str, str]:
    """An environment in which this package is found by processes that ignore the folder they start in (-P).

    There a user may have a random.py.
    """
    here = str(Path(__file__).parent.parent)
    return {**inherited, "PYTHONPATH": os.pathsep.join(filter(None, (here, inherited.get("PYTHONPATH"))))}


def worker_environment(threads: int, pin: str, cpus: list[int], inherited: Mapping[str, str]) -> dict[str, str]:
    """The parent's environment, with as many threads as the case says and, if it says so, bound to cores."""
    environment = {k: v for k, v in package_path(inherited).items() if k not in OVERRIDES}
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
