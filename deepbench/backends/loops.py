"""DeepBench's own C loops: measures of memory, and products with quantized weights, on the threads of the case."""

from __future__ import annotations

import ctypes
from typing import Any

from deepbench.core.backend import Backend, kernel
from deepbench.core.case import Case
from deepbench.core.errors import Unavailable, Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Arrays
from deepbench.native import library
from deepbench.ops.memory import REPEATABLE


class Loops(Backend):
    name = "loops"
    title = "C loops"

    def open(self) -> dict[str, Any]:
        loops = library.compiled("memory")
        if loops is None:
            raise Unavailable(
                "the C loops are not built: there was no C compiler when DeepBench was installed",
                "install gcc, then install DeepBench again",
            )
        self.library = loops
        loops.deepbench_threads.restype = ctypes.c_int64
        return {"name": "deepbench's own loops", "version": None, "path": loops._name, "threading": "OpenMP"}

    @kernel("memory", precisions=("f32",))
    def memory(self, case: Case, arrays: Arrays) -> Kernel:
        self._refuse_other_threads(case)
        kind, n = case.problem.kind, case.problem.n
        streams = {"read": ("a", "c"), "gather": ("a", "at", "c"), "copy": ("a", "c"), "triad": ("a", "b", "c")}[kind]
        counts = [n // 2 if kind == "read" else n, *([case.problem.passes] if kind in REPEATABLE else [])]
        return Kernel(calls=(Call(self.library[f"deepbench_{kind}"], *(arrays[s] for s in streams), *counts),))

    @kernel("weight_only_gemm", precisions=("f32", "bf16"))
    def weight_only_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """Made for few columns, where reading the weights takes longest: each weight is read once."""
        from deepbench.core.operands import full

        self._refuse_other_threads(case)
        weight_only = library.compiled("weight_only")
        if weight_only is None:
            raise Unsupported("the C loop is not built: install gcc, then install DeepBench again")
        p, is_bf16 = case.problem, int(case.precision.name == "bf16")
        wide = full((p.n, p.k), "f32", 0.0), full((p.m, p.k // p.group), "f32", 0.0)
        operands = (arrays[name] for name in ("a", "scales", "b", "c"))
        function = weight_only.deepbench_weight_only_gemm
        return Kernel(calls=(Call(function, *operands, *wide, p.m, p.n, p.k, p.group, p.bits, is_bf16),))

    def _refuse_other_threads(self, case: Case) -> None:
        if self.library.deepbench_threads() != case.threads:
            raise Unsupported("the C loops were built without OpenMP, so they have one thread; choose threads=1")


BACKEND = Loops()
