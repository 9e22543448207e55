"""The lines of a result file that say what the machine can do at most."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class _Probe(TypedDict):
    case: str
    threads: int
    seconds: float
    at: str
    disturbed: NotRequired[bool]


class ComputeLimit(TypedDict):
    """The highest rate that any library reached in a precision."""

    what: Literal["compute"]
    precision: str
    device: str
    flop_per_s: float
    library: str
    case: str
    threads: int
    at: str
    seconds: NotRequired[float]
    """Files of earlier versions lack it."""
    disturbed: NotRequired[bool]


class MemoryLimit(_Probe):
    """The rate at which our loops read, copy or combine arrays of some size."""

    what: Literal["memory"]
    kind: Literal["read", "copy", "triad"]
    bytes: int
    bytes_per_s: float


class CallLimit(_Probe):
    """The shortest call of a library."""

    what: Literal["call"]
    backend: str
    library: str


Limit = ComputeLimit | MemoryLimit | CallLimit


def read_limit(line: dict[str, Any]) -> Limit | None:
    """The limit in a valid line of a result file; None for a header or a record.

    Earlier versions wrote compute limits as `roof`, or as `limit` without a device.
    """
    if "roof" in line:
        roof = line["roof"]
        return {
            "what": "compute",
            "precision": roof["precision"],
            "device": roof.get("device", "cpu"),
            "flop_per_s": roof["flop_per_s"],
            "library": roof["library"],
            "case": roof["case"],
            "threads": roof["threads"],
            "at": roof["at"],
        }
    limit: Limit | None = line.get("limit")
    if limit and limit["what"] == "compute":
        limit.setdefault("device", "cpu")
    return limit
