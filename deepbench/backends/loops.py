"""DeepBench's own C loops, on as many threads as the case says: the yardstick of operations that the memory limits."""

from __future__ import annotations

import ctypes
from typing import Any

from deepbench.core.backend import Backend, kernel
from deepbench.core.case import Case
from deepbench.core.errors import Unavailable, Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Arrays
from deepbench.core.rows import EPSILON
from deepbench.native import library
from deepbench.ops.memory import REPEATABLE

# The loop is made for few queries. More are limited by arithmetic, for which libraries have better kernels; up to here it
# is a second opinion in bf16.
MOST_QUERIES = 1024


class Loops(Backend):
    name = "loops"
    title = "C loops"

    def open(self) -> dict[str, Any]:
        loops = self._library("memory")
        loops.deepbench_threads.restype = ctypes.c_int64
        self.threads = int(loops.deepbench_threads())
        return {"name": "deepbench's own loops", "version": None, "path": loops._name, "threading": "OpenMP"}

    @kernel("memory", precisions=("f32",))
    def memory(self, case: Case, arrays: Arrays) -> Kernel:
        kind, n = case.problem.kind, case.problem.n
        streams = {"read": ("a", "c"), "gather": ("a", "at", "c"), "copy": ("a", "c"), "triad": ("a", "b", "c")}[kind]
        counts = [n // 2 if kind == "read" else n, *([case.problem.passes] if kind in REPEATABLE else [])]
        return self._kernel(case, "memory", f"deepbench_{kind}", *(arrays[s] for s in streams), *counts)

    @kernel("layer_norm", precisions=("f32", "bf16"))
    def layer_norm(self, case: Case, arrays: Arrays) -> Kernel:
        return self._rows(case, *(arrays[name] for name in ("x", "scale", "shift", "y")), after=(EPSILON,))

    @kernel("rms_norm", precisions=("f32", "bf16"))
    def rms_norm(self, case: Case, arrays: Arrays) -> Kernel:
        return self._rows(case, *(arrays[name] for name in ("x", "scale", "y")), after=(EPSILON,))

    @kernel("softmax", precisions=("f32", "bf16"))
    def softmax(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.core.operands import empty

        return self._rows(case, arrays["x"], arrays["y"], empty((case.threads, case.problem.columns), "f32"))

    def _rows(self, case: Case, *arrays: Any, after: tuple[float, ...] = ()) -> Kernel:
        """A loop of `layers.c` over the rows of a matrix."""
        p = case.problem
        name = f"deepbench_{case.op}_{case.precision.data}"
        return self._kernel(case, "layers", name, *arrays, p.rows, p.columns, *after)

    def _kernel(self, case: Case, file: str, function: str, *arguments: Any) -> Kernel:
        """A call of one function of one file in `native/`."""
        self._check_threads(case)
        return Kernel(calls=(Call(self._library(file)[function], *arguments),))

    def _check_threads(self, case: Case) -> None:
        if self.threads != case.threads:
            raise Unsupported("the C loops were built without OpenMP, so they have one thread; choose threads=1")

    def _library(self, name: str) -> ctypes.CDLL:
        loops = library.compiled(name)
        if loops is None:
            raise Unavailable(
                "the C loops are not built: there was no C compiler when DeepBench was installed",
                "install gcc, then install DeepBench again",
            )
        return loops

    @kernel("elementwise", precisions=("f32",))
    @kernel("reduction", precisions=("f32",))
    @kernel("embedding_bag", precisions=("f32",))
    @kernel("optimizer", precisions=("f32",))
    @kernel("ctc", precisions=("f32",), directions=("forward", "backward"))
    def memory_bound(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.native import elementwise

        return elementwise.prepare(case, arrays)

    @kernel("weight_only_gemm", precisions=("f32", "bf16"))
    def weight_only_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """Made for few columns, where reading the weights takes longest: each weight is read once."""
        from deepbench.native import weight_only

        self._check_threads(case)
        return weight_only.prepare(case, arrays)

    @kernel("attention", precisions=("f32", "bf16"))
    def attention(self, case: Case, arrays: Arrays) -> Kernel:
        """Reads each key and value once, so it is limited by the memory's bandwidth if there are few queries."""
        from deepbench.native import attention

        if case.settings["algorithm"] != "default":
            raise Unsupported("the C loop has one algorithm; choose algorithm=default")
        if case.problem.queries > MOST_QUERIES:
            raise Unsupported(f"the C loop is made for few queries; choose at most {MOST_QUERIES}")
        call, scratch = attention.decode(case, arrays)
        notes = {"implementation": "own loop", "workspace_bytes": scratch.nbytes}
        return Kernel(calls=(call,), keep=(arrays, scratch), notes=notes)


BACKEND = Loops()
