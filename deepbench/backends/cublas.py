"""cuBLAS: `cublasGemmEx` with the library's own choice of algorithm, as the original called it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from deepbench.core.backend import kernel
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.precision import type_name
from deepbench.native.gpu.library import GpuBackend, scalar

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays
    from deepbench.native.gpu.vendor import Cuda

PRECISIONS = ("f32", "tf32", "bf16", "f16", "f16f16", "i8")

# Integer kernels read four numbers at once, so columns begin at multiples of four bytes (cuBLAS, "cublasGemmEx").
INTEGER_LEADING = 4


class CuBLAS(GpuBackend):
    name = "cublas"
    title = "cuBLAS"
    part = "blas"

    def start(self) -> None:
        self.blas = self.handle("cublasCreate_v2")
        self.gpu.call("cublasSetStream_v2", self.blas, self.gpu.stream)

    def version(self) -> str | None:
        number = ctypes.c_int()
        self.gpu.call("cublasGetVersion_v2", self.blas, ctypes.byref(number))
        return version_text(number.value)

    @kernel("gemm", precisions=PRECISIONS)
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        p = case.problem
        if case.settings["weights"] == "packed":
            raise Unsupported(f"{self.title} has no interface to pack weights ahead")
        leading = {"a": INTEGER_LEADING, "b": INTEGER_LEADING} if case.precision.name == "i8" else {}
        buffers = self.buffers(case, arrays, leading)
        compute, kind = compute_type(self.vendor, case)
        alpha, beta = scalar(kind, 1), scalar(kind, float(case.settings["beta"]))
        operand = {x: (buffers.address[x], self.gpu.type(t), buffers.leading[x]) for x, t in types_of(arrays).items()}
        # Of our own, so that nothing is allocated while calls are captured into a graph.
        self.gpu.call("cublasSetWorkspace_v2", self.blas, *self.gpu.workspace())
        if self.vendor.MATH_FULL_SUMS is not None and case.precision.name in ("bf16", "f16"):
            self.gpu.call("cublasSetMathMode", self.blas, self.vendor.MATH_FULL_SUMS)
        call = self.enqueue(
            "cublasGemmEx", self.blas, transposed(self.vendor, p.a_t), transposed(self.vendor, p.b_t), p.m, p.n, p.k,
            alpha, *operand["a"], *operand["b"], beta, *operand["c"], compute, self.vendor.GEMM_DEFAULT,
        )  # fmt: skip
        notes = {"implementation": self.vendor.symbol("cublasGemmEx"), "workspace_bytes": self.gpu.workspace()[1]}
        # A search among one: so the library has loaded its kernels before the first call, and refuses in time.
        return self.fastest(case, [lambda: self.kernel([call], buffers, arrays, notes)], buffers.load)[0]


def transposed(vendor: Cuda, flag: int) -> int:
    """The number for a matrix that lies transposed in memory, or does not."""
    return vendor.OP_T if flag else vendor.OP_N


def types_of(arrays: Arrays) -> dict[str, str]:
    """The types of A, B and C."""
    return {x: type_name(arrays[x].dtype) for x in "abc"}


def compute_type(vendor: Cuda, case: Case) -> tuple[int, str]:
    """What products are computed in, and the type of alpha and beta that belongs to it."""
    name = case.precision.name
    if name == "tf32":
        return vendor.COMPUTE_32F_TF32, "f32"
    if name == "f16f16":
        return vendor.COMPUTE_16F, "f16"
    if name == "i8":
        return vendor.COMPUTE_32I, "s32"
    return vendor.COMPUTE_32F, "f32"


def version_text(number: int) -> str:
    """130100 → 13.1.0."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


BACKEND = CuBLAS()
