"""oneDNN's C API, version 3: constants, handles, and conversions between formats.

Source: include/oneapi/dnnl/dnnl.h, dnnl_types.h and dnnl_common_types.h of oneDNN 3.2. The values of enumerations are
part of the library's binary interface and stay the same within version 3.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from deepbench.core.errors import LibraryError, OutOfMemory, Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.core.operands import empty
from deepbench.core.precision import type_name
from deepbench.native.library import c_function, openmp_threads

# dnnl_status_t; 0 is success
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
OUT_OF_MEMORY, INVALID_ARGUMENTS, UNIMPLEMENTED = 1, 2, 3

DATA_TYPE = {"f16": 1, "bf16": 2, "f32": 3, "s32": 4, "s8": 5, "u8": 6, "s4": 11}  # dnnl_data_type_t
FPMATH = {"f32": 0, "bf16": 1, "f16": 2}  # dnnl_fpmath_mode_t: the type to which weights are dequantized; 0 is strict
FORMAT_ANY = 1  # dnnl_format_tag_any
# dnnl_aBcd16b, dnnl_aBcde16b: images with channels in blocks of 16, by the number of axes
FORMAT_BLOCKS_OF_16 = {4: 78, 5: 121}
FORWARD_TRAINING, FORWARD_INFERENCE, BACKWARD = 64, 96, 128  # dnnl_prop_kind_t
CONVOLUTION_AUTO = 3  # dnnl_convolution_auto: the library chooses direct or Winograd
ALGORITHM = {1: "direct", 2: "Winograd"}  # dnnl_convolution_direct, dnnl_convolution_winograd
ELTWISE_RELU, ELTWISE_LINEAR = 0x20, 0x26  # dnnl_eltwise_relu, dnnl_eltwise_linear
# dnnl_eltwise_*; those of "result" compute the gradient from the result of the forward pass (use_dst_for_bwd)
ELTWISE = {
    **{"relu": ELTWISE_RELU, "tanh": 0x21, "elu": 0x22, "sigmoid": 0x29, "gelu_tanh": 0x2B, "silu": 0x2C},
    **{"clip": 0x2F, "gelu": 0x31},
}
ELTWISE_OF_RESULT = {"relu": 0x100, "tanh": 0x101, "sigmoid": 0x104}
POOLING = {"max": 0x1FF, "average": 0x2FF}  # dnnl_pooling_max, dnnl_pooling_avg_include_padding
BINARY_ADD, BINARY_MULTIPLY = 0x1FFF0, 0x1FFF1  # dnnl_binary_add, dnnl_binary_mul
RESAMPLING_NEAREST = 0x2FFF0  # dnnl_resampling_nearest
REDUCTION = {"max": 0x2FFF2, "sum": 0x2FFF4, "mean": 0x2FFF6}  # dnnl_reduction_*
SOFTMAX_ACCURATE = 0x30000  # dnnl_softmax_accurate
# dnnl_normalization_flags_t; dnnl_rms_norm is not in version 3.2
GLOBAL_STATISTICS, USE_SCALE, USE_SHIFT, RMS_NORM = 0x1, 0x2, 0x4, 0x20
LEFT_TO_RIGHT, BIDIRECTIONAL_CONCAT = 1, 3  # dnnl_unidirectional_left2right, dnnl_bidirectional_concat
DIFF_WEIGHTS_OVERWRITE = 1  # dnnl_rnn_flags_diff_weights_overwrite: do not add to old values
MAX_DIMS = 12  # DNNL_MAX_NDIMS
ENGINE_CPU, ENGINE_GPU = 1, 2  # dnnl_cpu, dnnl_gpu
STREAM_DEFAULT = 1  # dnnl_stream_default_flags: in order
QUERY_MEMORY_CONSUMPTION = 6  # dnnl_query_memory_consumption_s64: bytes of scratch memory
QUERY_IMPLEMENTATION = 8  # dnnl_query_impl_info_str
QUERY_STRIDES = 14  # dnnl_query_strides
QUERY_ALGORITHM = 20  # dnnl_query_alg_kind
QUERY_WORKSPACE = 135  # dnnl_query_workspace_md
QUERY_ARGUMENT = 255  # dnnl_query_exec_arg_md: by argument number
# dnnl_query_ndims_s32, dnnl_query_format_kind, dnnl_query_inner_nblks_s32, dnnl_query_inner_blks, dnnl_query_inner_idxs
QUERY_AXES, QUERY_FORMAT_KIND, QUERY_BLOCKS, QUERY_BLOCK_SIZES, QUERY_BLOCK_AXES = 256, 262, 263, 264, 265
FORMAT_BLOCKED = 2  # dnnl_blocked
# DNNL_ARG_*
ARG_SRC, ARG_SRC_ITER, ARG_SRC_ITER_C = 1, 2, 3
ARG_SRC_1 = 2  # the second operand of a binary operation
ARG_DST = 17
ARG_WEIGHTS, ARG_WEIGHTS_ITER = 33, 34
ARG_BIAS = 41
ARG_MEAN, ARG_VARIANCE = 49, 50
ARG_SCALE, ARG_SHIFT = 51, 52
ARG_WORKSPACE = 64
ARG_DIFF_SRC, ARG_DIFF_SRC_ITER, ARG_DIFF_SRC_ITER_C = 129, 130, 131
ARG_DIFF_DST = 145
ARG_DIFF_WEIGHTS, ARG_DIFF_WEIGHTS_ITER = 161, 162
ARG_DIFF_BIAS = 169
ARG_DIFF_SCALE, ARG_DIFF_SHIFT = 255, 256
# DNNL_ARG_ATTR_MULTIPLE_POST_OP_BASE, which newer versions have doubled
ARG_POST_OPS = (16384, 32768)
ARG_SCALES = 4096  # DNNL_ARG_ATTR_SCALES, added to the number of the scaled argument
SEQUENTIAL, OPENMP = 1, 2
SYCL = 512
ASYNCHRONOUS = (8, SYCL)  # threadpool, SYCL
RUNTIME = {1: "sequential", 2: "OpenMP", 4: "TBB", 8: "threadpool", SYCL: "SYCL"}  # DNNL_RUNTIME_*

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

    @property
    def text(self) -> str:
        """Such as 3.2.0."""
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def threading(self) -> str:
        """What runs the threads of the CPU, such as OpenMP."""
        return RUNTIME.get(self.cpu_runtime, f"runtime {self.cpu_runtime}")


class ExecArg(ctypes.Structure):
    """dnnl_exec_arg_t: the number of an argument and its memory."""

    _fields_ = (("arg", ctypes.c_int), ("memory", ctypes.c_void_p))


class OneDNN:
    """The library with one engine and one stream. The status of every call is checked.

    Objects are never destroyed: a worker process serves one case. `native/onednn_device.py` derives from it for engines
    that work while the host goes on.
    """

    def __init__(self, library: ctypes.CDLL, kind: int = ENGINE_CPU, index: int = 0) -> None:
        self.library, self.kind, self.version = library, kind, version_of(library)
        self.engine = self.create("dnnl_engine_create", kind, ctypes.c_size_t(index))
        self.stream = self.create("dnnl_stream_create", self.engine, STREAM_DEFAULT)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raise if its status is not success."""
        status = self.library[name](*arguments)
        if status == OUT_OF_MEMORY:
            raise OutOfMemory(f"oneDNN: {name} is out of memory")
        if status == UNIMPLEMENTED:
            place = "CPU" if self.kind == ENGINE_CPU else "GPU"
            raise Unsupported(f"oneDNN: {name} is not implemented on this {place}")
        if status:
            raise LibraryError("oneDNN", name, status, STATUS.get(status, "unknown status"))

    def create(self, name: str, *arguments: Any) -> Handle:
        """Call a function that returns the handle of a new object through its first argument."""
        handle = Handle()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle

    def create_last(self, name: str, *arguments: Any) -> Handle:
        """The same for a function that returns the handle through its last argument."""
        handle = Handle()
        self.call(name, *arguments, ctypes.byref(handle))
        return handle

    def threads(self) -> int | None:
        """Threads of a build with OpenMP or without threads; other builds do not report them."""
        if self.version.cpu_runtime == OPENMP:
            return openmp_threads(self.library)
        return 1 if self.version.cpu_runtime == SEQUENTIAL else None

    def memory_desc(self, sizes: Sequence[int], type_name: str, strides: Sequence[int]) -> Handle:
        """A descriptor of a tensor with the given strides (in elements)."""
        function = "dnnl_memory_desc_create_with_strides"
        return self.create(function, len(sizes), dims(sizes), DATA_TYPE[type_name], dims(strides))

    def memory_desc_any(self, sizes: Sequence[int], type_name: str, tag: int = FORMAT_ANY) -> Handle:
        """A descriptor of a tensor in a format that the library chooses, or in that of a `tag`."""
        function = "dnnl_memory_desc_create_with_tag"
        return self.create(function, len(sizes), dims(sizes), DATA_TYPE[type_name], tag)

    def desc_of(self, view: Any) -> Handle:
        """The descriptor of a NumPy array with any strides."""
        strides = [s // view.itemsize for s in view.strides]
        return self.memory_desc(view.shape, type_name(view.dtype), strides)

    def address(self, array: Any) -> int:
        """Where the engine finds a NumPy array."""
        return int(array.ctypes.data)

    def memory(self, descriptor: Handle, array: Any) -> Handle:
        """A memory object for a NumPy array, which the caller must keep alive."""
        return self.create("dnnl_memory_create", descriptor, self.engine, ctypes.c_void_p(self.address(array)))

    def size_bytes(self, descriptor: Handle) -> int:
        """Bytes of a tensor with this descriptor."""
        function = self.library.dnnl_memory_desc_get_size
        function.restype = ctypes.c_size_t
        return int(function(descriptor))

    def query(self, primitive_desc: Handle, what: int, result: Any) -> Any:
        """Query a primitive descriptor; `result` is a ctypes object that receives the answer."""
        self.call("dnnl_primitive_desc_query", primitive_desc, what, 0, ctypes.byref(result))
        return result.value

    def query_desc(self, primitive_desc: Handle, what: int, index: int) -> Handle:
        """The format that the library chose for an argument or a workspace."""
        function = self.library.dnnl_primitive_desc_query_md
        function.restype = ctypes.c_void_p
        return Handle(function(primitive_desc, what, index))

    def sum_post_op(self) -> Handle:
        """An attribute that adds the result to the destination: beta = 1."""
        return self.attribute("sum", ctypes.c_float(1.0), 0, 0)

    def eltwise_post_op(self, kind: str) -> Handle:
        """An attribute that applies a function of `ELTWISE` to each element of the result."""
        alpha = 1.0 if kind == "silu" else 0.0  # SiLU is swish with alpha = 1
        return self.attribute("eltwise", ELTWISE[kind], ctypes.c_float(alpha), ctypes.c_float(0.0))

    def attribute(self, post_op: str, *arguments: Any) -> Handle:
        """An attribute with one post-operation: `post_op` is what follows `dnnl_post_ops_append_`."""
        operations = self.create("dnnl_post_ops_create")
        self.call(f"dnnl_post_ops_append_{post_op}", operations, *arguments)
        attribute = self.create("dnnl_primitive_attr_create")
        self.call("dnnl_primitive_attr_set_post_ops", attribute, operations)
        return attribute

    def format_name(self, descriptor: Handle) -> str:
        """The format as in oneDNN's documentation: in `aBcd8b`, the second axis is split into blocks of 8."""

        def query(what: int, kind: Any) -> Any:
            result = kind()
            self.call("dnnl_memory_desc_query", descriptor, what, ctypes.byref(result))
            return result

        if query(QUERY_FORMAT_KIND, ctypes.c_int).value != FORMAT_BLOCKED:
            return "opaque"
        axes, blocks = query(QUERY_AXES, ctypes.c_int32).value, query(QUERY_BLOCKS, ctypes.c_int32).value
        pointer = ctypes.POINTER(ctypes.c_int64)
        strides = query(QUERY_STRIDES, pointer)[:axes]
        sizes, blocked = query(QUERY_BLOCK_SIZES, pointer)[:blocks], query(QUERY_BLOCK_AXES, pointer)[:blocks]
        order = sorted(range(axes), key=lambda axis: -strides[axis])
        letters = "abcdefghijkl"
        outer = "".join(letters[axis].upper() if axis in blocked else letters[axis] for axis in order)
        return outer + "".join(f"{size}{letters[axis]}" for size, axis in zip(sizes, blocked, strict=True))

    def facts(self, primitive_desc: Handle) -> dict[str, Any]:
        """For the record: name of the implementation, and bytes of scratch memory."""
        return {
            "implementation": self.query(primitive_desc, QUERY_IMPLEMENTATION, ctypes.c_char_p()).decode(),
            "workspace_bytes": self.query(primitive_desc, QUERY_MEMORY_CONSUMPTION, ctypes.c_int64()),
        }

    def execution(self, primitive: Handle, arguments: dict[int, Handle]) -> tuple[Call, ...]:
        """The calls of one execution."""
        listed = (ExecArg * len(arguments))(*(ExecArg(a, m.value) for a, m in arguments.items()))
        call = Call(self.library.dnnl_primitive_execute, primitive, self.stream, len(listed), listed, status=True)
        return self.awaited(call)

    def awaited(self, call: Call) -> tuple[Call, ...]:
        """This call, and a wait if the build is asynchronous."""
        if self.version.cpu_runtime not in ASYNCHRONOUS:
            return (call,)
        return call, Call(self.library.dnnl_stream_wait, self.stream, status=True)

    def zeros(self, array: Any) -> tuple[Call, ...]:
        """The calls that set an array to zero."""
        return (Call(c_function("memset"), array, 0, array.nbytes),)

    def run(self, calls: Sequence[Call]) -> None:
        """Make these calls once; their work is done when it returns."""
        for call in calls:
            status = call.function(*map(ctypes.c_void_p, call.words))
            if call.status and status:
                raise LibraryError("oneDNN", call.function.__name__, status, STATUS.get(status, "unknown status"))

    def conversion(
        self, source: Handle, source_memory: Handle, target: Handle, target_memory: Handle, attribute: Handle | None
    ) -> tuple[Call, ...]:
        """The calls that convert a tensor from one format into another."""
        function = "dnnl_reorder_primitive_desc_create"
        primitive_desc = self.create(function, source, self.engine, target, self.engine, attribute)
        primitive = self.create("dnnl_primitive_create", primitive_desc)
        return self.execution(primitive, {ARG_SRC: source_memory, ARG_DST: target_memory})

    def memory_of_buffers(self, descriptor: Handle, arrays: Sequence[Any]) -> Handle:
        """A memory object for a sparse tensor, whose values, indices and row starts are separate arrays."""
        handles = (ctypes.c_void_p * len(arrays))(*(self.address(a) for a in arrays))
        return self.create("dnnl_memory_create_v2", descriptor, self.engine, len(arrays), handles)


# The note with the seconds of conversions that are part of a timed call, and how often they are timed alone.
CONVERSION, CONVERSION_RUNS = "conversion_s", 5


class Conversions:
    """Converts the arrays of a case to the formats that the library chose for the arguments of a primitive.

    If a format is the array's own, the library works on the array itself.
    """

    def __init__(self, dnn: OneDNN, primitive_desc: Handle) -> None:
        self.dnn = dnn
        self.primitive_desc = primitive_desc
        self.arguments: dict[int, Handle] = {}
        self.convert_inputs: list[Call] = []
        """From the arrays to the library's formats."""
        self.convert_outputs: list[Call] = []
        """From the library's formats to the arrays."""
        self.load_outputs: list[Call] = []
        """Initial values of the outputs, from the arrays to the library's formats."""
        self.formats: dict[str, str] = {}
        """Formats that differ from the array's own, by array."""
        self.converted_bytes = 0
        self.keep: list[object] = []

    def add(self, argument: int, name: str, view: Any, output: bool = False, attribute: Any = None) -> None:
        """Add an argument of the primitive. `view` is its array with the axes in the library's order."""
        self.add_as(argument, name, self.dnn.desc_of(view), view, output, attribute)

    def add_as(
        self, argument: int, name: str, plain: Handle, view: Any, output: bool = False, attribute: Any = None
    ) -> None:
        """The same for an array whose descriptor does not follow from its shape and type."""
        chosen = self.dnn.query_desc(self.primitive_desc, QUERY_ARGUMENT, argument)
        memory = self.dnn.memory(plain, view)
        self.keep.append(view)
        if not self.dnn.library.dnnl_memory_desc_equal(plain, chosen):
            buffer = empty((self.dnn.size_bytes(chosen),), "u8")
            converted = self.dnn.memory(chosen, buffer)
            self.keep.append(buffer)
            self.converted_bytes += buffer.nbytes
            calls = self.dnn.conversion(plain, memory, chosen, converted, attribute)
            (self.load_outputs if output else self.convert_inputs).extend(calls)
            if output:
                self.convert_outputs.extend(self.dnn.conversion(chosen, converted, plain, memory, None))
            self.formats[name] = self.dnn.format_name(chosen)
            memory = converted
        self.arguments[argument] = memory

    def add_workspace(self) -> None:
        """Add the workspace that a forward pass fills for the backward pass, if the primitive has one."""
        desc = self.dnn.query_desc(self.primitive_desc, QUERY_WORKSPACE, 0)
        size = self.dnn.size_bytes(desc) if desc else 0
        if size:
            buffer = empty((size,), "u8")
            self.keep.append(buffer)
            self.arguments[ARG_WORKSPACE] = self.dnn.memory(desc, buffer)

    def _fastest_s(self, runs: int) -> float:
        """Seconds of all conversions, the fastest of so many runs after a first one."""
        calls = [*self.convert_inputs, *self.convert_outputs]
        self.dnn.run(calls)  # touches the pages and starts the threads
        times = []
        for _ in range(runs):
            start = perf_counter()
            self.dnn.run(calls)
            times.append(perf_counter() - start)
        return min(times)

    def kernel(self, ahead: str | None, notes: dict[str, Any] | None = None) -> Kernel:
        """The kernel. Conversions are part of its time, or, if `ahead` names a note for their seconds, happen before.

        In the first case the note `conversion_s` says how long they take. `notes` are further facts for the record.
        """
        primitive = self.dnn.create("dnnl_primitive_create", self.primitive_desc)
        calls = self.dnn.execution(primitive, self.arguments)
        notes = {**self.dnn.facts(self.primitive_desc), **(notes or {})}
        if self.formats:
            notes["formats"] = self.formats
        notes["converted_bytes"] = self.converted_bytes
        kernel = Kernel(calls, private_buffers=tuple(self.formats), keep=tuple(self.keep), notes=notes)
        if ahead is None:
            kernel.calls = (*self.convert_inputs, *calls, *self.convert_outputs)
            kernel.load = lambda: self.dnn.run(self.load_outputs)
            if self.convert_inputs or self.convert_outputs:
                notes[CONVERSION] = self._fastest_s(CONVERSION_RUNS)
            return kernel
        notes[ahead] = self._fastest_s(1)
        kernel.load = lambda: self.dnn.run([*self.convert_inputs, *self.load_outputs])
        kernel.store = lambda: self.dnn.run(self.convert_outputs)
        return kernel


def version_of(library: ctypes.CDLL) -> Version:
    """What the library says of itself."""
    library.dnnl_version.restype = ctypes.POINTER(Version)
    version: Version = library.dnnl_version().contents
    return version


def dims(values: Sequence[int]) -> Any:
    """A `dnnl_dims_t`."""
    return (ctypes.c_int64 * MAX_DIMS)(*values)
