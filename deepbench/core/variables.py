"""Environment variables that change how libraries run."""

from __future__ import annotations

from collections.abc import Mapping

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


def tuning(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change how libraries run, for the record."""
    return {k: v for k, v in sorted(environment.items()) if k.startswith(TUNING_PREFIXES)}
