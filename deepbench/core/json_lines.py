"""JSON Lines, and untrusted text made safe to print."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import orjson


def to_line(line: Mapping[str, Any]) -> str:
    """One line of JSON with its newline. `ValueError` for NaN and infinity, which JSON does not have."""
    return json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def from_line(text: str | bytes) -> Any:
    """The value of one line; `ValueError` if it is not strict JSON or contains a number that overflows."""
    return orjson.loads(text)


def to_bytes(value: Any) -> bytes:
    """Compact JSON; equal values give equal bytes."""
    return orjson.dumps(value)


def printable(text: str) -> str:
    """`text` with control characters replaced, because a terminal would obey them."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


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
