"""The operators of XNNPACK that run one after the other in a kernel, and the signatures of their functions."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from deepbench.core.case import Case
from deepbench.core.errors import LibraryError, Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Array, Arrays
from deepbench.core.precision import type_name
from deepbench.native import library

# xnnpack.h: the flag that says that weights are stored in the other order than a function expects. Layers expect
# (outputs, inputs), products of activations (inputs, outputs).
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

# Stand for arguments of `OperatorRun.operator`.
WORKSPACE, SIZE = object(), object()

# How often the transpositions in a call are timed alone, for the note `conversion_s`, after a first time.
CONVERSION_RUNS = 5


class XNNLibrary:
    """The loaded library with its threads."""

    def __init__(self, loaded: ctypes.CDLL, threads: int) -> None:
        self.library = loaded
        create, count = loaded.pthreadpool_create, loaded.pthreadpool_get_threads_count
        create.argtypes, create.restype = (ctypes.c_size_t,), ctypes.c_void_p
        count.argtypes, count.restype = (ctypes.c_void_p,), ctypes.c_size_t
        self.pool = ctypes.c_void_p(create(threads))  # the thread that calls is one of them
        self.call("initialize", "", None)

    def threads(self) -> int:
        """The threads that compute."""
        return int(self.library.pthreadpool_get_threads_count(self.pool))

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
            raise LibraryError("XNNPACK", f"xnn_{name}", status, STATUS.get(status, "unknown status"))

    def build(self) -> str | None:
        """The library's own hash of its sources."""
        names = [f"xnn_experimental_get_build_identifier_{name}" for name in ("size", "data")]
        size, data = (library.first_symbol(self.library, (name,)) for name in names)
        if size is None or data is None:
            return None
        size.restype, data.restype = ctypes.c_size_t, ctypes.c_void_p
        return f"build identifier {ctypes.string_at(data(), size()).hex()}"


class OperatorRun:
    """Operators that run one after the other."""

    def __init__(self, xnn: XNNLibrary) -> None:
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
        self.between: list[Array] = []
        """What one operator leaves for the next. Poisoned before a check, so that each must write it anew."""

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
        self.keep += [room, *setup]
        self.names.append(name or f"{family}_{kind}".rstrip("_"))
        if any(hasattr(a, "ctypes") for a in create):
            self.notes["pack_s"] = self.notes.get("pack_s", 0.0) + packing
        call = Call(self.xnn.library.xnn_run_operator, handle, self.xnn.pool, status=True)
        self.calls.append(call)
        return call

    def buffer(self, shape: tuple[int, ...], kind: str) -> Array:
        """Room for what one operator leaves for the next."""
        from deepbench.core.operands import empty

        self.between.append(empty(shape, kind))
        return self.between[-1]

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
        if target is None:
            target = self.buffer(tuple(source.shape[axis] for axis in order), type_name(source.dtype))
        sizes = ctypes.c_size_t * source.ndim
        shape, bits = (source.ndim, sizes(*source.shape), sizes(*order)), 8 * source.itemsize
        self.conversions.append(self.operator("transpose_nd", f"x{bits}", (0,), shape, (source, target)))
        return target

    def images(self, case: Case, arrays: Arrays) -> tuple[Array, Array]:
        """`x` and `y` with channels last: the arrays themselves, or buffers that are filled in each call or ahead."""
        x, y, layout = arrays["x"], arrays["y"], case.settings["layout"]
        if layout == "nhwc":
            return x, y
        if layout == "nchw":
            last = self.buffer(channels_last(y).shape, type_name(y.dtype))
            self.after.append((last, y))
            return self.transpose(x, (0, 2, 3, 1)), last
        from deepbench.core.operands import empty

        for name in "xy":
            view = channels_last(arrays[name])
            self.private[name] = view, empty(view.shape, type_name(view.dtype))
        return self.private["x"][1], self.private["y"][1]

    def kernel(self, arrays: Arrays) -> Kernel:
        """All of them."""
        for source, target in self.after:
            self.transpose(source, (0, 3, 1, 2), target)
        notes = {"implementation": ", ".join(self.names), "workspace_bytes": self.workspace_bytes, **self.notes}
        if self.conversions:
            notes["conversion_s"] = min(seconds(self.conversions) for _ in range(CONVERSION_RUNS + 1))

        def load() -> None:
            from deepbench.core.operands import poison

            for buffer in self.between:
                poison(buffer)
            for view, buffer in self.private.values():
                buffer[...] = view

        def store() -> None:
            if "y" in self.private:
                view, buffer = self.private["y"]
                view[...] = buffer

        if self.private:
            start = perf_counter()
            load()
            notes["convert_s"] = perf_counter() - start
        return Kernel(
            tuple(self.calls), load=load, store=store, private_buffers=tuple(self.private), keep=(arrays, self.keep),
            notes=notes,
        )  # fmt: skip


def channels_last(array: Array) -> Array:
    """A view of an array with channels second, with channels last."""
    import numpy as np

    return np.moveaxis(array, 1, -1)


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
