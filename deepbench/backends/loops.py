"""DeepBench's own C loops: read, gather, copy and triad, on as many threads as the case says."""

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
        if self.library.deepbench_threads() != case.threads:
            raise Unsupported("the C loops were built without OpenMP, so they have one thread; choose threads=1")
        kind, n = case.problem.kind, case.problem.n
        streams = {"read": ("a", "c"), "gather": ("a", "at", "c"), "copy": ("a", "c"), "triad": ("a", "b", "c")}[kind]
        counts = [n // 2 if kind == "read" else n, *([case.problem.passes] if kind in REPEATABLE else [])]
        return Kernel(calls=(Call(self.library[f"deepbench_{kind}"], *(arrays[s] for s in streams), *counts),))

    @kernel("elementwise", precisions=("f32",))
    @kernel("reduction", precisions=("f32",))
    @kernel("embedding_bag", precisions=("f32",))
    @kernel("optimizer", precisions=("f32",))
    @kernel("ctc", precisions=("f32",), directions=("forward", "backward"))
    def memory_bound(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.native import elementwise

        return elementwise.prepare(case, arrays)


BACKEND = Loops()
