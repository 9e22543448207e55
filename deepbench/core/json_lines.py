"""JSON Lines, their checksums, and untrusted text made safe to print."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

import orjson

# The last member of a line with a checksum, up to its value of eight hexadecimal digits.
CHECKSUM = b',"crc32":"'


def to_line(line: Mapping[str, Any]) -> str:
    """One line of JSON with its newline. `ValueError` for NaN and infinity, which JSON does not have."""
    return json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def from_line(text: str | bytes) -> Any:
    """The value of one line; `ValueError` if it is not strict JSON or contains a number that overflows."""
    return orjson.loads(text)


def to_bytes(value: Any) -> bytes:
    """Compact JSON; equal values give equal bytes. Kinds of float, such as an upper bound, are plain numbers."""
    return orjson.dumps(value, default=_plain_float)


def _plain_float(value: Any) -> float:
    if not isinstance(value, float):
        raise TypeError(f"{type(value).__name__} has no form in JSON")
    return float(value)


def with_checksum(line: bytes) -> bytes:
    """A JSON object with one more member, the last: the CRC-32 of the bytes before the comma of that member."""
    body = line.removesuffix(b"}")
    return body + _checksum(body)


def without_checksum(line: bytes, required: bool) -> bytes:
    """The object before `with_checksum`; `ValueError` if its bytes have changed, or if a `required` checksum lacks."""
    at = len(line) - len(_checksum(b""))
    if not line.startswith(CHECKSUM, max(at, 0)):
        if required:
            raise ValueError("no checksum: the line is damaged")
        return line
    body = line[:at]
    if line[at:] != _checksum(body):
        raise ValueError("its checksum does not match: the line is damaged")
    return body + b"}"


def _checksum(body: bytes) -> bytes:
    return b'%s%08x"}' % (CHECKSUM, zlib.crc32(body))


def printable(text: str) -> str:
    """`text` with control characters replaced, because a terminal would obey them, and with invisible ones."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def printable_lines(text: str) -> str:
    """`text` with all control characters replaced but the ends of lines."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def sanitized(value: Any) -> Any:
    """A JSON value with every string in it made printable, and without NaN and infinity, which JSON does not have.

    Apply it to all untrusted input.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if value.isprintable() else printable(value)
    if isinstance(value, dict):
        return {sanitized(k): sanitized(v) for k, v in value.items()}
    if isinstance(value, list):
        return [sanitized(v) for v in value]
    return value
