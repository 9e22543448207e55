"""FlatBuffers without their compiler: tables as numbered fields, written from the root down, and read again.

A reference is an offset forward, so a table comes before what it refers to. Its fields are found by a table of offsets
(vtable) before it. https://flatbuffers.dev/internals describes the format.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

# What begins the file: the offset of the root, and four letters that name the format.
HEAD = 8


@dataclass(frozen=True)
class Number:
    """A number in a table. `kind` is a letter of `struct`: `b`, `B`, `i`, `I` or `f`."""

    kind: str
    value: float


@dataclass(frozen=True)
class Numbers:
    """A vector of numbers, or of bytes, whose first element lies at a multiple of `align`."""

    kind: str
    values: Sequence[float] | bytes
    align: int = 4


Table: TypeAlias = "Mapping[int, Value]"
Value: TypeAlias = "Number | Numbers | Sequence[Table] | Mapping[int, Value]"


def text(value: str) -> Numbers:
    """A text, which ends with a zero that its length does not count."""
    return Numbers("s", value.encode())


def written(root: Table, identifier: bytes) -> bytes:
    """A file with this root."""
    out = bytearray(HEAD)
    out[4:HEAD] = identifier
    _refer(out, 0, root)
    return bytes(out)


def _refer(out: bytearray, position: int, value: Value) -> None:
    """Append a value, and write at `position` how far it is from there."""
    place = _append(out, value)
    struct.pack_into("<I", out, position, place - position)


def _append(out: bytearray, value: Value) -> int:
    """Append a table or a vector; its place."""
    if isinstance(value, Mapping):
        return _append_table(out, value)
    assert not isinstance(value, Number), "numbers lie in their table"
    align = value.align if isinstance(value, Numbers) else 4
    out.extend(bytes(-(len(out) + 4) % align))
    place, count = len(out), len(value.values if isinstance(value, Numbers) else value)
    out.extend(struct.pack("<I", count))
    if isinstance(value, Numbers):
        is_bytes = isinstance(value.values, bytes)
        out.extend(value.values if is_bytes else struct.pack(f"<{count}{value.kind}", *value.values))  # type: ignore[arg-type]
        out.extend(bytes(value.kind == "s"))
        out.extend(bytes(-len(out) % 4))
        return place
    first = len(out)
    out.extend(bytes(4 * count))
    for i, part in enumerate(value):
        _refer(out, first + 4 * i, part)
    return place


def _append_table(out: bytearray, table: Table) -> int:
    """Every field has four bytes, whatever it needs."""
    count = max(table, default=-1) + 1
    numbered = sorted(table)
    offsets = [4 + 4 * numbered.index(i) if i in table else 0 for i in range(count)]
    size = 4 + 4 * len(table)
    out.extend(bytes(-(len(out) + 4 + 2 * count) % 4))
    start = len(out)
    out.extend(struct.pack(f"<{2 + count}H", 4 + 2 * count, size, *offsets))
    place = len(out)
    out.extend(struct.pack("<i", place - start))
    out.extend(bytes(size - 4))
    for i in numbered:
        value, position = table[i], place + offsets[i]
        if isinstance(value, Number):
            struct.pack_into(f"<{value.kind}", out, position, value.value)
        else:
            _refer(out, position, value)
    return place


@dataclass(frozen=True)
class TableReader:
    """A table of a file."""

    content: bytes
    place: int

    @classmethod
    def root(cls, content: bytes) -> TableReader:
        """The first table of a file."""
        return cls(content, *struct.unpack_from("<I", content, 0))

    def _field(self, number: int) -> int | None:
        (back,) = struct.unpack_from("<i", self.content, self.place)
        (size,) = struct.unpack_from("<H", self.content, self.place - back)
        if 4 + 2 * number >= size:
            return None
        (offset,) = struct.unpack_from("<H", self.content, self.place - back + 4 + 2 * number)
        return self.place + offset if offset else None

    def _vector(self, number: int) -> tuple[int, int]:
        """The place of the first element, and how many there are."""
        field = self._field(number)
        if field is None:
            return 0, 0
        place = field + struct.unpack_from("<I", self.content, field)[0]
        return place + 4, struct.unpack_from("<I", self.content, place)[0]

    def number(self, number: int, kind: str = "i") -> int | None:
        """A whole number; None: it is absent."""
        field = self._field(number)
        return None if field is None else int(struct.unpack_from(f"<{kind}", self.content, field)[0])

    def table(self, number: int) -> TableReader:
        """A table that is present."""
        field = self._field(number)
        assert field is not None, "the file is ours and has it"
        return TableReader(self.content, field + struct.unpack_from("<I", self.content, field)[0])

    def tables(self, number: int) -> list[TableReader]:
        """A vector of tables."""
        first, count = self._vector(number)
        places = [first + 4 * i for i in range(count)]
        return [TableReader(self.content, p + struct.unpack_from("<I", self.content, p)[0]) for p in places]

    def numbers(self, number: int, kind: str = "i") -> list[int]:
        """A vector of whole numbers."""
        first, count = self._vector(number)
        return list(struct.unpack_from(f"<{count}{kind}", self.content, first))

    def text(self, number: int) -> str:
        """A text."""
        first, count = self._vector(number)
        return self.content[first : first + count].decode()
