"""Reads an ONNX file without the values of its weights, and limits what is in it before it is parsed.

Weights are most of a file, and their values are not needed. Small arrays keep them, because they may be sizes. Parts of
two bytes become objects of a hundred, so the parts are counted first.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

from deepbench.core.errors import BadInput
from deepbench.core.files import open_regular
from deepbench.core.json_lines import printable

# The largest that its format, Protocol Buffers, can be.
MOST_BYTES = 2**31 - 1

# A network of 30,000 operators has some 800,000 parts in 20 MB. Numbers of lists are parts, too.
MOST_PARTS = 1_500_000
MOST_REST_BYTES = 64 * 2**20

# Values of arrays with more bytes than this are left out: 1024 numbers, of at most 16 bytes.
MOST_VALUES_BYTES = 2**14

# Messages within messages.
MOST_DEPTH = 40

# How Protocol Buffers stores a value: as an integer, in 8 bytes, with its length before it, or in 4 bytes.
INTEGER, EIGHT, WITH_LENGTH, FOUR = 0, 1, 2, 5
_FIXED = {EIGHT: 8, FOUR: 4}


def read_onnx(onnx: Any, path: Path) -> Any:
    """The model in a file, without values of large arrays; `BadInput` for anything else."""
    name = printable(str(path))
    with open_regular(path, MOST_BYTES, "an ONNX file") as file:
        size = file.seek(0, 2)
        file.seek(0)
        try:
            content = _MessageReader(file, name).message(size, onnx.ModelProto.DESCRIPTOR)
            return onnx.load_model_from_string(bytes(content))
        except BadInput:
            raise
        except Exception as error:  # of Protocol Buffers, which has several
            raise BadInput(f"{name} is no ONNX file, or it is damaged ({type(error).__name__})") from None


class _MessageReader:
    """Copies messages from a file at its position, without values of large arrays."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.file, self.name = file, name
        self.parts = self.kept = 0

    def message(self, size: int, kind: Any, depth: int = 0) -> bytes | bytearray:
        """A message of so many bytes. `ValueError` or `IndexError` if the file is damaged."""
        if size <= MOST_VALUES_BYTES:  # no array in it is large
            whole = self._exactly(size)
            self._count(self._parts_of(whole, 0, size, kind, depth), size)
            return whole
        self._require_depth(depth)
        copied = bytearray()
        while size > 0:
            head, tag = self._integer()
            field = kind.fields_by_number.get(tag >> 3)
            if tag & 7 != WITH_LENGTH:
                value = self._integer()[0] if tag & 7 == INTEGER else self._exactly(_FIXED[tag & 7])
                self._count(1)
                copied += head + value
                size -= len(head) + len(value)
                continue
            length_bytes, length = self._integer()
            size -= len(head) + len(length_bytes) + length
            if size < 0:
                raise ValueError("a part is longer than what it is a part of")
            if field is None or (length > MOST_VALUES_BYTES and _is_values(kind, field)):
                self._count(1)
                self.file.seek(length, 1)
                continue
            if field.message_type is None:
                self._count(_values_in(field, length), length)
                copied += head + length_bytes + self._exactly(length)
            else:
                self._count(1)
                content = self.message(length, field.message_type, depth + 1)
                copied += head + _integer_bytes(len(content)) + content
        return copied

    def _parts_of(self, content: bytes, at: int, end: int, kind: Any, depth: int) -> int:
        """How many parts a message between two places has."""
        self._require_depth(depth)
        fields = kind.fields_by_number
        parts = 1
        while at < end:
            tag, at = _integer_at(content, at)
            stored_as = tag & 7
            if stored_as == WITH_LENGTH:
                length, at = _integer_at(content, at)
                field = fields.get(tag >> 3)
                if field is not None and field.message_type is not None:
                    parts += self._parts_of(content, at, at + length, field.message_type, depth + 1)
                else:
                    parts += 1 if field is None else _values_in(field, length)
                at += length
            elif stored_as == INTEGER:
                _, at = _integer_at(content, at)
                parts += 1
            else:
                at += _FIXED[stored_as]
                parts += 1
        if at > end:
            raise ValueError("a part is longer than what it is a part of")
        return parts

    def _require_depth(self, depth: int) -> None:
        if depth > MOST_DEPTH:
            raise BadInput(f"{self.name} has more than {MOST_DEPTH} messages within each other")

    def _count(self, parts: int, size: int = 0) -> None:
        self.parts += parts
        self.kept += size
        if self.parts > MOST_PARTS or self.kept > MOST_REST_BYTES:
            raise BadInput(
                f"{self.name} has more than {MOST_PARTS} parts or {MOST_REST_BYTES} bytes besides its weights; "
                "trace a smaller network"
            )

    def _integer(self) -> tuple[bytes, int]:
        """The bytes of an integer, and its value."""
        found = self._exactly(1)
        while found[-1] >= 0x80 and len(found) < 11:
            found += self._exactly(1)
        return found, _integer_at(found, 0)[0]

    def _exactly(self, count: int) -> bytes:
        found = self.file.read(count)
        if len(found) < count:
            raise ValueError("the file is cut off")
        return found


def _is_values(kind: Any, field: Any) -> bool:
    """Whether a field has the values of an array, such as `raw_data`."""
    return bool(kind.name == "TensorProto" and field.name.endswith("_data"))


def _values_in(field: Any, length: int) -> int:
    """How many values are in so many bytes at most: one text, or a list of numbers."""
    return 1 if field.cpp_type == field.CPPTYPE_STRING else length


def _integer_at(content: bytes, at: int) -> tuple[int, int]:
    """An integer, seven bits in each byte and the eighth where another follows, and where it ends."""
    value = content[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    for shift in range(7, 70, 7):
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("an integer of more than ten bytes")


def _integer_bytes(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
