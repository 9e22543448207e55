"""cuSPARSE: CSR times dense (SpMM) and times a vector (SpMV), each with every algorithm there is."""

from __future__ import annotations

import ctypes
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from deepbench.core.backend import kernel
from deepbench.core.kernel import Kernel
from deepbench.core.precision import type_name
from deepbench.native.gpu.library import GpuBackend, scalar

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays


class CuSPARSE(GpuBackend):
    name = "cusparse"
    title = "cuSPARSE"
    part = "sparse"

    def start(self) -> None:
        self.sparse = self.handle("cusparseCreate")
        self.gpu.call("cusparseSetStream", self.sparse, self.gpu.stream)

    def version(self) -> str | None:
        number = ctypes.c_int()
        self.gpu.call("cusparseGetVersion", self.sparse, ctypes.byref(number))
        return f"{number.value // 1000}.{number.value // 100 % 10}.{number.value % 100}"

    @kernel("sparse_gemm", precisions=("f32", "f16", "bf16", "i8"))
    def sparse_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """What an algorithm wants to know of A is found out before the clock, as `optimize_s`."""
        from deepbench.native.gpu.device import Memory

        p, gpu, vendor = case.problem, self.gpu, self.vendor
        buffers = self.buffers(case, arrays)
        types = {x: gpu.type(type_name(arrays[x].dtype)) for x in ("values", "b", "c")}
        compute = "s32" if case.precision.name == "i8" else "f32"
        at = buffers.address
        a = self.handle(
            "cusparseCreateCsr", p.m, p.k, p.non_zeros, at["row_starts"], at["columns"], at["values"],
            vendor.INDEX_32I, vendor.INDEX_32I, vendor.BASE_ZERO, types["values"],
        )  # fmt: skip
        by_row = case.settings["order"] == "row"
        transposed = [vendor.SPARSE_OP_N] * (1 if p.n == 1 else 2)
        if p.n == 1:
            name, algorithms = "cusparseSpMV", vendor.SPMV_ALGORITHMS
            b = self.handle("cusparseCreateDnVec", p.k, at["b"], types["b"])
            c = self.handle("cusparseCreateDnVec", p.m, at["c"], types["c"])
        else:
            name, algorithms = "cusparseSpMM", vendor.SPMM_ALGORITHMS
            order = vendor.ORDER_ROW if by_row else vendor.ORDER_COLUMN
            b = self.handle("cusparseCreateDnMat", p.k, p.n, p.n if by_row else p.k, at["b"], types["b"], order)
            c = self.handle("cusparseCreateDnMat", p.m, p.n, p.n if by_row else p.m, at["c"], types["c"], order)
        alpha, beta = scalar(compute, 1), scalar(compute, float(case.settings["beta"]))

        def candidate(title: str, algorithm: int) -> Kernel:
            arguments = (self.sparse, *transposed, alpha, a, b, beta, c, gpu.type(compute), algorithm)
            count = ctypes.c_size_t()
            gpu.call(f"{name}_bufferSize", *arguments, ctypes.byref(count))
            scratch = Memory(gpu, count.value, "the workspace")
            call = self.enqueue(name, *arguments, scratch.address)

            notes: dict[str, Any] = {
                "implementation": vendor.symbol(name),
                "algorithm": title,
                "workspace_bytes": count.value,
            }

            def load() -> None:
                buffers.load()
                start = perf_counter()
                gpu.call(f"{name}_preprocess", *arguments, scratch.address)
                gpu.synchronize()
                notes["optimize_s"] = perf_counter() - start

            made = self.kernel([call], buffers, arrays, notes, scratch)
            made.load = load
            return made

        return self.fastest(case, [partial(candidate, *algorithm) for algorithm in algorithms])[0]


BACKEND = CuSPARSE()
