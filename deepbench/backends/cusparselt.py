"""cuSPARSELt: A with two non-zeros in every four elements, on matrix units that skip the zeros.

A is compressed ahead of time, as constant weights are; the notes give the seconds and bytes.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from time import perf_counter
from typing import Any

from deepbench.core.backend import kernel
from deepbench.core.case import Case
from deepbench.core.errors import LibraryError, OutOfMemory, Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.core.precision import type_name
from deepbench.native.gpu.library import GpuBackend, scalar
from deepbench.native.gpu.runtime import DeviceBuffers, DeviceMemory
from deepbench.native.library import version_text

# Descriptors are stored in the caller's memory. Their size differs between releases (512 bytes in cuSPARSELt 0.8, 11024
# in hipSPARSELt of ROCm 10), as does their alignment (16).
DESCRIPTOR_BYTES, DESCRIPTOR_ALIGNMENT = 16384, 64

# `cudaMalloc` aligns to 256 bytes; the library's kernels may assume 16.
ALIGNMENT = 16
SPARSITY_50_PERCENT = 0
ALGORITHM_DEFAULT = 0
# cusparseLtMatmulAlgAttribute_t: what a search chooses. The last two count only where k is split.
CHOSEN = {"id": 0, "split_k": 3, "split_k_mode": 4, "split_k_buffers": 5}
CHOICE = re.compile(" ".join(rf"{name}=(-?\d{{1,6}})" for name in CHOSEN))


class CuSPARSELt(GpuBackend):
    name = "cusparselt"
    title = "cuSPARSELt"
    part = "sparselt"
    tuning_variables = ("CUSPARSELT_*",)

    def start(self) -> None:
        self._descriptors: list[Any] = []
        self.handle = self._descriptor("cusparseLtInit")

    def version(self) -> str:
        return version_text(self.number("cusparseLtGetVersion", self.handle), 1000)

    # Not tf32: there it needs 1 non-zero in every 2 elements, which `structure=2_4` does not promise.
    @kernel("sparse_gemm", precisions=("f16", "bf16", "i8"))
    def sparse_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """All matrices in column-major order and A transposed: the one order that every type supports."""
        p, gpu, vendor = case.problem, self.gpu, self.vendor
        if p.structure != "2_4":
            raise Unsupported(
                f"{self.title} needs 2 non-zeros in every 4 elements; choose structure=2_4 and sparsity=50"
            )
        if case.settings["order"] == "row":
            raise Unsupported("8-bit kernels need B and C in column-major order; choose order=column")
        if case.precision.name in ("f16", "bf16") and case.settings["result"] == "wide":
            raise Unsupported(f"{self.title} stores 16-bit products in 16 bits; choose result=narrow")
        matrices = {"a": _dense(case, arrays), "b": arrays["b"], "c": arrays["c"]}
        buffers = self.buffers(case, matrices)
        at, types = buffers.address, {x: gpu.data_type(type_name(m.dtype)) for x, m in matrices.items()}
        compute = vendor.SPARSELT_COMPUTE_32I if case.precision.name == "i8" else vendor.SPARSELT_COMPUTE_32F
        by_column = vendor.ORDER_COLUMN
        try:
            a = self._descriptor("cusparseLtStructuredDescriptorInit",
                p.k, p.m, p.k, ALIGNMENT, types["a"], by_column, SPARSITY_50_PERCENT)  # fmt: skip
            b = self._descriptor("cusparseLtDenseDescriptorInit", p.k, p.n, p.k, ALIGNMENT, types["b"], by_column)
            c = self._descriptor("cusparseLtDenseDescriptorInit", p.m, p.n, p.m, ALIGNMENT, types["c"], by_column)
        except Unsupported as error:
            sizes = "rows of m and n elements must be multiples of 16 bytes, and those of k elements of 32"
            raise Unsupported(f"{error}: {self.title} has no kernel for these sizes; {sizes}") from None
        operations = vendor.SPARSE_OP_T, vendor.SPARSE_OP_N
        product = self._descriptor("cusparseLtMatmulDescriptorInit", *operations, a, b, c, c, compute)
        # alpha and beta are floats in every precision.
        alpha, beta = scalar("f32", 1), scalar("f32", float(case.settings["beta"]))
        streams = (ctypes.c_void_p * 1)(gpu.stream)
        buffers.load()
        self._check_structure(product, at["a"])

        def planned(choice: str | None) -> Kernel:
            """A kernel with the algorithm of an earlier search; without one, the library's own search chooses."""
            selection = self._descriptor("cusparseLtMatmulAlgSelectionInit", product, ALGORITHM_DEFAULT)
            if choice is not None:
                self._select(selection, choice)
            plan = self._descriptor("cusparseLtMatmulPlanInit", product, selection)
            compressed, compress = self._compression(plan, buffers)
            notes: dict[str, Any] = {"implementation": vendor.symbol("cusparseLtMatmul"), "pack_s": compress()}
            notes["converted_bytes"] = compressed.bytes
            workspace = DeviceMemory(gpu, self._workspace_bytes(plan), "the workspace")

            def arguments() -> tuple[Any, ...]:
                operands = (alpha, compressed.address, at["b"], beta, at["c"], at["c"], workspace.address)
                return self.handle, plan, *operands, streams, 1

            start = perf_counter()
            # The search tries kernels and ways to split k; the fastest one stays in the plan.
            gpu.call("cusparseLtMatmul" if choice is not None else "cusparseLtMatmulSearch", *arguments())
            gpu.synchronize()
            if choice is None:
                notes["search_s"] = perf_counter() - start
            notes["choice"] = " ".join(f"{n}={self._selected(selection, a)}" for n, a in CHOSEN.items())
            notes["algorithm"] = " ".join(notes["choice"].split()[:2])
            notes["workspace_bytes"] = needed = self._workspace_bytes(plan)
            if needed > workspace.bytes:
                workspace = DeviceMemory(gpu, needed, "the workspace")
            call = self.prepare_call("cusparseLtMatmul", *arguments())
            kernel = self.kernel([call], buffers, arrays, notes, workspace, compressed, self._descriptors)

            def load() -> None:
                buffers.load()
                compress()

            kernel.load = load
            return kernel

        # With `cache=cold`, the other sets of buffers use the choice of the first.
        choice, notes = self._choices.get(case.text, (self.earlier_choice, {"search": "reused"}))
        if choice is not None:
            try:
                kernel = planned(choice)
            except (LibraryError, Unsupported, OutOfMemory) as error:
                notes = {"search": f"again: the algorithm that was chosen before does not run: {error}"}
                kernel = planned(None)
        else:
            notes, kernel = {"search": "now"}, planned(None)
        kernel.notes |= notes
        self._choices[case.text] = kernel.notes["choice"], notes
        return kernel

    def _select(self, selection: Any, choice: str) -> None:
        """Set the algorithm of an earlier search; `Unsupported` for a text that names none."""
        values = CHOICE.fullmatch(choice)
        if values is None:
            raise Unsupported(f"no algorithm of {self.title}: {choice!r:.60}")
        for (name, attribute), text in zip(CHOSEN.items(), values.groups(), strict=True):
            if name in ("id", "split_k") or int(values[2]) > 1:
                value = ctypes.c_int(int(text))
                address, size = ctypes.byref(value), ctypes.sizeof(value)
                self.gpu.call("cusparseLtMatmulAlgSetAttribute", self.handle, selection, attribute, address, size)

    def _compression(self, plan: Any, buffers: DeviceBuffers) -> tuple[DeviceMemory, Callable[[], float]]:
        """Memory for the compressed A, and a function that fills it and returns the seconds."""
        gpu, size, workspace_size = self.gpu, ctypes.c_size_t(), ctypes.c_size_t()
        sizes = ctypes.byref(size), ctypes.byref(workspace_size)
        gpu.call("cusparseLtSpMMACompressedSize", self.handle, plan, *sizes)
        compressed = DeviceMemory(gpu, size.value, "compressed A")
        workspace = DeviceMemory(gpu, workspace_size.value, "the workspace of the compression")
        a, stream = buffers.address["a"], gpu.stream

        def compress() -> float:
            start = perf_counter()
            addresses = compressed.address, workspace.address
            gpu.call("cusparseLtSpMMACompress", self.handle, plan, a, *addresses, stream)
            gpu.synchronize()
            return perf_counter() - start

        return compressed, compress

    def _check_structure(self, product: Any, a: int) -> None:
        """Ask the library whether A has the 2:4 structure; if not, we stored it wrongly."""
        import numpy as np

        gpu, result = self.gpu, np.ones(1, np.int32)
        invalid = DeviceMemory(gpu, result.nbytes, "the result of a check")
        gpu.call("cusparseLtSpMMAPruneCheck", self.handle, product, a, invalid.address, gpu.stream)
        gpu.download(result, invalid.address)
        if result[0]:
            name = self.vendor.symbol("cusparseLtSpMMAPruneCheck")
            raise LibraryError(self.title, name, int(result[0]), "A on the GPU does not have the 2:4 structure")

    def _workspace_bytes(self, plan: Any) -> int:
        return self.number("cusparseLtMatmulGetWorkspace", self.handle, plan, kind=ctypes.c_size_t)

    def _selected(self, selection: Any, attribute: int) -> int | None:
        value = ctypes.c_int()
        status = self.gpu.function("cusparseLtMatmulAlgGetAttribute")(
            self.handle, selection, attribute, ctypes.byref(value), ctypes.sizeof(value)
        )
        return None if status else value.value

    def _descriptor(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        """A descriptor that a function fills in. All but the first function take the library's handle."""
        memory = ctypes.create_string_buffer(DESCRIPTOR_BYTES + DESCRIPTOR_ALIGNMENT)
        address = ctypes.c_void_p(-(-ctypes.addressof(memory) // DESCRIPTOR_ALIGNMENT) * DESCRIPTOR_ALIGNMENT)
        self._descriptors.append(memory)
        handle = () if function == "cusparseLtInit" else (self.handle,)
        self.gpu.call(function, *handle, address, *arguments)
        return address


def _dense(case: Case, arrays: Arrays) -> Any:
    """A with its zeros, in row-major order, shape (m, k)."""
    import numpy as np

    from deepbench.core import operands

    p = case.problem
    a = operands.empty((p.m, p.k), case.precision.weights)
    a[...] = 0
    np.put_along_axis(a, arrays["columns"].reshape(p.m, -1), arrays["values"].reshape(p.m, -1), axis=1)
    return a


BACKEND = CuSPARSELt()
