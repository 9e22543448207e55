"""oneDNN's C API, version 3: the names, values and statuses that backends use.

Source: include/oneapi/dnnl/dnnl.h, dnnl_types.h and dnnl_common_types.h of oneDNN 3.2. Values of these enumerations
are part of the library's binary interface and stay the same within version 3.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from deepbench.core.errors import LibraryError, OutOfMemory, Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.core.precision import type_name

# dnnl_status_t
SUCCESS = 0
STATUS = {
    1: "out of memory",
    2: "invalid arguments",
    3: "unimplemented",
    4: "last implementation reached",
    5: "runtime error",
    6: "not required",
    7: "invalid graph",
    8: "invalid graph operation",
    9: "invalid shape",
    10: "invalid data type",
}
OUT_OF_MEMORY, UNIMPLEMENTED = 1, 3

DATA_TYPE = {"f16": 1, "bf16": 2, "f32": 3, "s32": 4, "s8": 5, "u8": 6}  # dnnl_data_type_t
FORMAT_ANY = 1  # dnnl_format_tag_any
FORWARD_TRAINING, FORWARD_INFERENCE, BACKWARD = 64, 96, 128  # dnnl_prop_kind_t
CONVOLUTION_AUTO = 3  # dnnl_convolution_auto: direct or Winograd, as the library likes
ALGORITHM = {1: "direct", 2: "Winograd"}  # dnnl_convolution_direct, dnnl_convolution_winograd
ELTWISE_RELU = 0x20  # dnnl_eltwise_relu
LEFT_TO_RIGHT = 1  # dnnl_unidirectional_left2right
DIFF_WEIGHTS_OVERWRITE = 1  # dnnl_rnn_flags_diff_weights_overwrite: do not add to what is there
MAX_DIMS = 12  # DNNL_MAX_NDIMS
ENGINE_CPU = 1  # dnnl_cpu
STREAM_DEFAULT = 1  # dnnl_stream_default_flags: in order
QUERY_MEMORY_CONSUMPTION = 6  # dnnl_query_memory_consumption_s64: scratch bytes beside inputs and outputs
QUERY_IMPLEMENTATION = 8  # dnnl_query_impl_info_str
QUERY_STRIDES = 14  # dnnl_query_strides
QUERY_ALGORITHM = 20  # dnnl_query_alg_kind
QUERY_WORKSPACE = 135  # dnnl_query_workspace_md
QUERY_ARGUMENT = 255  # dnnl_query_exec_arg_md: by the number of an argument
# dnnl_query_ndims_s32, dnnl_query_format_kind, dnnl_query_inner_nblks_s32, dnnl_query_inner_blks, dnnl_query_inner_idxs
QUERY_AXES, QUERY_FORMAT_KIND, QUERY_BLOCKS, QUERY_BLOCK_SIZES, QUERY_BLOCK_AXES = 256, 262, 263, 264, 265
FORMAT_BLOCKED = 2  # dnnl_blocked
# DNNL_ARG_*
ARG_SRC, ARG_SRC_ITER, ARG_SRC_ITER_C = 1, 2, 3
ARG_DST = 17
ARG_WEIGHTS, ARG_WEIGHTS_ITER = 33, 34
ARG_BIAS = 41
ARG_WORKSPACE = 64
ARG_DIFF_SRC, ARG_DIFF_SRC_ITER, ARG_DIFF_SRC_ITER_C = 129, 130, 131
ARG_DIFF_DST = 145
ARG_DIFF_WEIGHTS, ARG_DIFF_WEIGHTS_ITER = 161, 162
ARG_DIFF_BIAS = 169
ARG_SCALES = 4096  # DNNL_ARG_ATTR_SCALES, added to the argument that is scaled
ASYNCHRONOUS = (8, 512)  # threadpool, SYCL
RUNTIME = {1: "sequential", 2: "OpenMP", 4: "TBB", 8: "threadpool", 512: "SYCL"}  # DNNL_RUNTIME_*

Handle = ctypes.c_void_p


class Version(ctypes.Structure):
    """dnnl_version_t."""

    _fields_ = (
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    )


class ExecArg(ctypes.Structure):
    """dnnl_exec_arg_t: which argument of a primitive, and its memory."""

    _fields_ = (("arg", ctypes.c_int), ("memory", ctypes.c_void_p))


class OneDNN:
    """The library with one CPU engine and one stream; every call checked.

    Objects it makes live as long as the process: a worker serves one case.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        library.dnnl_version.restype = ctypes.POINTER(Version)
        self.engine = self.create("dnnl_engine_create", ENGINE_CPU, ctypes.c_size_t(0))
        self.stream = self.create("dnnl_stream_create", self.engine, STREAM_DEFAULT)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a status; raise for all but success."""
        status = self.library[name](*arguments)
        if status == SUCCESS:
            return
        text = STATUS.get(status, "unknown status")
        if status == OUT_OF_MEMORY:
            raise OutOfMemory(f"oneDNN: {name} is out of memory")
        if status == UNIMPLEMENTED:
            raise Unsupported(f"oneDNN: {name} says unimplemented on this CPU")
        raise LibraryError("oneDNN", name, status, text)

    def create(self, name: str, *arguments: Any) -> Handle:
        """Call a function whose first argument receives the handle of a new object."""
        handle = Handle()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle

    def memory_desc(self, sizes: Sequence[int], type_name: str, strides: Sequence[int]) -> Handle:
        """A descriptor of a tensor whose elements lie at the given strides (in elements)."""
        return self.create(
            "dnnl_memory_desc_create_with_strides",
            len(sizes),
            dims(sizes),
            DATA_TYPE[type_name],
            dims(strides),
        )

    def memory_desc_any(self, sizes: Sequence[int], type_name: str) -> Handle:
        """A descriptor that leaves the format to the library."""
        return self.create(
            "dnnl_memory_desc_create_with_tag",
            len(sizes),
            dims(sizes),
            DATA_TYPE[type_name],
            FORMAT_ANY,
        )

    def desc_of(self, view: Any) -> Handle:
        """The descriptor of an array of NumPy, however its axes lie in memory."""
        strides = [s // view.itemsize for s in view.strides]
        return self.memory_desc(view.shape, type_name(view.dtype), strides)

    def memory(self, descriptor: Handle, array: Any) -> Handle:
        """Memory over an array of NumPy, which the caller keeps alive."""
        return self.create("dnnl_memory_create", descriptor, self.engine, ctypes.c_void_p(array.ctypes.data))

    def size_bytes(self, descriptor: Handle) -> int:
        """Bytes that a tensor of this descriptor takes."""
        function = self.library.dnnl_memory_desc_get_size
        function.restype = ctypes.c_size_t
        return int(function(descriptor))

    def same_format(self, one: Handle, other: Handle) -> bool:
        """Whether two descriptors are equal."""
        return bool(self.library.dnnl_memory_desc_equal(one, other))

    def query(self, primitive_desc: Handle, what: int, result: Any) -> Any:
        """Ask a primitive descriptor; `result` is a ctypes object that receives the answer."""
        self.call("dnnl_primitive_desc_query", primitive_desc, what, 0, ctypes.byref(result))
        return result.value

    def argument_desc(self, primitive_desc: Handle, argument: int) -> Handle:
        """The format that the library chose for an argument."""
        return self._query_desc(primitive_desc, QUERY_ARGUMENT, argument)

    def workspace_desc(self, primitive_desc: Handle) -> Handle:
        """What a forward pass leaves for the backward pass."""
        return self._query_desc(primitive_desc, QUERY_WORKSPACE, 0)

    def _query_desc(self, primitive_desc: Handle, what: int, index: int) -> Handle:
        function = self.library.dnnl_primitive_desc_query_md
        function.restype = ctypes.c_void_p
        return Handle(function(primitive_desc, what, index))

    def sum_post_op(self) -> Handle:
        """An attribute that adds the old destination to the result: beta = 1."""
        operations = self.create("dnnl_post_ops_create")
        self.call("dnnl_post_ops_append_sum", operations, ctypes.c_float(1.0), 0, 0)
        attribute = self.create("dnnl_primitive_attr_create")
        self.call("dnnl_primitive_attr_set_post_ops", attribute, operations)
        return attribute

    def arguments(self, memories: dict[int, Handle]) -> Any:
        """The argument list of an execution."""
        return (ExecArg * len(memories))(*(ExecArg(a, m.value) for a, m in memories.items()))

    def format_name(self, descriptor: Handle) -> str:
        """The format as oneDNN's documents write it: `aBcd8b` is a tensor whose second axis is cut into blocks of 8."""

        def ask(what: int, kind: Any) -> Any:
            result = kind()
            self.call("dnnl_memory_desc_query", descriptor, what, ctypes.byref(result))
            return result

        if ask(QUERY_FORMAT_KIND, ctypes.c_int).value != FORMAT_BLOCKED:
            return "opaque"
        axes, blocks = ask(QUERY_AXES, ctypes.c_int32).value, ask(QUERY_BLOCKS, ctypes.c_int32).value
        pointer = ctypes.POINTER(ctypes.c_int64)
        strides = ask(QUERY_STRIDES, pointer)[:axes]
        sizes, blocked = ask(QUERY_BLOCK_SIZES, pointer)[:blocks], ask(QUERY_BLOCK_AXES, pointer)[:blocks]
        order = sorted(range(axes), key=lambda axis: -strides[axis])
        letters = "abcdefghijkl"
        outer = "".join(letters[axis].upper() if axis in blocked else letters[axis] for axis in order)
        return outer + "".join(f"{size}{letters[axis]}" for size, axis in zip(sizes, blocked, strict=True))

    def facts(self, primitive_desc: Handle) -> dict[str, Any]:
        """For the record: the implementation's name, and bytes it needs beside inputs and outputs."""
        return {
            "implementation": self.query(primitive_desc, QUERY_IMPLEMENTATION, ctypes.c_char_p()).decode(),
            "workspace_bytes": self.query(primitive_desc, QUERY_MEMORY_CONSUMPTION, ctypes.c_int64()),
        }

    def execution(self, primitive: Handle, arguments: dict[int, Handle]) -> tuple[Call, ...]:
        """The calls of one execution; a build that does not wait for its own work is made to."""
        listed = self.arguments(arguments)
        call = Call(self.library.dnnl_primitive_execute, primitive, self.stream, len(listed), listed, status=True)
        if self.library.dnnl_version().contents.cpu_runtime not in ASYNCHRONOUS:
            return (call,)
        return call, Call(self.library.dnnl_stream_wait, self.stream, status=True)

    def conversion(
        self, source: Handle, source_memory: Handle, target: Handle, target_memory: Handle, attribute: Handle | None
    ) -> tuple[Call, ...]:
        """The calls that convert a tensor from one format into another."""
        primitive_desc = self.create(
            "dnnl_reorder_primitive_desc_create", source, self.engine, target, self.engine, attribute
        )
        primitive = self.create("dnnl_primitive_create", primitive_desc)
        return self.execution(primitive, {ARG_SRC: source_memory, ARG_DST: target_memory})

    def memory_of_buffers(self, descriptor: Handle, arrays: Sequence[Any]) -> Handle:
        """Memory of a sparse tensor: values, indices and pointers in buffers of their own."""
        handles = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        return self.create("dnnl_memory_create_v2", descriptor, self.engine, len(arrays), handles)


