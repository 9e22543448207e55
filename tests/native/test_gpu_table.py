"""The table of GPU functions and constants, compared with public packages.

Prototypes are in the `.pxd` files of nvmath-python, cuda-bindings, nccl4py and rocm-bindings (extra `gpu-test`), and in
the headers of NVIDIA's wheels, if installed (cuDNN's are only there). MIOpen's header is in a ROCm installation, or
DEEPBENCH_TEST_MIOPEN_HEADER names it.
"""

import os
import re
import sysconfig
from functools import cache
from pathlib import Path

import pytest

from deepbench.backends import cusparselt
from deepbench.native.gpu import functions
from deepbench.native.gpu.functions import FUNCTIONS
from deepbench.native.gpu.vendor import CUDA, HIP

SITE = Path(sysconfig.get_path("purelib"))
PXD = ("nvmath/bindings/cy*.pxd", "cuda/bindings/cy*.pxd", "nccl/bindings/cynccl.pxd", "rocm/bindings/cy*.pxd")
MIOPEN = os.environ.get("DEEPBENCH_TEST_MIOPEN_HEADER", "/opt/rocm/include/miopen/miopen.h")
HEADERS = ("cuda_runtime_api", "cublas_api", "cublasLt", "cusparse", "cusparseLt", "nccl", "cudnn_*")

HANDLE = (
    r"\b\w*(Handle|Stream|Event|Graph|GraphExec|Comm|Descr|Descriptor|MatmulDesc|MatrixLayout|Preference|Device"
    r"|AcceleratorQueue)_t\b"
)
WIDE = r"\b(size_t|u?int64_t|unsigned long long|CUdeviceptr|unsigned long)\b"


def letter(argument):
    """The letter of the table for an argument of a C prototype."""
    if "*" in argument or "[" in argument or re.search(HANDLE + r"|\bCUstream\b", argument):
        return "p"
    if re.search(WIDE + r"|\bamdsmi_bdf_t\b", argument):  # a union of 64 bits
        return "l"
    return "U" if "ncclUniqueId" in argument else "i"


@cache
def prototypes():
    """Function name → letters of its arguments, from the installed packages."""
    result = {}
    texts = [p.read_text(errors="replace") for pattern in PXD for p in SITE.glob(pattern)]
    headers = [path for name in HEADERS for path in SITE.glob(f"nvidia/*/include/{name}.h")]
    for path in [*headers, *filter(Path.is_file, [Path(MIOPEN)])]:
        texts.append(re.sub(r"/\*.*?\*/|//[^\n]*", " ", path.read_text(errors="replace"), flags=re.DOTALL))
    for text in texts:
        for name, arguments in re.findall(
            r"\b(\w+)\s*\(([^(){};]*)\)\s*(?:except|noexcept|nogil|;|__dv|CUSPARSE)", text
        ):
            words = [a.strip() for a in arguments.split(",") if a.strip() not in ("", "void")]
            result.setdefault(name, set()).add("".join(map(letter, words)))
    return result


def of(name):
    """The prototypes of a function, also under its name in the header."""
    known = prototypes()
    return known.get(name) or known.get(re.sub(r"_v[23]$", "", name)) or set()


OF_NVIDIA = [n for n in FUNCTIONS if functions.part_of(n) in CUDA.libraries]


@pytest.mark.parametrize("name", OF_NVIDIA)
def test_the_table_has_the_arguments_of_nvidias_functions(name):
    if not of(name):
        pytest.skip(f"no installed package has the prototype of {functions.part_of(name)} functions")

    assert FUNCTIONS[name] in of(name)


OF_AMD = [n for n in FUNCTIONS if functions.part_of(n) in HIP.libraries and n not in HIP.MISSING]


@pytest.mark.parametrize("name", OF_AMD)
def test_the_table_has_the_arguments_of_amds_functions(name):
    letters = of(HIP.symbol(name))
    beginning = next(b for b in ("miopen", "amdsmi", "") if name.startswith(b))
    if not [n for n in prototypes() if n.startswith(beginning or "hip")]:
        pytest.skip(f"no installed package has the prototypes of {functions.part_of(name)} functions")

    assert HIP.OTHER_ARGUMENTS.get(name, FUNCTIONS[name]) in letters


def test_most_of_the_table_was_compared():
    if not prototypes():
        pytest.skip("no package with prototypes is installed (extra gpu-test)")
    compared = [n for n in FUNCTIONS if of(n)]

    assert len(compared) >= 60, sorted(set(FUNCTIONS) - set(compared))


