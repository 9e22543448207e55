"""The wire format of Protocol Buffers, as much as it takes to write small messages and to look into large ones.

https://protobuf.dev/programming-guides/encoding: a field is its number and its wire type, then a varint, eight or four
bytes, or a length and so many bytes.
"""

from __future__ import annotations

from collections.abc import Iterator


def varint(number: int) -> bytes:
    """A number of at least 0, seven bits per byte, the lowest first."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def varint_field(number: int, value: int) -> bytes:
    """A field with a number; negative ones have ten bytes, as in two's complement."""
    return varint(number << 3) + varint(value % 2**64)


def wire_field(number: int, content: bytes) -> bytes:
    """A field with bytes: a text, a message, or packed numbers."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message. `ValueError` if it is damaged."""
    at = 0
    while at < len(message):
        key, at = _varint_at(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint_at(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint_at(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of a message has the unknown wire type {kind}")
        if size > len(message) - at:
            raise ValueError("a message ends within a field")
        yield key >> 3, message[at : at + size]
        at += size


def varints(packed: bytes) -> Iterator[int]:
    """Numbers one after the other. `ValueError` if they are damaged."""
    at = 0
    while at < len(packed):
        value, at = _varint_at(packed, at)
        yield value


def delimited(content: bytes) -> Iterator[bytes]:
    """Messages one after the other, each with its length before it. `ValueError` if they are damaged."""
    at = 0
    while at < len(content):
        size, at = _varint_at(content, at)
        if size > len(content) - at:
            raise ValueError("the last message is cut off")
        yield content[at : at + size]
        at += size


def _varint_at(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("a message ends within a number")
        byte = message[at]
        value, at = value | (byte & 0x7F) << shift, at + 1
        if byte < 0x80:
            return value, at
    raise ValueError("a number of a message is longer than ten bytes")
