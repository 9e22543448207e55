"""DeepBench's own C loops, on as many threads as the case says: read, gather, copy, triad; attention with a cache."""

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

# With more queries, attention is limited by arithmetic, for which libraries have better kernels.
MOST_QUERIES = 64


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

    @kernel("attention", precisions=("f32", "bf16"))
    def attention(self, case: Case, arrays: Arrays) -> Kernel:
        """Reads each key and value once, so it is limited by the memory's bandwidth if there are few queries."""
        from deepbench.native import attention

        if case.settings["algorithm"] != "default":
            raise Unsupported("the C loop has one algorithm; choose algorithm=default")
        if case.problem.queries > MOST_QUERIES:
            raise Unsupported(f"the C loop is for a cache and few queries; choose at most {MOST_QUERIES}")
        call, scratch = attention.decode(case, arrays)
        notes = {"implementation": "own loop", "workspace_bytes": scratch.nbytes}
        return Kernel(calls=(call,), keep=(arrays, scratch), notes=notes)


BACKEND = Loops()
