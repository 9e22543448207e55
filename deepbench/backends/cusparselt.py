"""cuSPARSELt: A with two of every four elements kept, on the matrix units that skip the others.

A is compressed ahead of time, as weights are that do not change; seconds and bytes of that are in the notes.
"""

from __future__ import annotations

import ctypes
from time import perf_counter
from typing import TYPE_CHECKING, Any

from deepbench.core.backend import kernel
from deepbench.core.errors import LibraryError, Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.precision import type_name
from deepbench.native.gpu.library import GpuBackend, scalar

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays
    from deepbench.native.gpu.device import Buffers

# Descriptors lie in memory of the caller's. Their size differs between releases (512 bytes in cuSPARSELt 0.8, 11024 in
# hipSPARSELt of ROCm 10), as does their alignment (16).
DESCRIPTOR_BYTES, DESCRIPTOR_ALIGNMENT = 16384, 64

# Matrices of `cudaMalloc` begin at multiples of 256 bytes; kernels may count on 16.
ALIGNMENT = 16
SPARSITY_50_PERCENT = 0
ALGORITHM_DEFAULT = 0
CONFIG_ID, SPLIT_K = 0, 3


class CuSPARSELt(GpuBackend):
    name = "cusparselt"
    title = "cuSPARSELt"
    part = "sparselt"

    def start(self) -> None:
        self._opaque: list[Any] = []
        self.sparselt = self._made("cusparseLtInit")

    def version(self) -> str | None:
        number = ctypes.c_int()
        self.gpu.call("cusparseLtGetVersion", self.sparselt, ctypes.byref(number))
        return f"{number.value // 1000}.{number.value // 100 % 10}.{number.value % 100}"

    @kernel("sparse_gemm", precisions=("tf32", "f16", "bf16", "i8"))
    def sparse_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """All matrices by column and A transposed: the one order that every type has."""
        from deepbench.native.gpu.device import Memory

        p, gpu, vendor = case.problem, self.gpu, self.vendor
        if p.structure != "2_4":
            raise Unsupported(f"{self.title} multiplies 2 of every 4 elements; say structure=2_4 and sparsity=50")
        if case.settings["order"] == "row":
            raise Unsupported("8-bit kernels want B and C by column, so all are asked for so; choose order=column")
        if case.precision.name in ("f16", "bf16") and case.settings["result"] == "wide":
            raise Unsupported(f"{self.title} stores 16-bit products in 16 bits; choose result=narrow")
        held = {"a": _dense(case, arrays), "b": arrays["b"], "c": arrays["c"]}
        buffers = self.buffers(case, held)
        at, types = buffers.address, {x: gpu.type(type_name(a.dtype)) for x, a in held.items()}
        compute = vendor.SPARSELT_COMPUTE_32I if case.precision.name == "i8" else vendor.SPARSELT_COMPUTE_32F
        by_column = vendor.ORDER_COLUMN
        a = self._made("cusparseLtStructuredDescriptorInit",
            p.k, p.m, p.k, ALIGNMENT, types["a"], by_column, SPARSITY_50_PERCENT)  # fmt: skip
        b = self._made("cusparseLtDenseDescriptorInit", p.k, p.n, p.k, ALIGNMENT, types["b"], by_column)
        c = self._made("cusparseLtDenseDescriptorInit", p.m, p.n, p.m, ALIGNMENT, types["c"], by_column)
        operations = vendor.SPARSE_OP_T, vendor.SPARSE_OP_N
        product = self._made("cusparseLtMatmulDescriptorInit", *operations, a, b, c, c, compute)
        selection = self._made("cusparseLtMatmulAlgSelectionInit", product, ALGORITHM_DEFAULT)
        plan = self._made("cusparseLtMatmulPlanInit", product, selection)
        compressed, compress = self._compressing(plan, product, buffers)
        # Scalars are floats whatever is multiplied.
        alpha, beta = scalar("f32", 1), scalar("f32", float(case.settings["beta"]))
        streams = (ctypes.c_void_p * 1)(gpu.stream)

        def arguments(workspace: int) -> tuple[Any, ...]:
            operands = (alpha, compressed.address, at["b"], beta, at["c"], at["c"], workspace)
            return self.sparselt, plan, *operands, streams, 1

        buffers.load()
        self._check_structure(product, at["a"])
        notes = {
            "implementation": vendor.symbol("cusparseLtMatmul"),
            "pack_s": compress(),
            "converted_bytes": compressed.bytes,
        }
        # The library's own search over its kernels and ways to split k; it leaves the fastest in the plan.
        searched = Memory(gpu, self._workspace(plan), "the workspace")
        start = perf_counter()
        gpu.call("cusparseLtMatmulSearch", *arguments(searched.address))
        gpu.synchronize()
        notes["search_s"] = perf_counter() - start
        notes["algorithm"] = f"id={self._selected(selection, CONFIG_ID)} split_k={self._selected(selection, SPLIT_K)}"
        workspace_bytes = self._workspace(plan)
        workspace = searched if workspace_bytes <= searched.bytes else Memory(gpu, workspace_bytes, "the workspace")
        notes["workspace_bytes"] = workspace_bytes
        call = self.enqueue("cusparseLtMatmul", *arguments(workspace.address))
        made = self.kernel([call], buffers, arrays, notes, workspace, compressed, self._opaque)

        def load() -> None:
            buffers.load()
            compress()

        made.load = load
        return made

    def _compressing(self, plan: Any, product: Any, buffers: Buffers) -> tuple[Any, Any]:
        """Memory for A without its zeros, and the function that fills it; that one returns its seconds."""
        from deepbench.native.gpu.device import Memory

        gpu, size, scratch_size = self.gpu, ctypes.c_size_t(), ctypes.c_size_t()
        sizes = ctypes.byref(size), ctypes.byref(scratch_size)
        gpu.call("cusparseLtSpMMACompressedSize", self.sparselt, plan, *sizes)
        compressed = Memory(gpu, size.value, "compressed A")
        scratch = Memory(gpu, scratch_size.value, "the workspace of compressing")
        a, stream = buffers.address["a"], gpu.stream

        def compress() -> float:
            start = perf_counter()
            addresses = compressed.address, scratch.address
            gpu.call("cusparseLtSpMMACompress", self.sparselt, plan, a, *addresses, stream)
            gpu.synchronize()
            return perf_counter() - start

        return compressed, compress

    def _check_structure(self, product: Any, a: int) -> None:
        """The library's own opinion whether A is 2:4 as it lies: if not, we stored it wrongly."""
        import numpy as np

        from deepbench.native.gpu.device import Memory

        gpu, found = self.gpu, np.ones(1, np.int32)
        invalid = Memory(gpu, found.nbytes, "a number")
        gpu.call("cusparseLtSpMMAPruneCheck", self.sparselt, product, a, invalid.address, gpu.stream)
        gpu.download(found, invalid.address)
        if found[0]:
            name = self.vendor.symbol("cusparseLtSpMMAPruneCheck")
            raise LibraryError(self.title, name, int(found[0]), "A is not 2:4 as it lies on the card")

    def _workspace(self, plan: Any) -> int:
        count = ctypes.c_size_t()
        self.gpu.call("cusparseLtMatmulGetWorkspace", self.sparselt, plan, ctypes.byref(count))
        return count.value

    def _selected(self, selection: Any, attribute: int) -> int | None:
        value = ctypes.c_int()
        status = self.gpu.function("cusparseLtMatmulAlgGetAttribute")(
            self.sparselt, selection, attribute, ctypes.byref(value), ctypes.sizeof(value)
        )
        return None if status else value.value

    def _made(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """A descriptor that a function fills in; all but the first function take the library's handle before it."""
        memory = ctypes.create_string_buffer(DESCRIPTOR_BYTES + DESCRIPTOR_ALIGNMENT)
        address = ctypes.c_void_p(-(-ctypes.addressof(memory) // DESCRIPTOR_ALIGNMENT) * DESCRIPTOR_ALIGNMENT)
        self._opaque.append(memory)
        handle = () if name == "cusparseLtInit" else (self.sparselt,)
        self.gpu.call(name, *handle, address, *arguments)
        return address


def _dense(case: Case, arrays: Arrays) -> Any:
    """A with its zeros, by rows, shape (m, k)."""
    import numpy as np

    from deepbench.core import operands

    p = case.problem
    a = operands.empty((p.m, p.k), case.precision.weights)
    a[...] = 0
    np.put_along_axis(a, arrays["columns"].reshape(p.m, -1), arrays["values"].reshape(p.m, -1), axis=1)
    return a


BACKEND = CuSPARSELt()
