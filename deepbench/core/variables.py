"""Environment variables that change how libraries run, and what a result file may keep of them.

Those of shared runtimes are listed here; each backend declares those of its own library. `variables.json` repeats what
backends declare, so that reading a result file loads none: `python -m deepbench.core.variables` writes it, and a test
compares. A backend that is not in it, such as a new one, is loaded. Nothing else of the environment is stored: an
environment also holds passwords, and result files are published.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import TypedDict, cast

from deepbench.core import registry
from deepbench.core.errors import shorten

# OpenMP.
THREADS = ("OMP_NUM_THREADS",)
# They would override the threads of the case.
OVERRIDES = (
    *("OMP_THREAD_LIMIT", "OMP_PROC_BIND", "OMP_PLACES", "OMP_NESTED", "OMP_MAX_ACTIVE_LEVELS"),
    *("KMP_AFFINITY", "KMP_HW_SUBSET", "KMP_DEVICE_THREAD_LIMIT", "KMP_ALL_THREADS", "GOMP_CPU_AFFINITY"),
)
FIXED = {"OMP_DYNAMIC": "false"}

# Variables of shared runtimes that may change the speed. A name that ends in * stands for all that begin so. Names are
# listed one by one where other programs use the same beginning, such as NVIDIA_API_KEY.
TUNING = (
    # OpenMP and the C library
    *("OMP_*", "GOMP_*", "KMP_*"),
    *("MALLOC_ARENA_*", "MALLOC_MMAP_*", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_PERTURB_", "MALLOC_CONF"),
    # networks under MPI and oneCCL: libfabric by provider, UCX
    *("FI_PROVIDER", "FI_UNIVERSE_SIZE", "FI_FORK_UNSAFE", "FI_MR_*", "FI_HMEM*", "FI_OFI_*", "FI_SHM_*", "FI_SM2_*"),
    *(
        "FI_TCP_*",
        "FI_UDP_*",
        "FI_SOCKETS_*",
        "FI_VERBS_*",
        "FI_PSM2_*",
        "FI_PSM3_*",
        "FI_OPX_*",
        "FI_EFA_*",
        "FI_CXI_*",
    ),
    *("FI_GNI_*", "FI_MLX_*", "FI_UCX_*", "FI_LNX_*", "UCX_*"),
    # frameworks
    *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_NVML_BASED_CUDA_CHECK"),
    *("ATEN_CPU_CAPABILITY", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "XLA_FLAGS", "XLA_PYTHON_CLIENT_*"),
    *("JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_PLATFORMS", "JAX_DISABLE_JIT", "JAX_COMPILATION_CACHE_*"),
    # runtimes of GPUs
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_MAX_COPY_CONNECTIONS"),
    *("CUDA_LAUNCH_BLOCKING", "CUDA_SCALE_LAUNCH_QUEUES", "CUDA_GRAPHS_USE_NODE_PRIORITY", "CUDA_AUTO_BOOST"),
    *("CUDA_MODULE_LOADING", "CUDA_MODULE_DATA_LOADING", "CUDA_BINARY_LOADER_THREAD_COUNT", "CUDA_DISABLE_PERF_BOOST"),
    *("CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE", "CUDA_FORCE_JIT", "CUDA_DISABLE_JIT", "CUDA_FORCE_PTX_JIT"),
    *("CUDA_DISABLE_PTX_JIT", "CUDA_MANAGED_FORCE_DEVICE_ALLOC", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
    *("CUDA_MPS_CLIENT_PRIORITY", "CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT"),
    *("NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES"),
    *(
        "HIP_VISIBLE_DEVICES",
        "HIP_LAUNCH_BLOCKING",
        "HIP_FORCE_DEV_KERNARG",
        "HIP_HOST_COHERENT",
        "HIP_INITIAL_DM_SIZE",
    ),
    *("HIP_MEM_POOL_SUPPORT", "ROCR_VISIBLE_DEVICES"),
)

# A name with one of these words is taken for that of a secret, whatever the lists say.
SECRET = re.compile(
    r"(?:^|_)(?:(?:API)?KEYS?|TOKENS?|SECRETS?|PASS|PASSWORDS?|PASSWD|PASSPHRASE|PWD|CREDENTIALS?|CREDS?|AUTH|COOKIES?)"
    r"(?:_|$)",
    re.IGNORECASE,
)

# A value that names a file or a folder: a path often contains the name of a person.
A_PATH = re.compile(r"(?:^|[\s:;,=])(?:~|\.{0,2}/)")

HIDDEN = "(hidden)"
"""Stands in a result file for a value that it does not keep."""

MOST_CHARACTERS = 200
"""Of a value that is kept; a longer one is cut."""


DECLARATIONS = Path(__file__).with_suffix(".json")


class Declaration(TypedDict, total=False):
    """What a backend declares, as attributes of the same names. Empty ones are left out."""

    thread_variables: list[str]
    override_variables: list[str]
    fixed_variables: dict[str, str]
    tuning_variables: list[str]
    path_variable: str


def declared(name: str) -> Declaration:
    """What the backend of this name declares, from the backend itself."""
    backend = registry.find("backends", name)
    values = {attribute: getattr(backend, attribute) for attribute in Declaration.__annotations__}
    plain = {attribute: list(v) if isinstance(v, tuple) else v for attribute, v in values.items() if v}
    return cast(Declaration, plain)


@cache
def _declarations(plugins: str | None) -> dict[str, Declaration]:
    """Of each backend. Where there are plug-ins, any backend may be theirs."""
    known = {} if plugins else json.loads(DECLARATIONS.read_text(encoding="utf-8"))
    return {name: known[name] if name in known else declared(name) for name in registry.names("backends")}


def _of_backends() -> list[Declaration]:
    return list(_declarations(os.environ.get(registry.PLUGINS)).values())


def thread_variables() -> tuple[str, ...]:
    """Variables that workers find set to the number of threads of the case."""
    return _distinct(THREADS, *(d.get("thread_variables", ()) for d in _of_backends()))


def override_variables() -> tuple[str, ...]:
    """Variables that are removed from the environment of workers."""
    return _distinct(OVERRIDES, *(d.get("override_variables", ()) for d in _of_backends()))


def fixed_variables() -> dict[str, str]:
    """Variables that have the same value in all workers."""
    return dict(chain(FIXED.items(), *(d.get("fixed_variables", {}).items() for d in _of_backends())))


def path_variables() -> set[str]:
    """Variables that name a library to load."""
    return {d["path_variable"] for d in _of_backends() if "path_variable" in d}


def is_secret(name: str) -> bool:
    """Whether a variable of this name may hold a secret."""
    return SECRET.search(name) is not None


@lru_cache(maxsize=2**12)
def is_tuning(name: str) -> bool:
    """Whether a variable of this name may change the speed of a library and holds no secret."""
    of_libraries = chain(*(d.get("tuning_variables", ()) for d in _of_backends()))
    listed = (*TUNING, *of_libraries, *thread_variables(), *override_variables(), *fixed_variables())
    beginnings = tuple(entry[:-1] for entry in listed if entry.endswith("*"))
    return (name in listed or name.startswith(beginnings)) and not is_secret(name)


def tuning(environment: Mapping[str, str]) -> dict[str, str]:
    """What a record keeps of an environment: the variables that may change the speed of a library."""
    return {name: kept(value) for name, value in sorted(environment.items()) if is_tuning(name)}


def chosen(environment: Mapping[str, str]) -> dict[str, str]:
    """Of the environment of a worker, the tuning variables that the user set and DeepBench did not."""
    ours = {*thread_variables(), *override_variables(), *fixed_variables()}
    return {name: value for name, value in tuning(environment).items() if name not in ours}


def kept(value: str) -> str:
    """What is kept of the value of a tuning variable."""
    return HIDDEN if A_PATH.search(value) else shorten(value, MOST_CHARACTERS)


def is_whole(value: str) -> bool:
    """Whether a value that was kept is the value that was set."""
    return value != HIDDEN and len(value) < MOST_CHARACTERS


def _distinct(*names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain(*names)))


def write_declarations() -> None:
    """Write `variables.json`, with one line per backend."""
    lines = [f"{json.dumps(name)}: {json.dumps(declared(name))}" for name in registry.names("backends")]
    DECLARATIONS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write_declarations()
