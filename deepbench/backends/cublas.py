"""cuBLAS: `cublasGemmEx` with the library's default choice of algorithm, as the original benchmark called it."""

from __future__ import annotations

from typing import ClassVar

from deepbench.core.backend import kernel
from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.core.precision import type_name
from deepbench.native.gpu.library import GpuBackend, scalar
from deepbench.native.gpu.vendor import Cuda
from deepbench.native.library import version_text

# Integer kernels read four numbers at once, so columns must begin at multiples of four bytes (cuBLAS, "cublasGemmEx").
INTEGER_LEADING = 4


class CuBLAS(GpuBackend):
    name = "cublas"
    title = "cuBLAS"
    part = "blas"
    tuning_variables: ClassVar[tuple[str, ...]] = ("CUBLAS_*",)

    def start(self) -> None:
        self.handle = self.create("cublasCreate_v2")
        self.gpu.call("cublasSetStream_v2", self.handle, self.gpu.stream)

    def version(self) -> str:
        return version_text(self.number("cublasGetVersion_v2", self.handle))

    @kernel("gemm", precisions=("f32", "tf32", "bf16", "f16", "f16f16", "i8"))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        p = case.problem
        if case.settings["weights"] == "packed":
            raise Unsupported(f"{self.title} has no interface to pack weights ahead")
        leading = {"a": INTEGER_LEADING, "b": INTEGER_LEADING} if case.precision.name == "i8" else {}
        buffers = self.buffers(case, arrays, leading)
        compute, scalar_type = compute_type(self.vendor, case)
        alpha, beta = scalar(scalar_type, 1), scalar(scalar_type, float(case.settings["beta"]))
        types = types_of(arrays)
        operand = {x: (buffers.address[x], self.gpu.data_type(types[x]), buffers.leading[x]) for x in "abc"}
        # With a workspace of ours the library allocates nothing while calls are captured into a graph.
        self.gpu.call("cublasSetWorkspace_v2", self.handle, *self.gpu.workspace())
        if self.vendor.MATH_FULL_SUMS is not None and case.precision.name in ("bf16", "f16"):
            self.gpu.call("cublasSetMathMode", self.handle, self.vendor.MATH_FULL_SUMS)
        call = self.prepare_call(
            "cublasGemmEx", self.handle, transposed(self.vendor, p.a_t), transposed(self.vendor, p.b_t), p.m, p.n, p.k,
            alpha, *operand["a"], *operand["b"], beta, *operand["c"], compute, self.vendor.GEMM_DEFAULT,
        )  # fmt: skip
        notes = {"implementation": self.vendor.symbol("cublasGemmEx"), "workspace_bytes": self.gpu.workspace()[1]}
        # A search with one candidate: the library loads its kernels before the first call, or reports an error here.
        try:
            return self.fastest(case, {"default": lambda: self.kernel([call], buffers, arrays, notes)}, buffers.load)[0]
        except Unsupported as error:
            odd = case.precision.name == "i8" and p.k % INTEGER_LEADING
            hint = f"; 8-bit kernels need a k that is a multiple of {INTEGER_LEADING}" if odd else ""
            raise Unsupported(f"{error}{hint}") from None


def transposed(vendor: Cuda, flag: int) -> int:
    """The vendor's constant for a matrix that is transposed in memory, or not."""
    return vendor.OP_T if flag else vendor.OP_N


def types_of(arrays: Arrays) -> dict[str, str]:
    """The types of A, B and C."""
    return {x: type_name(arrays[x].dtype) for x in "abc"}


def compute_type(vendor: Cuda, case: Case) -> tuple[int, str]:
    """The compute type of a case, and the type that alpha and beta have with it."""
    name = case.precision.name
    if name == "tf32":
        return vendor.COMPUTE_32F_TF32, "f32"
    if name == "f16f16":
        return vendor.COMPUTE_16F, "f16"
    if name == "i8":
        return vendor.COMPUTE_32I, "s32"
    return vendor.COMPUTE_32F, "f32"


BACKEND = CuBLAS()
