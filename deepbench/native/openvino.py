"""OpenVINO's C API, and models as texts of its intermediate representation (IR, version 11).

Source: the headers in openvino/c of OpenVINO 2026.4. Models are read from memory, so no Python module of OpenVINO is
needed. The numbers of element types differ between versions, so the library is asked for them.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from deepbench.core.errors import LibraryError, OutOfMemory
from deepbench.core.operands import copy
from deepbench.core.precision import dtype, type_name

if TYPE_CHECKING:
    from deepbench.core.op import Array

Handle = ctypes.c_void_p

EXECUTED = 2  # ov_profiling_info_t.Status

# The set of operations in which we know each operation; the others are in the first set.
OPSETS = {
    **{"MVN": 6, "Gelu": 7, "Swish": 4, "Interpolate": 4, "GroupNormalization": 12, "BatchNormInference": 5},
    **{"ScaledDotProductAttention": 13, "LSTMSequence": 5, "GRUSequence": 5, "RNNSequence": 5},
}

# Where names of types differ from ours.
ELEMENT_NAMES = {"s8": "i8", "s32": "i32"}

# Constants begin at multiples of this many bytes.
CONSTANT_ALIGNMENT = 64


class Shape(ctypes.Structure):
    """ov_shape_t."""

    _fields_ = (("rank", ctypes.c_int64), ("dims", ctypes.POINTER(ctypes.c_int64)))


class ProfilingInfo(ctypes.Structure):
    """ov_profiling_info_t: one node of a compiled model in the last inference."""

    _fields_ = (
        ("status", ctypes.c_int),
        ("real_us", ctypes.c_int64),
        ("cpu_us", ctypes.c_int64),
        ("node_name", ctypes.c_char_p),
        ("exec_type", ctypes.c_char_p),
        ("node_type", ctypes.c_char_p),
    )


class ProfilingInfoList(ctypes.Structure):
    """ov_profiling_info_list_t."""

    _fields_ = (("infos", ctypes.POINTER(ProfilingInfo)), ("size", ctypes.c_size_t))


class LibraryVersion(ctypes.Structure):
    """ov_version_t."""

    _fields_ = (("build_number", ctypes.c_char_p), ("description", ctypes.c_char_p))


@dataclass(frozen=True)
class Node:
    """What one operation of a compiled model was executed as."""

    kind: str
    """Such as `MatMul`; several operations may have become one node."""
    implementation: str
    """Such as `brgemm_avx512_f32`."""

    @property
    def type_name(self) -> str:
        """The type that it computed in, which its implementation ends with."""
        return self.implementation.rpartition("_")[2]


@dataclass(frozen=True)
class Value:
    """An output of a layer of a graph."""

    layer: int
    port: int


class Graph:
    """A model as it is built: layers, the edges between them, and the bytes of its constants.

    An operation is named and described as in OpenVINO's specification of its operation sets. Shapes and types of what
    lies between are computed by the library.
    """

    def __init__(self) -> None:
        self.inputs: list[Array] = []
        self.outputs: list[Array] = []
        self._layers: list[str] = []
        self._edges: list[str] = []
        self._constants: list[bytes] = []
        self._constant_bytes = 0

    def parameter(self, array: Array, shape: Sequence[int] | None = None) -> Value:
        """An input that is read from this array, which may have another shape with as many elements."""
        self.inputs.append(array)
        return self._layer("Parameter", (), {"shape": _list(shape or array.shape), "element_type": _element(array)})

    def constant(self, array: Array, element: str | None = None, shape: Sequence[int] | None = None) -> Value:
        """A constant; types of less than a byte are given as bytes, with their name and shape."""
        content = np.ascontiguousarray(array).tobytes()
        attributes = {
            "element_type": element or _element(array),
            "shape": _list(array.shape if shape is None else shape),
        }
        place = {"offset": self._constant_bytes, "size": len(content)}
        self._constants.append(content + bytes(-len(content) % CONSTANT_ALIGNMENT))
        self._constant_bytes += len(self._constants[-1])
        return self._layer("Const", (), {**attributes, **place})

    def axes(self, *numbers: int) -> Value:
        """A constant with positions or sizes."""
        return self.constant(np.array(numbers, np.int64), "i64")

    def number(self, value: float, like: str = "f32") -> Value:
        """A constant with one number."""
        return self.constant(np.array(value, dtype(like)))

    def convert(self, value: Value, kind: str) -> Value:
        """The same numbers in another type."""
        return self.op("Convert", value, destination_type=ELEMENT_NAMES.get(kind, kind))

    def op(self, kind: str, *inputs: Value, outputs: int = 1, **attributes: Any) -> Value:
        """An operation, of which the first output is used. `True` and lists are written as the format wants them.

        Two underscores in the name of an attribute stand for a hyphen.
        """
        return self._layer(kind, inputs, {name: _text(value) for name, value in attributes.items()}, outputs)

    def result(self, value: Value, array: Array) -> None:
        """An output that is written into this array, in its type."""
        self.outputs.append(array)
        self._layer("Result", (value,), {}, outputs=0)

    def text(self) -> bytes:
        """The model in the intermediate representation."""
        layers, edges = "".join(self._layers), "".join(self._edges)
        return f'<net name="case" version="11"><layers>{layers}</layers><edges>{edges}</edges></net>'.encode()

    @cached_property
    def constants(self) -> Array | None:
        """The bytes of all constants, aligned; None if there are none. Compiled models may read them here."""
        return copy(np.frombuffer(b"".join(self._constants), np.uint8)) if self._constants else None

    def _layer(self, kind: str, inputs: Sequence[Value], attributes: Mapping[str, Any], outputs: int = 1) -> Value:
        number, count = len(self._layers), len(inputs)
        # The library computes the types of ports, but its reader wants the attribute to be there.
        ports = [f'<port id="{port}" precision="FP32"/>' for port in range(count + outputs)]
        ends = f"<input>{''.join(ports[:count])}</input>" if inputs else ""
        ends += f"<output>{''.join(ports[count:])}</output>" if outputs else ""
        data = "".join(f' {name.replace("__", "-")}="{value}"' for name, value in attributes.items())
        opset = f"opset{OPSETS.get(kind, 1)}"
        self._layers.append(
            f'<layer id="{number}" name="{number}" type="{kind}" version="{opset}"><data{data}/>{ends}</layer>'
        )
        for port, value in enumerate(inputs):
            source = f'from-layer="{value.layer}" from-port="{value.port}"'
            self._edges.append(f'<edge {source} to-layer="{number}" to-port="{port}"/>')
        return Value(number, count)


def _list(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return _list(value) if isinstance(value, list | tuple) else str(value)


def _element(array: Array) -> str:
    name = type_name(array.dtype)
    return ELEMENT_NAMES.get(name, name)


class OpenVINO:
    """The library with its core. The status of every call is checked.

    Objects without threads are never destroyed: a worker process serves one case.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        library.ov_get_last_err_msg.restype = ctypes.c_char_p
        self.core = self.create("ov_core_create")
        self.element_number = lru_cache(None)(self._element_number)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raise if its status is not success, with what the library says."""
        status = self.library[name](*arguments)
        if status:
            text = " ".join((self.library.ov_get_last_err_msg() or b"unknown status").decode(errors="replace").split())
            if "bad_alloc" in text or "Could not allocate" in text:
                raise OutOfMemory(f"OpenVINO: {name} is out of memory")
            raise LibraryError("OpenVINO", name, status, text)

    def create(self, name: str, *arguments: Any) -> Handle:
        """Call a function that returns the handle of a new object through its last argument."""
        handle = Handle()
        self.call(name, *arguments, ctypes.byref(handle))
        return handle

    def free(self, kind: str, handle: Handle) -> None:
        """Destroy an object, such as a `compiled_model`, which has threads."""
        function = self.library[f"ov_{kind}_free"]
        function.restype = None
        function(handle)

    def version(self) -> str:
        """Such as `2026.4.1-22982-c0f6d2e9b1a-releases/2026/4`."""
        version = LibraryVersion()
        self.call("ov_get_openvino_version", ctypes.byref(version))
        return (version.build_number or b"").decode(errors="replace")

    def device_property(self, device: str, name: str) -> str:
        """A property of a device, such as `OPTIMIZATION_CAPABILITIES`."""
        text = ctypes.c_char_p()
        self.call("ov_core_get_property", self.core, device.encode(), name.encode(), ctypes.byref(text))
        return (text.value or b"").decode(errors="replace")

    def read(self, graph: Graph) -> Handle:
        """The model of a graph, which must live as long: its constants are not copied."""
        text, constants, weights = graph.text(), graph.constants, None
        if constants is not None:
            weights = self.tensor(constants, "f32", (constants.nbytes // 4,))
        size = ctypes.c_size_t(len(text))
        return self.create("ov_core_read_model_from_memory_buffer", self.core, text, size, weights)

    def compile(self, graph: Graph, device: str, properties: Mapping[str, str]) -> Handle:
        """A compiled model."""
        words = [ctypes.c_char_p(word.encode()) for item in properties.items() for word in item]
        compiled, count = Handle(), ctypes.c_size_t(len(words))
        model = self.read(graph)
        self.call("ov_core_compile_model", self.core, model, device.encode(), count, ctypes.byref(compiled), *words)
        return compiled

    def property(self, compiled: Handle, name: str) -> str:
        """A property of a compiled model, as it really is."""
        text = ctypes.c_char_p()
        self.call("ov_compiled_model_get_property", compiled, name.encode(), ctypes.byref(text))
        return (text.value or b"").decode(errors="replace")

    def request(self, compiled: Handle, inputs: Sequence[Array], outputs: Sequence[Array] = ()) -> Handle:
        """An inference request on these arrays; without outputs it writes into memory of its own."""
        request = self.create("ov_compiled_model_create_infer_request", compiled)
        for side, arrays in (("input", inputs), ("output", outputs)):
            for number, array in enumerate(arrays):
                index = ctypes.c_size_t(number)
                # The shapes of the model are ours, and may differ from that of the array.
                own = self.create(f"ov_infer_request_get_{side}_tensor_by_index", request, index)
                shape = Shape()
                self.call("ov_tensor_get_shape", own, ctypes.byref(shape))
                assert math.prod(shape.dims[: shape.rank]) == array.size, "else the library writes beyond the array"
                tensor = self.tensor(array, _element(array), shape.dims[: shape.rank])
                self.call(f"ov_infer_request_set_{side}_tensor_by_index", request, index, tensor)
        return request

    def executed(self, request: Handle) -> list[Node]:
        """The nodes that the last inference of a request executed; its model was compiled with `PERF_COUNT`."""
        found = ProfilingInfoList()
        self.call("ov_infer_request_get_profiling_info", request, ctypes.byref(found))
        infos = [found.infos[i] for i in range(found.size)]
        return [
            Node((info.node_type or b"").decode(), (info.exec_type or b"").decode())
            for info in infos
            if info.status == EXECUTED
        ]

    def tensor(self, array: Array, element: str, shape: Sequence[int]) -> Handle:
        """A tensor on the memory of an array."""
        sizes = Shape(len(shape), (ctypes.c_int64 * max(1, len(shape)))(*shape))
        number, address = self.element_number(element), ctypes.c_void_p(array.ctypes.data)
        return self.create("ov_tensor_create_from_host_ptr", number, sizes, address)

    def _element_number(self, element: str) -> int:
        """The number of an element type in this version of the library, from a model with one input of this type."""
        graph = Graph()
        source = graph._layer("Parameter", (), {"shape": "1", "element_type": element})
        graph._layer("Result", (source,), {}, outputs=0)
        port = self.create("ov_model_const_input_by_index", self.read(graph), ctypes.c_size_t(0))
        number = ctypes.c_int()
        self.call("ov_port_get_element_type", port, ctypes.byref(number))
        return number.value
