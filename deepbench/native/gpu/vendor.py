"""What differs between GPU vendors: library files, function names, constants. `Hip` overrides `Cuda`.

Constants are from the headers of CUDA 13.0 and ROCm 10; `tests/native/test_gpu_table.py` compares them with the
enumerations of public bindings. `cudaDataType` and `hipDataType` agree in every type used here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class VendorLibrary:
    """Where to look for one library."""

    title: str
    variable: str
    """Environment variable with the user's own path."""
    patterns: tuple[str, ...]
    before: tuple[str, ...] = ()
    """Libraries that must be loaded first, because this one refers to them by name."""


def _nvidia(title: str, variable: str, file: str, folder: str, before: tuple[str, ...] = ()) -> VendorLibrary:
    """A library from PyPI's wheels for CUDA 13 and 12, a CUDA toolkit or conda."""
    patterns = (f"nvidia/cu[0-9]*/lib/{file}", f"nvidia/{folder}/lib/{file}", file)
    return VendorLibrary(title, variable, patterns, before)


class Cuda:
    """NVIDIA's libraries."""

    name: ClassVar[str] = "cuda"
    maker: ClassVar[str] = "NVIDIA"
    install: ClassVar[str | None] = "pip install '.[cuda13]' in a checkout of DeepBench"
    """How to install the libraries, if they can be installed from PyPI."""
    libraries: ClassVar[dict[str, VendorLibrary]] = {
        "driver": VendorLibrary("CUDA driver", "DEEPBENCH_CUDA_DRIVER_PATH", ("libcuda.so.1",)),
        "runtime": _nvidia("CUDA runtime", "DEEPBENCH_CUDART_PATH", "libcudart.so*", "cuda_runtime"),
        "blaslt": _nvidia("cuBLASLt", "DEEPBENCH_CUBLASLT_PATH", "libcublasLt.so*", "cublas"),
        "blas": _nvidia("cuBLAS", "DEEPBENCH_CUBLAS_PATH", "libcublas.so*", "cublas", ("blaslt",)),
        "rtc": _nvidia("NVRTC", "DEEPBENCH_NVRTC_PATH", "libnvrtc.so*", "cuda_nvrtc"),
        "dnn": _nvidia("cuDNN", "DEEPBENCH_CUDNN_PATH", "libcudnn.so*", "cudnn", ("blaslt", "blas", "rtc")),
        "jitlink": _nvidia("nvJitLink", "DEEPBENCH_NVJITLINK_PATH", "libnvJitLink.so*", "nvjitlink"),
        "sparse": _nvidia("cuSPARSE", "DEEPBENCH_CUSPARSE_PATH", "libcusparse.so*", "cusparse", ("jitlink",)),
        "sparselt": _nvidia("cuSPARSELt", "DEEPBENCH_CUSPARSELT_PATH", "libcusparseLt.so*", "cusparselt"),
        "ccl": _nvidia("NCCL", "DEEPBENCH_NCCL_PATH", "libnccl.so*", "nccl"),
        "management": VendorLibrary("NVML", "DEEPBENCH_NVML_PATH", ("libnvidia-ml.so.1",)),
    }

    OTHER_ARGUMENTS: ClassVar[dict[str, str]] = {}
    """Functions whose arguments differ from the table."""
    MISSING: ClassVar[tuple[str, ...]] = ()
    """Functions of the table that this vendor lacks."""

    def symbol(self, name: str) -> str:
        """The exported name of a function in the table."""
        return name

    def runtime_version(self, number: int) -> str:
        """`13000` → `13.0`: CUDART_VERSION of cuda_runtime_api.h; the driver's versions have the same form."""
        return f"{number // 1000}.{number % 1000 // 10}"

    # By library: the function that describes a status; and the statuses for "out of memory" and "not supported".
    STATUS_TEXT: ClassVar[dict[str, str]] = {
        "runtime": "cudaGetErrorString",
        "dnn": "cudnnGetErrorString",
        "sparselt": "cusparseLtGetErrorString",
        "ccl": "ncclGetErrorString",
        "management": "nvmlErrorString",
    }
    STATUSES: ClassVar[dict[str, tuple[Collection[int], Collection[int]]]] = {
        "runtime": ((2,), (801,)),
        "driver": ((2,), (801,)),
        "blas": ((3,), (8, 15)),
        "blaslt": ((3,), (8, 15)),
        "dnn": ((4003, 4004), range(3000, 4000)),
        "sparse": ((2, 11), (4, 8, 10)),
        "sparselt": ((2, 11), (4, 8, 10)),
    }

    # cudaDataType of library_types.h
    R_32F, R_16F, R_8I, R_32I, R_16BF = 0, 2, 3, 10, 14
    R_8F_E4M3, R_8F_E5M2 = 28, 29

    # driver_types.h
    TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
    STREAM_NON_BLOCKING, HOST_MAPPED, CAPTURE_RELAXED = 1, 2, 2
    WAIT_VALUE_GEQ = 0
    SIGNAL_MEMORY: ClassVar[int | None] = None
    """The flag of memory that a stream may wait for, where host memory will not do."""
    WAIT_MASK: ClassVar[tuple[int, ...]] = ()
    """Further arguments of the function that waits for a value."""
    CLOCK_KHZ, PROCESSORS = 13, 16
    MEMORY_CLOCK_KHZ, MEMORY_BUS_BITS = 36, 37
    L2_BYTES = 38
    CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76

    # cublas_api.h
    OP_N, OP_T = 0, 1
    COMPUTE_32F, COMPUTE_32F_TF32, COMPUTE_16F, COMPUTE_32I = 68, 77, 64, 72
    GEMM_DEFAULT = -1
    MATH_FULL_SUMS: ClassVar[int | None] = 16
    """CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: keep partial sums of 16-bit results in f32."""

    # cublasLt.h
    DESC_TRANSA, DESC_TRANSB = 3, 4
    DESC_FAST_SUMS: ClassVar[int | None] = 25
    """CUBLASLT_MATMUL_DESC_FAST_ACCUM, an int8_t: sums of 8-bit floats stay in the matrix units."""
    PREF_MAX_WORKSPACE = 1
    PREF_REDUCTIONS: ClassVar[tuple[int, int] | None] = (3, 2)
    """The attribute for reduction schemes, and its value COMPUTE_TYPE: keep partial sums in the compute type."""
    ALGORITHM_BYTES = 64
    ALGORITHM_CONFIG: ClassVar[tuple[tuple[str, int], ...]] = (
        *(("id", 0), ("tile", 1), ("split_k", 2), ("stages", 6)),
        *(("reduction", 3), ("swizzling", 4), ("option", 5), ("inner_shape", 7), ("cluster_shape", 8)),
    )
    """cublasLtMatmulAlgoConfigAttributes_t: all together identify an algorithm, and the first four describe it."""

    # cusparse.h; the same in hipSPARSE
    SPARSE_OP_N, SPARSE_OP_T = 0, 1
    INDEX_32I, BASE_ZERO = 2, 0
    ORDER_COLUMN, ORDER_ROW = 1, 2
    SPMM_ALGORITHMS: ClassVar[tuple[tuple[str, int], ...]] = (("CSR_ALG1", 4), ("CSR_ALG2", 6), ("CSR_ALG3", 12))
    SPMV_ALGORITHMS: ClassVar[tuple[tuple[str, int], ...]] = (("CSR_ALG1", 2), ("CSR_ALG2", 3))

    # cusparseLt.h
    SPARSELT_COMPUTE_32I, SPARSELT_COMPUTE_32F = 0, 2

    # f32 multiply-adds per clock of one multiprocessor, by compute capability (CUDA C++ Programming Guide, "Arithmetic
    # instructions"). An f32 result above this peak used a lower precision.
    F32_LANES: ClassVar[dict[tuple[int, int], int]] = {
        **{(7, 0): 64, (7, 5): 64, (8, 0): 64, (8, 6): 128, (8, 7): 128, (8, 9): 128, (9, 0): 128},
        **{(10, 0): 128, (10, 3): 128, (11, 0): 128, (12, 0): 128, (12, 1): 128},
    }


