"""ONNX models as bytes, written and read without a library.

A model is a message of Protocol Buffers: a list of fields, each a number with a kind of value, and the value. Numbers
of fields are those of `onnx.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deepbench.core.precision import type_name

if TYPE_CHECKING:
    from deepbench.core.op import Array, Arrays

# Numbers of types of elements.
TYPES = {"f32": 1, "u8": 2, "s8": 3, "s32": 6, "f16": 10, "bf16": 16}
INT64, BOOL = 7, 9

# The version of the format, and of the set of standard operators; `Attention` and `RMSNormalization` need 23.
FORMAT_VERSION, OPSET = 10, 23
# The domain of operators that only ONNX Runtime has, and its version.
MICROSOFT, MICROSOFT_OPSET = "com.microsoft", 1

# Kinds of values: an integer of variable length, 8 bytes, bytes with their number in front, 4 bytes.
VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5


def element_type(array: Array) -> int:
    """The number of the type of an array's elements."""
    return {"int64": INT64, "bool": BOOL}.get(array.dtype.name) or TYPES[type_name(array.dtype)]


def varint(value: int) -> bytes:
    """An integer with 7 bits per byte, the lowest first; negative ones as 64 bits in two's complement."""
    value %= 2**64
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def put(number: int, value: int | float | str | bytes) -> bytes:
    """One field."""
    if isinstance(value, float):
        return varint(number << 3 | FOUR) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    text = value.encode() if isinstance(value, str) else value
    return b"".join((varint(number << 3 | BYTES), varint(len(text)), text))


def _attribute(name: str, value: int | float | str | list[int] | list[str]) -> bytes:
    if isinstance(value, list):
        number, kind = (9, 8) if value and isinstance(value[0], str) else (8, 7)
        values = b"".join(put(number, v) for v in value)
    else:
        number, kind = {float: (2, 1), int: (3, 2), str: (4, 3)}[type(value)]
        values = put(number, value)
    return put(1, name) + values + put(20, kind)


def enclosed(number: int, parts: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """One field whose value is these parts. They are not copied, because weights may be large."""
    return [varint(number << 3 | BYTES), varint(sum(map(len, parts))), *parts]


def _tensor(name: str, array: Array) -> list[bytes | memoryview]:
    content = array.reshape(-1).view("uint8").data
    return [*(put(1, n) for n in array.shape), put(2, element_type(array)), put(8, name), *enclosed(9, [content])]


def _value(name: str, array: Array) -> bytes:
    shape = b"".join(put(1, put(1, n)) for n in array.shape)
    return put(1, name) + put(2, put(1, put(1, element_type(array)) + put(2, shape)))


@dataclass
class OnnxGraph:
    """Operators between arrays. A run reads the `inputs` and writes the `outputs`; `constants` are in the model."""

    inputs: Arrays
    outputs: Arrays
    constants: Arrays = field(default_factory=dict)
    nodes: list[bytes] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    """Facts for the record, such as the seconds of converting weights."""
    private_buffers: tuple[str, ...] = ()
    """Names of the case's arrays that were copied; see `Kernel`."""
    packing: str = ""
    """The name of the seconds that a session takes to bring constants to its layout, for the record; none: empty."""

    def add(self, operator: str, inputs: str, output: str, domain: str = "", **attributes: Any) -> None:
        """A node. `inputs` are names with a space between them, `-` for one that is left out."""
        names = b"".join(put(1, "" if name == "-" else name) for name in inputs.split())
        options = b"".join(put(5, _attribute(name, value)) for name, value in attributes.items())
        self.nodes.append(names + put(2, output) + put(4, operator) + options + (put(7, domain) if domain else b""))

    @property
    def model(self) -> bytes:
        """The model that holds the graph."""
        parts: list[bytes | memoryview] = [*(put(1, node) for node in self.nodes), put(2, "deepbench")]
        for name, array in self.constants.items():
            parts += enclosed(5, _tensor(name, array))
        for number, arrays in ((11, self.inputs), (12, self.outputs)):
            parts += [put(number, _value(name, array)) for name, array in arrays.items()]
        sets = put(8, put(1, "") + put(2, OPSET)) + put(8, put(1, MICROSOFT) + put(2, MICROSOFT_OPSET))
        return b"".join([put(1, FORMAT_VERSION), sets, *enclosed(7, parts)])


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message: number and value. `ValueError` if it ends too early or has other kinds of values."""
    at = 0

    def integer() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(message) or shift > 63:
                raise ValueError("a number does not end")
            byte = message[at]
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return value

    while at < len(message):
        key = integer()
        kind = key & 7
        if kind == VARINT:
            yield key >> 3, integer()
            continue
        if kind not in (EIGHT, BYTES, FOUR):
            raise ValueError(f"a value has the kind {kind}")
        size = integer() if kind == BYTES else 8 if kind == EIGHT else 4
        if size > len(message) - at:
            raise ValueError("a value ends too early")
        yield key >> 3, message[at : at + size]
        at += size


def operators(model: bytes | memoryview) -> list[str]:
    """The operators of a model in their order."""
    graphs = [value for number, value in fields(memoryview(model)) if number == 7 and isinstance(value, memoryview)]
    nodes = [v for graph in graphs for number, v in fields(graph) if number == 1 and isinstance(v, memoryview)]
    return [bytes(v).decode() for node in nodes for n, v in fields(node) if n == 4 and isinstance(v, memoryview)]


def shapes(model: bytes | memoryview) -> dict[str, tuple[int, ...]]:
    """The shapes of a model's inputs, outputs and constants, by their names."""
    found: dict[str, tuple[int, ...]] = {}
    for number, graph in fields(memoryview(model)):
        if number != 7 or not isinstance(graph, memoryview):
            continue
        for kind, entry in fields(graph):
            if kind in (11, 12) and isinstance(entry, memoryview):  # a name, and a type with a shape of dimensions
                parts = dict(fields(entry))
                dimensions = _inner(_inner(_inner(parts[2], 1), 2), None)
                found[_name(parts[1])] = tuple(int(_inner(value, 1)) for value in dimensions)
            elif kind == 5 and isinstance(entry, memoryview):
                tensor = list(fields(entry))
                name = next(value for n, value in tensor if n == 8)
                found[_name(name)] = tuple(value for n, value in tensor if n == 1 and isinstance(value, int))
    return found


def _inner(message: Any, number: int | None) -> Any:
    """The value of a field of a message, or all its values."""
    parts = fields(message)
    return [value for _, value in parts] if number is None else next(value for n, value in parts if n == number)


def _name(value: Any) -> str:
    return bytes(value).decode()
