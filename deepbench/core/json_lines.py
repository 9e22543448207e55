"""Lines of JSON, and text from strangers made safe to print."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson


def to_line(line: Mapping[str, Any]) -> str:
    """One line of JSON, with its newline; refuses NaN and infinity, which JSON does not have."""
    return json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def from_line(text: str | bytes) -> Any:
    """The JSON value of a line; `ValueError` for what is not strict JSON, and for numbers beyond all others."""
    return orjson.loads(text)


def to_bytes(value: Any) -> bytes:
    """JSON as short as it gets, to tell equal values by."""
    return orjson.dumps(value)


def printable(text: str) -> str:
    """`text` without control characters: files and libraries are strangers, and a terminal obeys what it reads."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def sanitized(value: Any) -> Any:
    """A JSON value with every text in it printable; asked wherever a stranger's text comes in."""
    if isinstance(value, float | int):
        return value
    if isinstance(value, str):
        return value if value.isprintable() else printable(value)
    if isinstance(value, dict):
        return {sanitized(k): sanitized(v) for k, v in value.items()}
    if isinstance(value, list):
        return [sanitized(v) for v in value]
    return value