# Constants of vendor.py → module, enumeration and member in public bindings.
NVIDIA_ENUMS = {
    "OP_N": ("nvmath.bindings.cublas", "Operation", "N"),
    "OP_T": ("nvmath.bindings.cublas", "Operation", "T"),
    "COMPUTE_32F": ("nvmath.bindings.cublas", "ComputeType", "COMPUTE_32F"),
    "COMPUTE_32F_TF32": ("nvmath.bindings.cublas", "ComputeType", "COMPUTE_32F_FAST_TF32"),
    "COMPUTE_16F": ("nvmath.bindings.cublas", "ComputeType", "COMPUTE_16F"),
    "COMPUTE_32I": ("nvmath.bindings.cublas", "ComputeType", "COMPUTE_32I"),
    "GEMM_DEFAULT": ("nvmath.bindings.cublas", "GemmAlgo", "DEFAULT"),
    "DESC_TRANSA": ("nvmath.bindings.cublasLt", "MatmulDescAttribute", "TRANSA"),
    "DESC_TRANSB": ("nvmath.bindings.cublasLt", "MatmulDescAttribute", "TRANSB"),
    "DESC_FAST_SUMS": ("nvmath.bindings.cublasLt", "MatmulDescAttribute", "FAST_ACCUM"),
    "PREF_MAX_WORKSPACE": ("nvmath.bindings.cublasLt", "MatmulPreferenceAttribute", "MAX_WORKSPACE_BYTES"),
    "ORDER_COLUMN": ("nvmath.bindings.cusparse", "Order", "COL"),
    "ORDER_ROW": ("nvmath.bindings.cusparse", "Order", "ROW"),
    "INDEX_32I": ("nvmath.bindings.cusparse", "IndexType", "INDEX_32I"),
    "SPARSE_OP_N": ("nvmath.bindings.cusparse", "Operation", "NON_TRANSPOSE"),
    "SPARSE_OP_T": ("nvmath.bindings.cusparse", "Operation", "TRANSPOSE"),
    "SPARSELT_COMPUTE_32I": ("nvmath.bindings.cusparseLt", "ComputeType", "COMPUTE_32I"),
    "SPARSELT_COMPUTE_32F": ("nvmath.bindings.cusparseLt", "ComputeType", "COMPUTE_32F"),
}
AMD_ENUMS = {
    "OP_N": ("rocm.bindings.hipblas", "hipblasOperation_t", "HIPBLAS_OP_N"),
    "OP_T": ("rocm.bindings.hipblas", "hipblasOperation_t", "HIPBLAS_OP_T"),
    "COMPUTE_32F": ("rocm.bindings.hipblas", "hipblasComputeType_t", "HIPBLAS_COMPUTE_32F"),
    "COMPUTE_32F_TF32": ("rocm.bindings.hipblas", "hipblasComputeType_t", "HIPBLAS_COMPUTE_32F_FAST_TF32"),
    "COMPUTE_16F": ("rocm.bindings.hipblas", "hipblasComputeType_t", "HIPBLAS_COMPUTE_16F"),
    "COMPUTE_32I": ("rocm.bindings.hipblas", "hipblasComputeType_t", "HIPBLAS_COMPUTE_32I"),
    "GEMM_DEFAULT": ("rocm.bindings.hipblas", "hipblasGemmAlgo_t", "HIPBLAS_GEMM_DEFAULT"),
    "DESC_TRANSA": ("rocm.bindings.hipblaslt", "hipblasLtMatmulDescAttributes_t", "HIPBLASLT_MATMUL_DESC_TRANSA"),
    "DESC_TRANSB": ("rocm.bindings.hipblaslt", "hipblasLtMatmulDescAttributes_t", "HIPBLASLT_MATMUL_DESC_TRANSB"),
    "CLOCK_KHZ": ("rocm.bindings.hip", "hipDeviceAttribute_t", "hipDeviceAttributeClockRate"),
    "PROCESSORS": ("rocm.bindings.hip", "hipDeviceAttribute_t", "hipDeviceAttributeMultiprocessorCount"),
    "MEMORY_CLOCK_KHZ": ("rocm.bindings.hip", "hipDeviceAttribute_t", "hipDeviceAttributeMemoryClockRate"),
    "MEMORY_BUS_BITS": ("rocm.bindings.hip", "hipDeviceAttribute_t", "hipDeviceAttributeMemoryBusWidth"),
    "L2_BYTES": ("rocm.bindings.hip", "hipDeviceAttribute_t", "hipDeviceAttributeL2CacheSize"),
    "CAPABILITY_MAJOR": ("rocm.bindings.hip", "hipDeviceAttribute_t", "hipDeviceAttributeComputeCapabilityMajor"),
    "CAPABILITY_MINOR": ("rocm.bindings.hip", "hipDeviceAttribute_t", "hipDeviceAttributeComputeCapabilityMinor"),
    "TO_DEVICE": ("rocm.bindings.hip", "hipMemcpyKind", "hipMemcpyHostToDevice"),
    "TO_HOST": ("rocm.bindings.hip", "hipMemcpyKind", "hipMemcpyDeviceToHost"),
    "CAPTURE_RELAXED": ("rocm.bindings.hip", "hipStreamCaptureMode", "hipStreamCaptureModeRelaxed"),
    "R_16BF": ("rocm.bindings.hip", "hipDataType", "HIP_R_16BF"),
    "R_8F_E4M3": ("rocm.bindings.hip", "hipDataType", "HIP_R_8F_E4M3"),
    "SPARSE_OP_N": ("rocm.bindings.hipsparse", "hipsparseOperation_t", "HIPSPARSE_OPERATION_NON_TRANSPOSE"),
    "SPARSE_OP_T": ("rocm.bindings.hipsparse", "hipsparseOperation_t", "HIPSPARSE_OPERATION_TRANSPOSE"),
    "SPARSELT_COMPUTE_32I": ("rocm.bindings.hipsparselt", "hipsparseLtComputetype_t", "HIPSPARSELT_COMPUTE_32I"),
    "SPARSELT_COMPUTE_32F": ("rocm.bindings.hipsparselt", "hipsparseLtComputetype_t", "HIPSPARSELT_COMPUTE_32F"),
    "ORDER_COLUMN": ("rocm.bindings.hipsparse", "hipsparseOrder_t", "HIPSPARSE_ORDER_COL"),
    "ORDER_ROW": ("rocm.bindings.hipsparse", "hipsparseOrder_t", "HIPSPARSE_ORDER_ROW"),
    "INDEX_32I": ("rocm.bindings.hipsparse", "hipsparseIndexType_t", "HIPSPARSE_INDEX_32I"),
}


