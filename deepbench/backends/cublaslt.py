"""cuBLASLt: every algorithm its heuristics propose is timed, and the fastest one measured.

`weights=packed` stores A transposed ahead of time, in the one order (TN) that 8-bit kernels want.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import TYPE_CHECKING, Any

from deepbench.backends.cublas import INTEGER_LEADING, compute_type, transposed, types_of, version_text
from deepbench.core.backend import kernel
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.native.gpu.library import GpuBackend, scalar

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays

# How many algorithms to ask for; heuristics rank them, and beyond these none was ever the fastest elsewhere.
WANTED = 32
# 8-bit floats: the first address of every column is a multiple of 16 (cuBLASLt, "cublasLtMatmul").
FLOAT8_LEADING = 16


class CuBLASLt(GpuBackend):
    name = "cublaslt"
    title = "cuBLASLt"
    part = "blaslt"

    def start(self) -> None:
        self.blaslt = self.handle("cublasLtCreate")

    def version(self) -> str | None:
        if self.vendor.OTHER_ARGUMENTS.get("cublasLtGetVersion"):
            number = ctypes.c_int()
            self.gpu.call("cublasLtGetVersion", self.blaslt, ctypes.byref(number))
            return version_text(number.value)
        return version_text(self.gpu.function("cublasLtGetVersion")())

    @kernel("gemm", precisions=("f32", "tf32", "bf16", "f16", "f16f16", "i8", "f8e4m3", "f8e5m2"))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        p, gpu = case.problem, self.gpu
        bytes_wide = {"i8": INTEGER_LEADING, "f8e4m3": FLOAT8_LEADING, "f8e5m2": FLOAT8_LEADING}
        leading = dict.fromkeys("ab", bytes_wide.get(case.precision.name, 1))
        turned = case.settings["weights"] == "packed" and not p.a_t
        if case.settings["weights"] == "packed" and p.a_t:
            raise Unsupported(f"{self.title} packs nothing; A lies transposed already, which is its packed order")
        buffers = self.buffers(case, arrays, leading, {"a": _transpose} if turned else None)
        a_t = 1 if turned else p.a_t
        compute, kind = compute_type(self.vendor, case)
        description = self.handle("cublasLtMatmulDescCreate", compute, gpu.type(kind))
        for attribute, flag in ((self.vendor.DESC_TRANSA, a_t), (self.vendor.DESC_TRANSB, p.b_t)):
            self._set("cublasLtMatmulDescSetAttribute", description, attribute, transposed(self.vendor, flag))
        shapes = {"a": (p.k, p.m) if a_t else (p.m, p.k), "b": (p.n, p.k) if p.b_t else (p.k, p.n), "c": (p.m, p.n)}
        stored = types_of(arrays)
        layouts = {
            x: self.handle("cublasLtMatrixLayoutCreate", gpu.type(stored[x]), *shapes[x], buffers.leading[x])
            for x in "abc"
        }
        alpha, beta = scalar(kind, 1), scalar(kind, float(case.settings["beta"]))
        workspace, workspace_bytes = gpu.workspace()
        found = self._heuristics(case, description, layouts, workspace_bytes)
        address = buffers.address

        def candidate(result: ctypes.Structure) -> Kernel:
            call = self.enqueue(
                "cublasLtMatmul", self.blaslt, description, alpha, address["a"], layouts["a"], address["b"],
                layouts["b"], beta, address["c"], layouts["c"], address["c"], layouts["c"], result,
                workspace, workspace_bytes, gpu.stream,
            )  # fmt: skip
            return self.kernel([call], buffers, arrays, {}, found)

        best, number = self.fastest(case, [partial(candidate, result) for result in found], buffers.load)
        config = " ".join(f"{n}={self._config(found[number], a)}" for n, a in self.vendor.ALGORITHM_CONFIG)
        best.notes |= {
            "implementation": self.vendor.symbol("cublasLtMatmul"),
            "algorithm": config or f"number {number} of the heuristics",
            "workspace_bytes": found[number].workspace,
        }
        return best

    def _heuristics(
        self,
        case: Case,
        description: ctypes.c_void_p,
        layouts: dict[str, ctypes.c_void_p],
        workspace_bytes: int,
    ) -> list[Any]:
        """What the library proposes for this problem, best guess first."""
        preference = self.handle("cublasLtMatmulPreferenceCreate")
        setter = "cublasLtMatmulPreferenceSetAttribute"
        self._set(setter, preference, self.vendor.PREF_MAX_WORKSPACE, workspace_bytes, ctypes.c_uint64)
        if self.vendor.PREF_REDUCTIONS is not None:
            self._set(setter, preference, *self.vendor.PREF_REDUCTIONS, ctypes.c_uint32)

        class Result(ctypes.Structure):
            """cublasLtMatmulHeuristicResult_t."""

            _fields_ = (
                ("algorithm", ctypes.c_uint64 * (self.vendor.ALGORITHM_BYTES // 8)),
                ("workspace", ctypes.c_size_t),
                ("state", ctypes.c_int),
                ("waves", ctypes.c_float),
                ("reserved", ctypes.c_int * 4),
            )

        results, count = (Result * WANTED)(), ctypes.c_int()
        layout = [layouts[x] for x in "abcc"]
        self.gpu.call(
            "cublasLtMatmulAlgoGetHeuristic", self.blaslt, description, *layout, preference, WANTED, results,
            ctypes.byref(count),
        )  # fmt: skip
        found = [results[i] for i in range(count.value) if results[i].state == 0]
        if not found:
            wants = "; 8 bits may want A transposed and B not, and m and k in multiples of 16"
            eight = case.precision.name in ("i8", "f8e4m3", "f8e5m2")
            raise Unsupported(f"{self.title} proposes no algorithm for this{wants if eight else ''}")
        return found

    def _set(self, name: str, what: ctypes.c_void_p, attribute: int, value: int, kind: Any = ctypes.c_int) -> None:
        number = kind(value)
        self.gpu.call(name, what, attribute, ctypes.byref(number), ctypes.sizeof(number))

    def _config(self, algorithm: Any, attribute: int) -> int | None:
        value, written = ctypes.c_int(), ctypes.c_size_t()
        status = self.gpu.function("cublasLtMatmulAlgoConfigGetAttribute")(
            ctypes.byref(algorithm), attribute, ctypes.byref(value), ctypes.sizeof(value), ctypes.byref(written)
        )
        return None if status else value.value


def _transpose(array: Any) -> Any:
    return array.T


BACKEND = CuBLASLt()