class Conversions:
    """Brings the arguments of a primitive from the arrays of a case into the formats that the library chose.

    Where a format is the array's own, the library works on the array itself.
    """

    def __init__(self, dnn: OneDNN, primitive_desc: Handle) -> None:
        self.dnn = dnn
        self.primitive_desc = primitive_desc
        self.arguments: dict[int, Handle] = {}
        self.inward: list[Call] = []
        """Inputs into the library's formats."""
        self.outward: list[Call] = []
        """Outputs back."""
        self.poison: list[Call] = []
        """Outputs as they lie in the arrays into the library's formats."""
        self.formats: dict[str, str] = {}
        """The formats that are not the array's own, by the array's name."""
        self.converted_bytes = 0
        self.keep: list[object] = []

    def add(self, argument: int, name: str, view: Any, output: bool = False, attribute: Any = None) -> None:
        """An argument of the primitive, and the array (as a view in the library's order of axes) that is behind it."""
        from deepbench.core.operands import empty

        plain, chosen = self.dnn.desc_of(view), self.dnn.argument_desc(self.primitive_desc, argument)
        memory = self.dnn.memory(plain, view)
        self.keep.append(view)
        if not self.dnn.same_format(plain, chosen):
            own = empty((self.dnn.size_bytes(chosen),), "u8")
            own_memory = self.dnn.memory(chosen, own)
            self.keep.append(own)
            self.converted_bytes += own.nbytes
            into = self.dnn.conversion(plain, memory, chosen, own_memory, attribute)
            (self.poison if output else self.inward).extend(into)
            if output:
                self.outward.extend(self.dnn.conversion(chosen, own_memory, plain, memory, None))
            self.formats[name] = self.dnn.format_name(chosen)
            memory = own_memory
        self.arguments[argument] = memory

    def add_workspace(self) -> None:
        """What a forward pass leaves for the backward pass, where there is such a thing."""
        from deepbench.core.operands import empty

        desc = self.dnn.workspace_desc(self.primitive_desc)
        size = self.dnn.size_bytes(desc) if desc else 0
        if size:
            own = empty((size,), "u8")
            self.keep.append(own)
            self.arguments[ARG_WORKSPACE] = self.dnn.memory(desc, own)

    def kernel(self, ahead: str | None, notes: dict[str, Any] | None = None) -> Kernel:
        """The kernel; conversions are inside its time, or before it and timed under the name `ahead` in the notes."""
        primitive = self.dnn.create("dnnl_primitive_create", self.primitive_desc)
        calls = self.dnn.execution(primitive, self.arguments)
        notes = {**self.dnn.facts(self.primitive_desc), **(notes or {})}
        if self.formats:
            notes["formats"] = self.formats
        notes["converted_bytes"] = self.converted_bytes
        if ahead is None:
            own = tuple(self.formats)
            kernel_calls = (*self.inward, *calls, *self.outward)
            keep = tuple(self.keep)
            return Kernel(kernel_calls, load=lambda: make(self.poison), private_buffers=own, keep=keep, notes=notes)
        make(self.inward)  # touches the pages and starts the threads
        start = perf_counter()
        make([*self.inward, *self.outward])
        notes[ahead] = perf_counter() - start
        return Kernel(
            calls,
            load=lambda: make([*self.inward, *self.poison]),
            store=lambda: make(self.outward),
            private_buffers=tuple(self.formats),
            keep=tuple(self.keep),
            notes=notes,
        )


def make(calls: Sequence[Call]) -> None:
    """Make these calls once, outside any time."""
    for call in calls:
        status = call.function(*map(ctypes.c_void_p, call.words))
        if call.status and status:
            raise LibraryError("oneDNN", "dnnl_primitive_execute", status, STATUS.get(status, "unknown status"))


def int64(value: int) -> ctypes.c_int64:
    """A `dnnl_dim_t`."""
    return ctypes.c_int64(value)


def dims(values: Sequence[int]) -> Any:
    """A `dnnl_dims_t`."""
    return (ctypes.c_int64 * MAX_DIMS)(*values)