@pytest.mark.parametrize(
    ("vendor", "name", "where"),
    [(CUDA, n, w) for n, w in NVIDIA_ENUMS.items()] + [(HIP, n, w) for n, w in AMD_ENUMS.items()],
    ids=lambda value: getattr(value, "name", value if isinstance(value, str) else None),
)
def test_a_constant_is_that_of_public_bindings(vendor, name, where):
    module = pytest.importorskip(where[0], reason=f"{where[0]} is not installed (extra gpu-test)")
    enum = getattr(module, where[1], None)
    if enum is None:
        pytest.skip(f"{where[0]} has no {where[1]}")

    assert int(getattr(enum, where[2])) == getattr(vendor, name)


@pytest.mark.parametrize(
    ("ours", "where", "names"),
    [
        (
            dict(CUDA.ALGORITHM_CONFIG),
            ("nvmath.bindings.cublasLt", "MatmulAlgoConfigAttribute"),
            {
                **{"id": "ID", "tile": "TILE_ID", "split_k": "SPLITK_NUM", "stages": "STAGES_ID"},
                **{"reduction": "REDUCTION_SCHEME", "swizzling": "CTA_SWIZZLING", "option": "CUSTOM_OPTION"},
                **{"inner_shape": "INNER_SHAPE_ID", "cluster_shape": "CLUSTER_SHAPE_ID"},
            },
        ),
        (
            cusparselt.CHOSEN,
            ("nvmath.bindings.cusparseLt", "MatmulAlgAttribute"),
            {
                **{"id": "CONFIG_ID", "split_k": "SPLIT_K", "split_k_mode": "SPLIT_K_MODE"},
                "split_k_buffers": "SPLIT_K_BUFFERS",
            },
        ),
    ],
    ids=["cublaslt", "cusparselt"],
)
def test_what_identifies_an_algorithm_is_that_of_public_bindings(ours, where, names):
    module = pytest.importorskip(where[0], reason=f"{where[0]} is not installed (extra gpu-test)")
    found = getattr(module, where[1], None)
    if found is None:
        pytest.skip(f"{where[0]} has no {where[1]}")

    assert {name: int(getattr(found, member)) for name, member in names.items()} == ours
