"""cuBLASLt: times every algorithm that the library's heuristics propose, and measures the fastest.

`weights=packed` stores A transposed ahead of time, in the only order (TN) that 8-bit kernels accept.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

from deepbench.backends.cublas import INTEGER_LEADING, compute_type, transposed, types_of
from deepbench.core.backend import kernel
from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native.gpu.library import GpuBackend, scalar
from deepbench.native.library import version_text

# How many algorithms to ask for. In our tests the fastest one was always among the first 32.
MOST_ALGORITHMS = 32
# So many words of an identity describe an algorithm to people.
DESCRIBING = 4
# Of its attributes, the shapes of the instruction and of the cluster have 16 bits.
SHORT = (7, 8)
# hipblasLtMatmulAlgo_t begins with 16 bytes that identify the kernel; the limit of its workspace follows.
IDENTIFYING_BYTES = 16
# 8-bit floats: the first address of every column is a multiple of 16 (cuBLASLt, "cublasLtMatmul").
FLOAT8_LEADING = 16
EIGHT_BIT = {"i8": INTEGER_LEADING, "f8e4m3": FLOAT8_LEADING, "f8e5m2": FLOAT8_LEADING}


def eight_bit_hint(case: Case) -> str:
    """What 8-bit kernels there are, to be appended to a refusal; nothing for other types."""
    if case.precision.name not in EIGHT_BIT:
        return ""
    multiple = EIGHT_BIT[case.precision.name]
    return f"; it has 8-bit kernels for a_t=1 (or weights=packed), b_t=0, and m and k that are multiples of {multiple}"


class CuBLASLt(GpuBackend):
    name = "cublaslt"
    title = "cuBLASLt"
    part = "blaslt"
    tuning_variables = ("CUBLASLT_*",)

    def start(self) -> None:
        self.handle = self.create("cublasLtCreate")

    def version(self) -> str:
        if self.vendor.OTHER_ARGUMENTS.get("cublasLtGetVersion"):
            return version_text(self.number("cublasLtGetVersion", self.handle))
        return version_text(self.gpu.function("cublasLtGetVersion")())

    @kernel(
        "gemm",
        precisions=("f32", "tf32", "bf16", "f16", "f16f16", "i8", "f8e4m3", "f8e5m2"),
        rare_settings=("accumulate",),
    )
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        p, gpu = case.problem, self.gpu
        packed = case.settings["weights"] == "packed"
        if packed and p.a_t:
            raise Unsupported(f"A is transposed already, which is {self.title}'s packed order; choose weights=plain")
        fast_sums = self.vendor.DESC_FAST_SUMS if case.settings["accumulate"] == "fast" else None
        if fast_sums is None and case.settings["accumulate"] == "fast":
            raise Unsupported(f"{self.title} has no faster sums; choose accumulate=full")
        leading = dict.fromkeys("ab", EIGHT_BIT.get(case.precision.name, 1))
        buffers = self.buffers(case, arrays, leading, {"a": lambda a: a.T} if packed else None)
        a_t = 1 if packed else p.a_t
        compute, scalar_type = compute_type(self.vendor, case)
        description = self.create("cublasLtMatmulDescCreate", compute, gpu.data_type(scalar_type))
        for attribute, flag in ((self.vendor.DESC_TRANSA, a_t), (self.vendor.DESC_TRANSB, p.b_t)):
            self._set("cublasLtMatmulDescSetAttribute", description, attribute, transposed(self.vendor, flag))
        if fast_sums is not None:
            self._set("cublasLtMatmulDescSetAttribute", description, fast_sums, 1, ctypes.c_int8)
        shapes = {"a": (p.k, p.m) if a_t else (p.m, p.k), "b": (p.n, p.k) if p.b_t else (p.k, p.n), "c": (p.m, p.n)}
        types = types_of(arrays)
        layouts = {
            x: self.create("cublasLtMatrixLayoutCreate", gpu.data_type(types[x]), *shapes[x], buffers.leading[x])
            for x in "abc"
        }
        alpha, beta = scalar(scalar_type, 1), scalar(scalar_type, float(case.settings["beta"]))
        workspace, workspace_bytes = gpu.workspace()
        results = self._heuristics(case, description, layouts, workspace_bytes)
        address = buffers.address

        def candidate(result: ctypes.Structure) -> Kernel:
            call = self.prepare_call(
                "cublasLtMatmul", self.handle, description, alpha, address["a"], layouts["a"], address["b"],
                layouts["b"], beta, address["c"], layouts["c"], address["c"], layouts["c"], result,
                workspace, workspace_bytes, gpu.stream,
            )  # fmt: skip
            return self.kernel([call], buffers, arrays, {}, results)

        named: dict[str, Any] = {}
        for result in results:
            name = self._identity(result)
            named[f"{name} ({len(named)})" if name in named else name] = result
        best, name = self.fastest(case, {n: partial(candidate, result) for n, result in named.items()}, buffers.load)
        config = " ".join(name.split()[:DESCRIBING]) if self.vendor.ALGORITHM_CONFIG else None
        best.notes |= {
            "implementation": self.vendor.symbol("cublasLtMatmul"),
            "algorithm": config or f"number {list(named).index(name)} of the heuristics",
            "workspace_bytes": named[name].workspace,
        }
        return best

    def _heuristics(
        self, case: Case, description: ctypes.c_void_p, layouts: dict[str, ctypes.c_void_p], workspace_bytes: int
    ) -> list[Any]:
        """The algorithms that the library proposes, best guess first."""
        preference = self.create("cublasLtMatmulPreferenceCreate")
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

        table = (Result * MOST_ALGORITHMS)()
        layout = [layouts[x] for x in "abcc"]
        name, count = "cublasLtMatmulAlgoGetHeuristic", 0
        try:
            count = self.number(name, self.handle, description, *layout, preference, MOST_ALGORITHMS, table)
        except Unsupported:  # said of 8-bit types in another order
            if case.precision.name not in EIGHT_BIT:
                raise
        results = [table[i] for i in range(count) if table[i].state == 0]
        if not results:
            raise Unsupported(f"{self.title} proposes no algorithm{eight_bit_hint(case)}")
        return results

    def _set(self, name: str, target: ctypes.c_void_p, attribute: int, value: int, kind: Any = ctypes.c_int) -> None:
        number = kind(value)
        self.gpu.call(name, target, attribute, ctypes.byref(number), ctypes.sizeof(number))

    def _identity(self, result: Any) -> str:
        """What tells an algorithm from the others, in every process with this version of the library."""
        configuration = self.vendor.ALGORITHM_CONFIG
        if configuration:
            return " ".join(f"{name}={self._config(result, attribute)}" for name, attribute in configuration)
        return bytes(result.algorithm)[:IDENTIFYING_BYTES].hex()

    def _config(self, algorithm: Any, attribute: int) -> int | None:
        value, written = (ctypes.c_uint16 if attribute in SHORT else ctypes.c_int)(), ctypes.c_size_t()
        status = self.gpu.function("cublasLtMatmulAlgoConfigGetAttribute")(
            ctypes.byref(algorithm), attribute, ctypes.byref(value), ctypes.sizeof(value), ctypes.byref(written)
        )
        return None if status else value.value


BACKEND = CuBLASLt()
