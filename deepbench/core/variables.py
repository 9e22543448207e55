"""Environment variables that change how libraries run.

Those of shared runtimes are listed here; each backend declares those of its own library.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from deepbench.core.backend import all_backends

# OpenMP.
THREADS = ("OMP_NUM_THREADS",)
# They would override the threads of the case.
OVERRIDES = (
    *("OMP_THREAD_LIMIT", "OMP_PROC_BIND", "OMP_PLACES", "OMP_NESTED", "OMP_MAX_ACTIVE_LEVELS"),
    *("KMP_AFFINITY", "KMP_HW_SUBSET", "KMP_DEVICE_THREAD_LIMIT", "KMP_ALL_THREADS", "GOMP_CPU_AFFINITY"),
)
FIXED = {"OMP_DYNAMIC": "false"}
# OpenMP and the C library, network libraries under MPI and oneCCL, the runtimes of GPUs.
PREFIXES = ("OMP_", "GOMP_", "KMP_", "MALLOC_", "FI_", "UCX_", "CUDA_", "NVIDIA_", "HIP_", "ROCR_")


def thread_variables() -> tuple[str, ...]:
    """Variables that workers find set to the number of threads of the case."""
    return _declared(THREADS, "thread_variables")


def override_variables() -> tuple[str, ...]:
    """Variables that are removed from the environment of workers."""
    return _declared(OVERRIDES, "override_variables")


def fixed_variables() -> dict[str, str]:
    """Variables that have the same value in all workers."""
    return dict(chain(FIXED.items(), *(b.fixed_variables.items() for b in all_backends().values())))


def tuning_prefixes() -> tuple[str, ...]:
    """Beginnings of the names of variables that may change the speed of a library."""
    return _declared(PREFIXES, "tuning_prefixes")


def tuning(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that may change the speed of a library, for the record."""
    prefixes = tuning_prefixes()
    return {name: value for name, value in sorted(environment.items()) if name.startswith(prefixes)}


def _declared(shared: tuple[str, ...], attribute: str) -> tuple[str, ...]:
    declared: list[tuple[str, ...]] = [getattr(backend, attribute) for backend in all_backends().values()]
    return tuple(dict.fromkeys(chain(shared, *declared)))
