"""cuSPARSE: CSR matrix times dense matrix (SpMM) or vector (SpMV), with the fastest of its algorithms."""

from __future__ import annotations

import ctypes
from functools import partial
from time import perf_counter
from typing import Any

from deepbench.core.backend import kernel
from deepbench.core.case import Case
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.core.precision import type_name
from deepbench.native.gpu.library import GpuBackend, scalar
from deepbench.native.gpu.runtime import DeviceMemory
from deepbench.native.library import version_text


class CuSPARSE(GpuBackend):
    name = "cusparse"
    title = "cuSPARSE"
    part = "sparse"
    tuning_variables = ("CUSPARSE_*",)

    def start(self) -> None:
        self.handle = self.create("cusparseCreate")
        self.gpu.call("cusparseSetStream", self.handle, self.gpu.stream)

    def version(self) -> str:
        return version_text(self.number("cusparseGetVersion", self.handle), 1000)

    @kernel("sparse_gemm", precisions=("f32", "f16", "bf16", "i8"))
    def sparse_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """The analysis of A happens before timing starts; its time is `optimize_s` in the notes."""
        p, gpu, vendor = case.problem, self.gpu, self.vendor
        buffers = self.buffers(case, arrays)
        types = {x: gpu.data_type(type_name(arrays[x].dtype)) for x in ("values", "b", "c")}
        compute = "s32" if case.precision.name == "i8" else "f32"
        at = buffers.address
        a = self.create(
            "cusparseCreateCsr", p.m, p.k, p.non_zeros, at["row_starts"], at["columns"], at["values"],
            vendor.INDEX_32I, vendor.INDEX_32I, vendor.BASE_ZERO, types["values"],
        )  # fmt: skip
        by_row = case.settings["order"] == "row"
        transposed = [vendor.SPARSE_OP_N] * (1 if p.n == 1 else 2)
        if p.n == 1:
            function, algorithms = "cusparseSpMV", vendor.SPMV_ALGORITHMS
            b = self.create("cusparseCreateDnVec", p.k, at["b"], types["b"])
            c = self.create("cusparseCreateDnVec", p.m, at["c"], types["c"])
        else:
            function, algorithms = "cusparseSpMM", vendor.SPMM_ALGORITHMS
            order = vendor.ORDER_ROW if by_row else vendor.ORDER_COLUMN
            b = self.create("cusparseCreateDnMat", p.k, p.n, p.n if by_row else p.k, at["b"], types["b"], order)
            c = self.create("cusparseCreateDnMat", p.m, p.n, p.n if by_row else p.m, at["c"], types["c"], order)
        alpha, beta = scalar(compute, 1), scalar(compute, float(case.settings["beta"]))

        def candidate(title: str, algorithm: int) -> Kernel:
            arguments = (self.handle, *transposed, alpha, a, b, beta, c, gpu.data_type(compute), algorithm)
            count = self.number(f"{function}_bufferSize", *arguments, kind=ctypes.c_size_t)
            workspace = DeviceMemory(gpu, count, "the workspace")
            call = self.prepare_call(function, *arguments, workspace.address)
            notes: dict[str, Any] = {
                "implementation": vendor.symbol(function),
                "algorithm": title,
                "workspace_bytes": count,
            }

            def load() -> None:
                buffers.load()
                start = perf_counter()
                gpu.call(f"{function}_preprocess", *arguments, workspace.address)
                gpu.synchronize()
                notes["optimize_s"] = perf_counter() - start

            kernel = self.kernel([call], buffers, arrays, notes, workspace)
            kernel.load = load
            return kernel

        return self.fastest(case, {title: partial(candidate, title, number) for title, number in algorithms})[0]


BACKEND = CuSPARSE()
