"""oneDNN's C API, version 3: the names, values and statuses that backends use.

Source: include/oneapi/dnnl/dnnl.h, dnnl_types.h and dnnl_common_types.h of oneDNN 3.2. Values of these enumerations
are part of the library's binary interface and stay the same within version 3.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from deepbench.errors import LibraryError, OutOfMemory, Unsupported

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
MAX_DIMS = 12  # DNNL_MAX_NDIMS
ENGINE_CPU = 1  # dnnl_cpu
STREAM_DEFAULT = 1  # dnnl_stream_default_flags: in order
QUERY_MEMORY_CONSUMPTION = 6  # dnnl_query_memory_consumption_s64: scratch bytes beside inputs and outputs
QUERY_IMPLEMENTATION = 8  # dnnl_query_impl_info_str
QUERY_WEIGHTS = 131  # dnnl_query_weights_md
ARG_SRC, ARG_DST, ARG_WEIGHTS = 1, 17, 33  # DNNL_ARG_*
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
            _dims(sizes),
            DATA_TYPE[type_name],
            _dims(strides),
        )

    def memory_desc_any(self, sizes: Sequence[int], type_name: str) -> Handle:
        """A descriptor that leaves the format to the library."""
        return self.create(
            "dnnl_memory_desc_create_with_tag",
            len(sizes),
            _dims(sizes),
            DATA_TYPE[type_name],
            FORMAT_ANY,
        )

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

    def weights_desc(self, primitive_desc: Handle) -> Handle:
        """The format of the weights that the library chose."""
        function = self.library.dnnl_primitive_desc_query_md
        function.restype = ctypes.c_void_p
        return Handle(function(primitive_desc, QUERY_WEIGHTS, 0))

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

    def reorder(self, source: Handle, source_memory: Handle, target: Handle, array: Any) -> Handle:
        """Convert a tensor into the target's format, into `array`; returns the memory over it."""
        primitive_desc = self.create(
            "dnnl_reorder_primitive_desc_create", source, self.engine, target, self.engine, None
        )
        primitive = self.create("dnnl_primitive_create", primitive_desc)
        memory = self.memory(target, array)
        arguments = self.arguments({ARG_SRC: source_memory, ARG_DST: memory})
        self.call("dnnl_primitive_execute", primitive, self.stream, len(arguments), arguments)
        self.call("dnnl_stream_wait", self.stream)
        return memory


def _dims(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * MAX_DIMS)(*values)