def _amd(title: str, variable: str, file: str) -> VendorLibrary:
    """A library from a ROCm installation, or from AMD's wheels."""
    return VendorLibrary(title, variable, (file, f"_rocm_sdk_core/lib/{file}", f"_rocm_sdk_libraries*/lib/{file}"))


class Hip(Cuda):
    """AMD's libraries: mostly the same functions under other names."""

    name = "hip"
    maker = "AMD"
    install = None
    STATUS_TEXT: ClassVar[dict[str, str]] = {
        "runtime": "cudaGetErrorString",
        "miopen": "miopenGetErrorString",
        "ccl": "ncclGetErrorString",
    }
    STATUSES: ClassVar[dict[str, tuple[Collection[int], Collection[int]]]] = {
        **Cuda.STATUSES,
        "blas": ((2,), (7, 8)),
        "blaslt": ((2,), (7, 8)),
        "miopen": ((4,), (6, 8)),
    }
    libraries: ClassVar[dict[str, VendorLibrary]] = {
        "driver": _amd("HIP runtime", "DEEPBENCH_HIP_PATH", "libamdhip64.so*"),
        "runtime": _amd("HIP runtime", "DEEPBENCH_HIP_PATH", "libamdhip64.so*"),
        "blaslt": _amd("hipBLASLt", "DEEPBENCH_HIPBLASLT_PATH", "libhipblaslt.so*"),
        "blas": _amd("hipBLAS", "DEEPBENCH_HIPBLAS_PATH", "libhipblas.so*"),
        "miopen": _amd("MIOpen", "DEEPBENCH_MIOPEN_PATH", "libMIOpen.so*"),
        "sparse": _amd("hipSPARSE", "DEEPBENCH_HIPSPARSE_PATH", "libhipsparse.so*"),
        "sparselt": _amd("hipSPARSELt", "DEEPBENCH_HIPSPARSELT_PATH", "libhipsparselt.so*"),
        "ccl": _amd("RCCL", "DEEPBENCH_RCCL_PATH", "librccl.so*"),
        "amdsmi": _amd("AMD SMI", "DEEPBENCH_AMDSMI_PATH", "libamd_smi.so*"),
    }

    def symbol(self, name: str) -> str:
        """`cublasCreate_v2` → `hipblasCreate`. MIOpen and AMD SMI are in the table under their own names."""
        for cuda, hip in (("cublas", "hipblas"), ("cusparse", "hipsparse"), ("cuda", "hip"), ("cu", "hip")):
            if name.startswith(cuda):
                return hip + name.removeprefix(cuda).removesuffix("_v2")
        return name

    def runtime_version(self, number: int) -> str:
        """`60342134` → `6.3.42134`: HIP_VERSION of hip_version.h."""
        return f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}"

    # hipStreamWaitValue32 also takes a mask; hipblasLtGetVersion takes a handle and an address.
    OTHER_ARGUMENTS: ClassVar[dict[str, str]] = {"cuStreamWaitValue32_v2": "ppiii", "cublasLtGetVersion": "pp"}
    MISSING = ("cublasLtMatmulAlgoConfigGetAttribute", "cusparseLtGetErrorString")
    WAIT_MASK = (-1,)
    SIGNAL_MEMORY = 2  # hipMallocSignalMemory

    CLOCK_KHZ, PROCESSORS = 5, 63
    MEMORY_CLOCK_KHZ, MEMORY_BUS_BITS = 60, 59
    L2_BYTES = 19
    CAPABILITY_MAJOR, CAPABILITY_MINOR = 23, 61

    OP_N, OP_T = 111, 112
    COMPUTE_32F, COMPUTE_32F_TF32, COMPUTE_16F, COMPUTE_32I = 2, 6, 0, 9
    GEMM_DEFAULT = 160
    MATH_FULL_SUMS = None

    DESC_TRANSA, DESC_TRANSB = 0, 1
    DESC_FAST_SUMS = None
    PREF_REDUCTIONS = None
    ALGORITHM_BYTES = 24
    ALGORITHM_CONFIG = ()

    SPARSELT_COMPUTE_32I = 1

    F32_LANES: ClassVar[dict[tuple[int, int], int]] = {}


CUDA = Cuda()
HIP = Hip()
