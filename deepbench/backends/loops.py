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

# The loop is made for few queries. More are limited by arithmetic, for which libraries have better kernels; up to here
# it is a second opinion in bf16.
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

    @kernel("group_norm", precisions=("f32", "bf16"), directions=("forward", "backward"))
    def group_norm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.core.operands import empty

        p = case.problem
        sizes = (ctypes.c_int64 * 4)(p.n, p.groups, p.c // p.groups, p.h * p.w)
        sums = [] if case.direction == "forward" else [empty((p.n, p.c), "f32") for _ in range(2)]
        return self._layer(case, *arrays.values(), *sums, sizes, EPSILON)

    @kernel("rope", precisions=("f32", "bf16"), directions=("forward", "backward"))
    def rope(self, case: Case, arrays: Arrays) -> Kernel:
        p = case.problem
        sizes = (p.tokens, p.heads, p.dim // 2, int(case.settings["pairs"] == "interleaved"))
        sign = 1.0 if case.direction == "forward" else -1.0
        function = f"deepbench_rope_{case.precision.data}"
        return self._kernel(case, "layers", function, *arrays.values(), *sizes, sign)

    @kernel("top_k", precisions=("f32", "bf16"), directions=("forward", "backward"))
    def top_k(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.core.operands import empty

        p = case.problem
        if case.direction == "backward":
            p_or_null = arrays.get("p", ctypes.c_void_p(None))
            named = (arrays["chosen"], p_or_null, arrays["dy"], arrays["dx"])
            return self._layer(case, *named, p.rows, p.columns, p.k)
        space, weighted = empty((case.threads, p.k + p.columns), "f32"), int(case.settings["softmax"] == "yes")
        return self._layer(case, *arrays.values(), space, p.rows, p.columns, p.k, weighted)

    @kernel("loss", precisions=("f32", "bf16"), directions=("forward", "backward"))
    def loss(self, case: Case, arrays: Arrays) -> Kernel:
        """The backward pass of a cross entropy has the logarithms of sums that a forward pass leaves."""
        from deepbench.core.operands import empty

        p = case.problem
        if p.kind != "cross_entropy":
            return self._layer(case, *arrays.values(), p.rows * p.columns, name=p.kind)
        log_sums, named = empty((p.rows,), "f32"), list(arrays.values())
        if case.direction == "backward":
            forward = self._library("layers")[f"deepbench_cross_entropy_{case.precision.data}"]
            ignored = empty((1,), "f32")
            call = Call(forward, arrays["x"], arrays["target"], ignored, log_sums, p.rows, p.columns)
            forward(*map(ctypes.c_void_p, call.words))
        return self._layer(case, *named, log_sums, p.rows, p.columns, name=p.kind)

    def _layer(self, case: Case, *arguments: Any, name: str | None = None) -> Kernel:
        """A function of `layers.c` for this direction; by default it has the name of the operation."""
        back = "_backward" * (case.direction == "backward")
        return self._kernel(case, "layers", f"deepbench_{name or case.op}{back}_{case.precision.data}", *arguments)

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

    @kernel("elementwise", precisions=("f32",), directions=("forward", "backward"))
    @kernel("dropout", precisions=("f32",))
    @kernel("reduction", precisions=("f32",))
    @kernel("embedding_bag", precisions=("f32", "bf16", "f16"))
    @kernel("embedding_bag", precisions=("f32",), directions=("backward",))
    @kernel("optimizer", precisions=("f32",))
    @kernel("ctc", precisions=("f32",), directions=("forward", "backward"))
    def memory_bound(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.native import elementwise

        return elementwise.prepare(case, arrays)

    @kernel("permute_tokens", precisions=("f32", "bf16", "f16"))
    @kernel("permute_tokens", precisions=("f32",), directions=("backward",))
    def permute_tokens(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.native.elementwise import floats_of_copied_row

        p = case.problem
        name = f"deepbench_{p.kind}" + "_backward" * (case.direction == "backward")
        floats = p.hidden if case.precision.data == "f32" else floats_of_copied_row(p.hidden, p.kind == "dispatch")
        return self._kernel(case, "moves", name, *arrays.values(), (ctypes.c_int64 * 3)(p.tokens, p.active, floats))

    @kernel("upsample", precisions=("f32",), directions=("forward", "backward"))
    def upsample(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.core.operands import empty

        p, layout = case.problem, case.settings["layout"]
        if layout == "any":
            raise Unsupported("the C loops have no layout of their own; choose layout=nchw or nhwc")
        rows, inner = (p.n * p.h, p.c) if layout == "nhwc" else (p.n * p.c * p.h, 1)
        space = empty((2 * case.threads, p.w * p.scale * inner), "f32")
        sizes = (ctypes.c_int64 * 4)(rows, p.w, inner, p.scale)
        if case.direction == "backward":
            return self._kernel(case, "moves", "deepbench_upsample_backward", *arrays.values(), space, sizes)
        added = arrays.get("z", 0)
        return self._kernel(case, "moves", "deepbench_upsample", arrays["x"], added, arrays["y"], space, sizes)

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
