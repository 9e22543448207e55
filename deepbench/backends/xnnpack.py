"""XNNPACK, Google's operators for inference on phones and CPUs: the successor of what the original ran on Arm.

PyPI has it inside `executorch`, whose other packages are not needed: `pip install --no-deps executorch`. An operator is
created, which packs constant weights, then shaped and set up; only `xnn_run_operator` is timed. Images have channels
last. With `layout=nchw`, and for a B that is stored transposed, its own transposition is part of a call.

Its functions change between releases without a number of a version in the library, so only releases that were tried are
loaded, and small products are checked first. It may read 16 bytes behind an array; ours have so many.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from deepbench.core.backend import Backend, kernel
from deepbench.core.case import Case
from deepbench.core.errors import LibraryError, Unavailable, Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Array, Arrays
from deepbench.core.precision import type_name
from deepbench.native import library

TRIED = ("1.5",)
REMEDY = "pip install --no-deps executorch==1.5.1, or name a libexecutorch_backend_xnnpack.so in DEEPBENCH_XNNPACK_PATH"

# xnnpack.h: the flag of all operators that says that weights are stored as (inputs, outputs) instead of the other way
# round; of batched products that B is (outputs, inputs).
TRANSPOSED = 1
DATATYPE = {"f32": 1, "f16": 2}
STATUS = {
    1: "uninitialized",
    2: "invalid parameter",
    3: "invalid state",
    4: "unsupported parameter",
    5: "unsupported hardware",
    6: "out of memory",
    7: "reallocation required",
    8: "deprecated",
}
UNSUPPORTED_PARAMETER, UNSUPPORTED_HARDWARE = 4, 5

# xnn_unary_operator and xnn_binary_operator
UNARY = {"approxgelu": 1, "clamp": 4, "elu": 7, "gelu": 10, "sigmoid": 16, "tanh": 20}
BINARY = {"add": 0, "multiply": 2}
# Those that are rounded once, also in f16; the others compute in f16.
EXACT = {"clamp", "add", "multiply"}

# For each kind of the operation `elementwise` the steps: an operator and its arrays, the result last.
STEPS: dict[str, tuple[tuple[str, ...], ...]] = {
    "relu": (("clamp", "a", "y"),),
    "relu6": (("clamp", "a", "y"),),
    "hardtanh": (("clamp", "a", "y"),),
    "gelu": (("gelu", "a", "y"),),
    "gelu_tanh": (("approxgelu", "a", "y"),),
    "elu": (("elu", "a", "y"),),
    "sigmoid": (("sigmoid", "a", "y"),),
    "tanh": (("tanh", "a", "y"),),
    "silu": (("sigmoid", "a", "y"), ("multiply", "a", "y", "y")),
    "add": (("add", "a", "b", "y"),),
    "multiply": (("multiply", "a", "b", "y"),),
    "multiply_add": (("multiply", "a", "b", "y"), ("add", "y", "c", "y")),
    "add_relu": (("add", "a", "b", "y"), ("clamp", "y", "y")),
    "swiglu": (("sigmoid", "a", "y"), ("multiply", "a", "y", "y"), ("multiply", "y", "b", "y")),
    "geglu": (("gelu", "a", "y"), ("multiply", "y", "b", "y")),
    "geglu_tanh": (("approxgelu", "a", "y"), ("multiply", "y", "b", "y")),
}
# Parameters of the operators: the limits of `clamp`, and the factor of `elu` for negative numbers.
PARAMETERS = {"relu6": (0.0, 6.0), "hardtanh": (-1.0, 1.0), "elu": (1.0,)}
RELU = (0.0, math.inf)

# What functions take, by the name without `xnn_`: z size_t, u uint32_t, i a signed and b an unsigned 8-bit integer, f
# float, p a pointer. Functions of the types of an operator differ in few letters, so `*` stands for the type.
WINDOW = "uuuu" + "uuuu" + "uu"
SIGNATURES = {
    "create_batch_matrix_multiply_nc_*": "up",
    "reshape_batch_matrix_multiply_nc_*": "pzppzzzpp",
    "setup_batch_matrix_multiply_nc_*": "ppppp",
    "create_fully_connected_nc_*": "zzzzppffupp",
    "reshape_fully_connected_nc_*": "pzp",
    "setup_fully_connected_nc_*": "ppp",
    "create_dynamic_fully_connected_nc_*": "ffup",
    "reshape_dynamic_fully_connected_nc_*": "pzzzzzpp",
    "setup_dynamic_fully_connected_nc_*": "pppppp",
    "create_convolution2d_nhwc_*": WINDOW + "uzzzzppffupp",
    "create_convolution2d_nhwc_qs8": WINDOW + "uzzzziffppifiiupp",
    "create_convolution2d_nhwc_qu8": WINDOW + "uzzzzbfbfppbfbbupp",
    "reshape_convolution2d_nhwc_*": "pzzzpppp",
    "setup_convolution2d_nhwc_*": "pppp",
    "create_max_pooling2d_nhwc_*": WINDOW + "ffup",
    "create_average_pooling2d_nhwc_*": "uuuuuuuu" + "ffup",
    "reshape_max_pooling2d_nhwc_*": "pzzzzzzppp",
    "reshape_average_pooling2d_nhwc_*": "pzzzzzzppp",
    "setup_max_pooling2d_nhwc_*": "ppp",
    "setup_average_pooling2d_nhwc_*": "ppp",
    "create_softmax_nc_*": "up",
    "reshape_softmax_nc_*": "pzzzzp",
    "setup_softmax_nc_*": "ppp",
    "create_unary_elementwise_nc": "uuuppppup",
    "reshape_unary_elementwise_nc": "pzzzzp",
    "setup_unary_elementwise_nc": "ppp",
    "create_binary_elementwise_nd": "uupppup",
    "reshape_binary_elementwise_nd": "pzpzpp",
    "setup_binary_elementwise_nd": "pppp",
    "create_transpose_nd_*": "up",
    "reshape_transpose_nd_*": "pzppp",
    "setup_transpose_nd_*": "ppp",
    "initialize": "p",
    "run_operator": "pp",
}
C_TYPES: dict[str, Any] = {
    **{"z": ctypes.c_size_t, "u": ctypes.c_uint32, "i": ctypes.c_int8, "b": ctypes.c_uint8, "f": ctypes.c_float},
    "p": ctypes.c_void_p,
}

# Stand for arguments of `Steps.operator`.
WORKSPACE, SIZE = object(), object()

# How often the transpositions in a call are timed alone, for the note `conversion_s`, after a first time.
CONVERSION_RUNS = 5


class XNNPACK(Backend):
    name = "xnnpack"
    title = "XNNPACK"
    default = False  # made for phones, so on most machines other libraries matter more
    loads_at_once = True
    path_variable = "DEEPBENCH_XNNPACK_PATH"
    pool: ctypes.c_void_p | None = None

    def open(self) -> dict[str, Any]:
        self.library = library.load(
            self.title,
            self.path_variable,
            ("executorch/lib/libexecutorch_backend_xnnpack.so",),
            needs=("xnn_create_batch_matrix_multiply_nc_f32",),
            remedy=REMEDY,
        )
        path = library.path_of(self.library, "xnn_run_operator")
        version = package_version(path)
        check_version(version)
        if self.pool is None:
            create = self.library.pthreadpool_create
            create.argtypes, create.restype = (ctypes.c_size_t,), ctypes.c_void_p
            self.pool = ctypes.c_void_p(create(library.threads_of_case()))  # the thread that calls is one of them
        self.call("initialize", "", None)
        self._try_products()
        return {
            "name": self.title,
            "version": None if version is None else f"executorch {version}",
            "path": path,
            "build": self._build(),
            "threading": "pthreadpool",
        }

    def threads_in_use(self) -> int | None:
        self.library.pthreadpool_get_threads_count.restype = ctypes.c_size_t
        return int(self.library.pthreadpool_get_threads_count(self.pool))

    @kernel("gemm", precisions=("f32", "bf16", "f16", "f16f16"))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """A product of two activations, or a layer with packed weights. With beta = 1 a second operator adds to C."""
        from deepbench.core.operands import empty

        p, kind, c, steps = case.problem, self._kind(case), arrays["c"], Steps(self)
        result = c if case.settings["beta"] == "0" else empty(c.shape, case.operation.result_type(case))
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
        p, kind, steps = case.problem, self._kind(case), Steps(self)
        b = steps.transpose(arrays["b"], (0, 2, 1)) if p.b_t else arrays["b"]
        steps.product(kind, (p.batch, p.n, p.k, p.m), arrays["a"], b, arrays["c"], p.a_t)
        return steps.kernel(arrays)

    @kernel("linear", precisions=("f32", "f16"))
    def linear(self, case: Case, arrays: Arrays) -> Kernel:
        """Bias and ReLU are part of the operator; other activations follow."""
        from deepbench.core.operands import empty

        p, kind, c, activation = case.problem, self._kind(case), arrays["c"], case.settings["activation"]
        if kind == "f16" and activation in ("gelu", "silu"):
            raise Unsupported(f"XNNPACK computes {activation} of f16 in f16, not in f32; choose activation=relu")
        steps, sizes = Steps(self), (p.n, p.k, p.m)
        sums = empty(c.shape, case.precision.data) if activation == "silu" else c
        rest = arrays["a"], arrays["b"], sums, 1, arrays.get("bias"), 0.0 if activation == "relu" else -math.inf
        (steps.layer if case.settings["weights"] == "packed" else steps.dynamic_layer)(kind, sizes, *rest)
        if activation in ("gelu", "silu"):
            steps.elementwise(activation, {"a": sums, "y": c})
        return steps.kernel(arrays)

    @kernel("conv", precisions=("f32", "f16", "f16f16", "i8", "i8u8"))
    def conv(self, case: Case, arrays: Arrays) -> Kernel:
        """Filters are packed ahead. With `i8u8` they are stored as u8 with the zero point 128, as all of XNNPACK's."""
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
        steps = Steps(self)
        x, y = steps.images(case, arrays)
        w = arrays["w"] if case.settings["layout"] == "nhwc" else channels_last(arrays["w"])
        first: tuple[Any, ...] = ()
        last: tuple[Any, ...] = (-math.inf, math.inf)
        if types.data in ("s8", "u8"):
            # The scale of the results is that of the data over the scale of the filters; the zero points are 0.
            scale, limits = case.operation.facts(case)["scale"], (-128, 127) if kind == "qs8" else (0, 255)
            first, last = (0, scale, 1.0), (0, 1.0, *limits)
            if kind == "qu8":
                first, w = (0, scale, 128, 1.0), (w.astype("int16") + 128).astype("uint8")
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
        steps = Steps(self)
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
        p, steps = case.problem, Steps(self)
        shape = (p.columns, p.columns, p.columns, p.rows)
        steps.operator("softmax_nc", case.precision.name, (0,), shape, (arrays["x"], arrays["y"]))
        return steps.kernel(arrays)

    @kernel("elementwise", precisions=("f32", "f16"))
    def elementwise(self, case: Case, arrays: Arrays) -> Kernel:
        """One operator after the other, where one is not enough."""
        steps, kind = Steps(self), case.problem.kind
        if case.precision.name == "f16" and not {name for name, *_ in STEPS[kind]} <= EXACT:
            raise Unsupported(f"XNNPACK computes {kind} of f16 in f16, not in f32; choose f32")
        steps.elementwise(kind, arrays)
        return steps.kernel(arrays)

    def call(self, family: str, kind: str, *arguments: Any) -> None:
        """Call `xnn_` and this name, with the type of an operator behind it; arrays are passed by address.

        `Unsupported` where the library lacks the function, or says that this is not supported.
        """
        name = f"{family}_{kind}" if kind else family
        letters = SIGNATURES.get(name) or SIGNATURES[f"{family}_*"]
        function = library.first_symbol(self.library, (f"xnn_{name}",))
        if function is None:
            raise Unsupported(f"this build of XNNPACK has no xnn_{name}")
        function.argtypes = [C_TYPES[letter] for letter in letters]
        status = function(*(a.ctypes.data if hasattr(a, "ctypes") else a for a in arguments))
        if status == UNSUPPORTED_HARDWARE:
            raise Unsupported(f"XNNPACK has no kernels of {kind} for the instructions of this CPU")
        if status == UNSUPPORTED_PARAMETER:
            raise Unsupported(f"XNNPACK: xnn_{name} does not support this")
        if status:
            raise LibraryError(self.title, f"xnn_{name}", status, STATUS.get(status, "unknown status"))

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

    def _try_products(self) -> None:
        """`Unavailable` if a product is wrong, so that functions have changed. Finds out how f16 is summed."""
        import numpy as np

        from deepbench.core.operands import full

        n, k, m = 3, 128, 5
        b, a = full((n, k), "f32", 1.0), full((k, m), "f32", 0.5)
        a[0], b[1] = 2048.0, 2.0
        want = b @ a
        for packed in (False, True):
            got, steps = full((n, m), "f32", np.nan), Steps(self)
            if packed:
                steps.layer("f32", (n, k, m), a, b, got, 0)
            else:
                steps.product("f32", (1, n, k, m), a, b, got, 0)
            run(steps.calls)
            if not np.array_equal(got, want):
                raise Unavailable("a small product of this XNNPACK is wrong, so its functions have changed", REMEDY)
        # In f16, 2048 + 0.5 is 2048.
        steps, got = Steps(self), full((n, m), "f16", np.nan)
        self.f16_sums: str | None = None
        try:
            steps.product("f16", (1, n, k, m), a.astype(got.dtype), b.astype(got.dtype), got, 0)
        except Unsupported:
            return
        run(steps.calls)
        self.f16_sums = "f32" if np.array_equal(got, want.astype(got.dtype)) else "f16"

    def _build(self) -> str | None:
        """The library's own hash of its sources."""
        names = ("size", "data")
        size, data = (
            library.first_symbol(self.library, (f"xnn_experimental_get_build_identifier_{n}",)) for n in names
        )
        if size is None or data is None:
            return None
        size.restype, data.restype = ctypes.c_size_t, ctypes.c_void_p
        return f"build identifier {ctypes.string_at(data(), size()).hex()}"


