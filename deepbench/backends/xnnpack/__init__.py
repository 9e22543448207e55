"""XNNPACK, Google's operators for inference on phones and CPUs: the successor of what the original ran on Arm.

PyPI has it inside `executorch`, whose other packages are not needed: `pip install --no-deps executorch`. An operator is
created, which packs constant weights, then shaped and set up; only `xnn_run_operator` is timed. Images have channels
last. With `layout=nchw`, and for a B that is stored transposed, its own transposition is part of a call.

Its functions change between releases without a number of a version in the library, so only releases that were tried are
loaded, and small products are checked first. It may read 16 bytes behind an array; ours have so many.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from deepbench.backends.xnnpack.operators import (
    EXACT,
    SIZE,
    STEPS,
    WORKSPACE,
    OperatorRun,
    XNNLibrary,
    channels_last,
    run,
)
from deepbench.core.backend import Backend, kernel
from deepbench.core.case import Case
from deepbench.core.errors import LibraryError, Unavailable, Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native import library

TRIED = ("1.5",)
REMEDY = "pip install --no-deps executorch==1.5.1, or name a libexecutorch_backend_xnnpack.so in DEEPBENCH_XNNPACK_PATH"


class XNNPACK(Backend):
    name = "xnnpack"
    title = "XNNPACK"
    default = False  # a library of phones: elsewhere it runs when it is asked for
    loads_at_once = True
    path_variable = "DEEPBENCH_XNNPACK_PATH"
    xnn: XNNLibrary | None = None

    def open(self) -> dict[str, Any]:
        loaded = library.load(
            self.title,
            self.path_variable,
            ("executorch/lib/libexecutorch_backend_xnnpack.so",),
            needs=("xnn_create_batch_matrix_multiply_nc_f32",),
            remedy=REMEDY,
        )
        for name in ("xnn_run_operator", "pthreadpool_create", "pthreadpool_get_threads_count"):
            if not hasattr(loaded, name):
                raise Unavailable(f"this XNNPACK has no function {name}", REMEDY)
        path = library.path_of(loaded, "xnn_run_operator")
        version = package_version(path)
        check_version(version)
        self.xnn = self.xnn or XNNLibrary(loaded, library.threads_of_case())
        self.try_products()
        return {
            "name": self.title,
            "version": None if version is None else f"executorch {version}",
            "path": path,
            "build": self.xnn.build(),
            "threading": "pthreadpool",
        }

    def threads_in_use(self) -> int | None:
        return None if self.xnn is None else self.xnn.threads()

    @kernel("gemm", precisions=("f32", "bf16", "f16", "f16f16"))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """A product of two activations, or a layer with packed weights. With beta = 1 a second operator adds to C."""
        p, kind, c, steps = case.problem, self._kind(case), arrays["c"], self.operators()
        result = c if case.settings["beta"] == "0" else steps.buffer(c.shape, case.operation.result_type(case))
        b = steps.transpose(arrays["b"], (1, 0)) if p.b_t else arrays["b"]
        if case.settings["weights"] == "packed":
            steps.layer(kind, (p.n, p.k, p.m), arrays["a"], b, result, p.a_t)
        else:
            steps.product(kind, (1, p.n, p.k, p.m), arrays["a"], b, result, p.a_t)
        if result is not c:
            steps.binary("add", c, result, c)
        return steps.kernel(arrays)

    @kernel("batched_gemm", precisions=("f32", "bf16", "f16", "f16f16"))
    def batched_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """One operator for all products."""
        p, kind, steps = case.problem, self._kind(case), self.operators()
        b = steps.transpose(arrays["b"], (0, 2, 1)) if p.b_t else arrays["b"]
        steps.product(kind, (p.batch, p.n, p.k, p.m), arrays["a"], b, arrays["c"], p.a_t)
        return steps.kernel(arrays)

    @kernel("linear", precisions=("f32", "f16"))
    def linear(self, case: Case, arrays: Arrays) -> Kernel:
        """Bias and ReLU are part of the operator; other activations follow."""
        p, kind, c, activation = case.problem, self._kind(case), arrays["c"], case.settings["activation"]
        if kind == "f16" and activation in ("gelu", "silu"):
            raise Unsupported(f"XNNPACK computes {activation} of f16 in f16, not in f32; choose activation=relu")
        steps, sizes = self.operators(), (p.n, p.k, p.m)
        sums = steps.buffer(c.shape, case.precision.data) if activation == "silu" else c
        rest = arrays["a"], arrays["b"], sums, 1, arrays.get("bias"), 0.0 if activation == "relu" else -math.inf
        (steps.layer if case.settings["weights"] == "packed" else steps.dynamic_layer)(kind, sizes, *rest)
        if activation in ("gelu", "silu"):
            steps.elementwise(activation, {"a": sums, "y": c})
        return steps.kernel(arrays)

    @kernel("conv", precisions=("f32", "f16", "f16f16", "i8", "i8u8"))
    def conv(self, case: Case, arrays: Arrays) -> Kernel:
        """Filters are packed ahead. With `i8u8` they are stored as u8 with the zero point 128, as all of XNNPACK's."""
        import numpy as np

        p, types = case.problem, case.precision
        if p.dimensions == 3:
            raise Unsupported("XNNPACK has convolutions in two dimensions only")
        if types.data != case.operation.result_type(case):
            raise Unsupported(f"XNNPACK stores results in the type of the data, {types.data}; choose result=narrow")
        kind = {"s8": "qs8", "u8": "qu8"}.get(types.data) or self._kind(case)
        if kind == "f16":
            if "b" in arrays:
                raise Unsupported("XNNPACK rounds a bias to f16; choose bias=no")
            if types.name == "f16" and p.groups == p.c == p.k:
                raise Unsupported("XNNPACK's depthwise convolutions of f16 are summed in f16; choose f32")
        steps = self.operators()
        x, y = steps.images(case, arrays)
        w = arrays["w"] if case.settings["layout"] == "nhwc" else np.ascontiguousarray(channels_last(arrays["w"]))
        first: tuple[Any, ...] = ()
        last: tuple[Any, ...] = (-math.inf, math.inf)
        if types.data in ("s8", "u8"):
            # The scale of the results is that of the data over the scale of the filters; the zero points are 0.
            scale, limits = case.operation.facts(case)["scale"], (-128, 127) if kind == "qs8" else (0, 255)
            first, last = (0, scale, 1.0), (0, 1.0, *limits)
            if kind == "qu8":
                first, w = (0, scale, 128, 1.0), (w.astype(np.int16) + 128).astype(np.uint8)
                steps.notes["filters"] = "u8 with the zero point 128"
        steps.operator(
            "convolution2d_nhwc", kind,
            (*frame(p), p.dilation_h, p.dilation_w, p.groups, p.c // p.groups, p.k // p.groups, p.c, p.k,
             *first, w, arrays.get("b"), *last, 0, None),
            (p.n, p.h, p.w, WORKSPACE, SIZE, SIZE),
            (WORKSPACE, x, y),
        )  # fmt: skip
        return steps.kernel(arrays)

    @kernel("pooling", precisions=("f32", "f16"))
    def pooling(self, case: Case, arrays: Arrays) -> Kernel:
        """Its average leaves padding out, unlike ours, and is summed in f16."""
        p = case.problem
        if p.dimensions == 3:
            raise Unsupported("XNNPACK has pooling in two dimensions only")
        if p.r * p.s == 1:
            raise Unsupported("XNNPACK has no pooling with windows of one element")
        if p.kind == "average" and (p.pad_h or p.pad_w):
            raise Unsupported("XNNPACK leaves padding out of averages; choose pad_h=0 pad_w=0")
        if p.kind == "average" and case.precision.name == "f16":
            raise Unsupported("XNNPACK adds the numbers of f16 in f16, not in f32; choose f32")
        steps = self.operators()
        x, y = steps.images(case, arrays)
        dilation = (1, 1) if p.kind == "max" else ()
        steps.operator(
            f"{p.kind}_pooling2d_nhwc", case.precision.name,
            (*frame(p), *dilation, -math.inf, math.inf, 0),
            (p.n, p.h, p.w, p.c, p.c, p.c, SIZE, SIZE),
            (x, y),
        )  # fmt: skip
        return steps.kernel(arrays)

    @kernel("softmax", precisions=("f32",))
    def softmax(self, case: Case, arrays: Arrays) -> Kernel:
        """One operator. That for f16 computes in f16."""
        p, steps = case.problem, self.operators()
        shape = (p.columns, p.columns, p.columns, p.rows)
        steps.operator("softmax_nc", case.precision.name, (0,), shape, (arrays["x"], arrays["y"]))
        return steps.kernel(arrays)

    @kernel("elementwise", precisions=("f32", "f16"))
    def elementwise(self, case: Case, arrays: Arrays) -> Kernel:
        """One operator after the other, where one is not enough."""
        steps, kind = self.operators(), case.problem.kind
        if case.precision.name == "f16" and not {name for name, *_ in STEPS[kind]} <= EXACT:
            raise Unsupported(f"XNNPACK computes {kind} of f16 in f16, not in f32; choose f32")
        steps.elementwise(kind, arrays)
        return steps.kernel(arrays)

    def operators(self) -> OperatorRun:
        """To which operators are added."""
        assert self.xnn is not None, "open() was called"
        return OperatorRun(self.xnn)

    def _kind(self, case: Case) -> str:
        """What its functions call the precision; `Unsupported` if the sums or the result have another type."""
        name = case.precision.name
        if name == "f32":
            return name
        if name == "bf16":
            if case.operation.result_type(case) != "f32":
                raise Unsupported("XNNPACK's products of bf16 store f32; choose result=wide")
            return "bf16_f32"
        if self.f16_sums != case.precision.accumulate:
            reason = "XNNPACK has no kernels of f16 for the instructions of this CPU"
            if self.f16_sums is not None:
                other = "f16" if self.f16_sums == "f32" else "f16f16"
                reason = f"XNNPACK's products of f16 are summed in {self.f16_sums} on this CPU; choose {other}"
            raise Unsupported(reason)
        if case.operation.result_type(case) != "f16":
            raise Unsupported("XNNPACK's products of f16 store f16; choose result=narrow")
        return "f16"

    def try_products(self) -> None:
        """`Unavailable` if a product is wrong, so that functions have changed. Finds out how f16 is summed."""
        import numpy as np

        from deepbench.core.operands import full

        n, k, m = 3, 128, 5
        b, a = full((n, k), "f32", 1.0), full((k, m), "f32", 0.5)
        a[0], b[1] = 2048.0, 2.0
        want = b @ a
        for packed in (False, True):
            got, steps = full((n, m), "f32", np.nan), self.operators()
            try:
                if packed:
                    steps.layer("f32", (n, k, m), a, b, got, 0)
                else:
                    steps.product("f32", (1, n, k, m), a, b, got, 0)
                run(steps.calls)
            except (LibraryError, Unsupported) as error:
                raise Unavailable(f"a small product of this XNNPACK fails: {error}", REMEDY) from None
            if not np.array_equal(got, want):
                raise Unavailable("a small product of this XNNPACK is wrong, so its functions have changed", REMEDY)
        # In f16, 2048 + 0.5 is 2048.
        steps, got = self.operators(), full((n, m), "f16", np.nan)
        self.f16_sums: str | None = None
        try:
            steps.product("f16", (1, n, k, m), a.astype(got.dtype), b.astype(got.dtype), got, 0)
        except Unsupported:
            return
        run(steps.calls)
        self.f16_sums = "f32" if np.array_equal(got, want.astype(got.dtype)) else "f16"


def package_version(path: str | None) -> str | None:
    """The version of the package with this library, from its file `version.py`; None outside of a package."""
    file = Path(path or "").parent.parent / "version.py"
    found = re.search(r"__version__ = \"([0-9][0-9.]*)", file.read_text(encoding="utf-8")) if file.is_file() else None
    return found[1] if found else None


def check_version(version: str | None) -> None:
    """`Unavailable` for a release that was not tried. A library without one is tried out by products alone."""
    if version is not None and not f"{version}.".startswith(tuple(f"{tried}." for tried in TRIED)):
        tried = " and ".join(TRIED)
        reason = f"the functions of XNNPACK change between releases: executorch {tried} was tried, found {version}"
        raise Unavailable(reason, REMEDY)


def frame(p: Any) -> tuple[int, ...]:
    """Padding at the top, right, bottom and left, window, and stride."""
    return p.pad_h, p.pad_w, p.pad_h, p.pad_w, p.r, p.s, p.stride_h, p.stride_w


BACKEND = XNNPACK()