class Steps:
    """Operators that run one after the other."""

    def __init__(self, xnn: XNNPACK) -> None:
        self.xnn = xnn
        self.calls: list[Call] = []
        self.conversions: list[Call] = []
        """Those of the calls that bring images or matrices to another order."""
        self.after: list[tuple[Array, Array]] = []
        """Images that are brought to another order by the last calls: source and target."""
        self.names: list[str] = []
        self.notes: dict[str, Any] = {}
        self.keep: list[object] = []
        self.workspace_bytes = 0
        self.private: dict[str, tuple[Array, Array]] = {}
        """With `layout=any`: the array with channels second, as a view with channels last, and our own buffer."""

    def operator(
        self, family: str, kind: str, create: Sequence[Any], shape: Sequence[Any], setup: Sequence[Any], name: str = ""
    ) -> Call:
        """Create, shape and set up an operator. The names of its functions end in `family` and `kind`.

        WORKSPACE stands for the size or the address of its workspace, SIZE for a number that is not needed.
        """
        from deepbench.core.operands import empty

        handle, size, ignored = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        start = perf_counter()
        self.xnn.call(f"create_{family}", kind, *create, ctypes.byref(handle))
        packing = perf_counter() - start
        by_address = {id(WORKSPACE): ctypes.byref(size), id(SIZE): ctypes.byref(ignored)}
        shaped = [by_address.get(id(a), a) for a in shape]
        self.xnn.call(f"reshape_{family}", kind, handle, *shaped, self.xnn.pool)
        room = empty((max(1, size.value),), "u8")
        self.xnn.call(f"setup_{family}", kind, handle, *(room if a is WORKSPACE else a for a in setup))
        self.workspace_bytes += size.value
        self.keep += [room, *create, *setup]
        self.names.append(name or f"{family}_{kind}".rstrip("_"))
        if any(hasattr(a, "ctypes") for a in create):
            self.notes["pack_s"] = self.notes.get("pack_s", 0.0) + packing
        call = Call(self.xnn.library.xnn_run_operator, handle, self.xnn.pool, status=True)
        self.calls.append(call)
        return call

    def product(self, kind: str, sizes: tuple[int, int, int, int], a: Array, b: Array, c: Array, a_t: int) -> None:
        """C = B·A in row-major order for `batch` matrices B (n × k) and A (k × m, or m × k if `a_t`)."""
        batch, n, k, m = sizes
        count = (ctypes.c_size_t * 1)(batch)
        shape, setup = (1, count, count, n, k, m, WORKSPACE), (WORKSPACE, b, a, c)
        self.operator("batch_matrix_multiply_nc", kind, (TRANSPOSED * a_t,), shape, setup)

    def layer(
        self, kind: str, sizes: tuple[int, int, int], a: Array, b: Array, c: Array, a_t: int,
        bias: Array | None = None, least: float = -math.inf,
    ) -> None:  # fmt: skip
        """C = max(B·A + bias, least) with packed weights A, which are (m, k) if `a_t`, else (k, m)."""
        n, k, m = sizes
        create = (k, m, k, m, a, bias, least, math.inf, TRANSPOSED * (1 - a_t), None)
        self.operator("fully_connected_nc", kind, create, (n,), (b, c))

    def dynamic_layer(
        self, kind: str, sizes: tuple[int, int, int], a: Array, b: Array, c: Array, a_t: int,
        bias: Array | None = None, least: float = -math.inf,
    ) -> None:  # fmt: skip
        """The same with weights that may differ in every call, so that packing them is part of it."""
        n, k, m = sizes
        create = (least, math.inf, TRANSPOSED * (1 - a_t))
        self.operator(
            "dynamic_fully_connected_nc", kind, create, (n, k, m, k, m, WORKSPACE), (WORKSPACE, b, a, bias, c)
        )

    def elementwise(self, kind: str, arrays: Arrays) -> None:
        """One of the functions of the operation `elementwise`."""
        for operator, *names in STEPS[kind]:
            (*inputs, output) = (arrays[name] for name in names)
            if len(inputs) == 2:
                self.binary(operator, inputs[0], inputs[1], output)
            else:
                self._unary(operator, PARAMETERS.get(kind, RELU), inputs[0], output)

    def _unary(self, name: str, parameters: tuple[float, ...], x: Array, y: Array) -> None:
        kind, numbers = DATATYPE[type_name(x.dtype)], (ctypes.c_float * 2)(*parameters)
        create = (UNARY[name], kind, kind, numbers, None, None, None, 0)
        self.operator("unary_elementwise_nc", "", create, (x.size, 1, 1, 1), (x, y), name)

    def binary(self, name: str, x: Array, y: Array, z: Array) -> None:
        """z = x + y or x · y, element by element."""
        kind, length = DATATYPE[type_name(x.dtype)], (ctypes.c_size_t * 1)(x.size)
        create = (BINARY[name], kind, None, None, None, 0)
        self.operator("binary_elementwise_nd", "", create, (1, length, 1, length), (x, y, z), name)

    def transpose(self, source: Array, order: tuple[int, ...], target: Array | None = None) -> Array:
        """The array with its axes in another order, copied by each call."""
        from deepbench.core.operands import empty

        if target is None:
            target = empty(tuple(source.shape[axis] for axis in order), type_name(source.dtype))
        sizes = ctypes.c_size_t * source.ndim
        shape, bits = (source.ndim, sizes(*source.shape), sizes(*order)), 8 * source.itemsize
        self.conversions.append(self.operator("transpose_nd", f"x{bits}", (0,), shape, (source, target)))
        return target

    def images(self, case: Case, arrays: Arrays) -> tuple[Array, Array]:
        """`x` and `y` with channels last: the arrays themselves, or buffers that are filled in each call or ahead."""
        from deepbench.core.operands import empty

        x, y, layout = arrays["x"], arrays["y"], case.settings["layout"]
        if layout == "nhwc":
            return x, y
        own = {n: empty(channels_last(a, False).shape, type_name(a.dtype)) for n, a in (("x", x), ("y", y))}
        if layout == "any":
            self.private = {n: (channels_last(arrays[n], False), buffer) for n, buffer in own.items()}
        else:
            self.transpose(x, (0, 2, 3, 1), own["x"])
            self.after.append((own["y"], y))
        return own["x"], own["y"]

    def kernel(self, arrays: Arrays) -> Kernel:
        """All of them."""
        for source, target in self.after:
            self.transpose(source, (0, 3, 1, 2), target)
        notes = {"implementation": ", ".join(self.names), "workspace_bytes": self.workspace_bytes, **self.notes}
        if self.conversions:
            notes["conversion_s"] = min(seconds(self.conversions) for _ in range(CONVERSION_RUNS + 1))
        made = Kernel(tuple(self.calls), private_buffers=tuple(self.private), keep=(arrays, self.keep), notes=notes)
        if self.private:
            (x, own_x), (y, own_y) = self.private["x"], self.private["y"]

            def load() -> None:
                own_x[...] = x
                own_y[...] = y

            def store() -> None:
                y[...] = own_y

            start = perf_counter()
            load()
            notes["convert_s"] = perf_counter() - start
            made.load, made.store = load, store
        return made


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


def channels_last(array: Array, copied: bool = True) -> Array:
    """An array with channels second, with channels last: a copy or a view."""
    import numpy as np

    view = np.moveaxis(array, 1, -1)
    return np.ascontiguousarray(view) if copied else view


def run(calls: Sequence[Call]) -> None:
    """Make these calls once."""
    for call in calls:
        if status := call.function(*map(ctypes.c_void_p, call.words)):
            raise LibraryError("XNNPACK", "xnn_run_operator", status, STATUS.get(status, "unknown status"))


def seconds(calls: Sequence[Call]) -> float:
    """How long these calls take."""
    start = perf_counter()
    run(calls)
    return perf_counter() - start


BACKEND = XNNPACK()
