"""Record: one line of a result file, and the format's history.

    deepbench/1    first format. Line 1 is a header; then records, and roofs and limits as they are measured.

A line of a file is one JSON object. The header has `schema`, a record has `case`, a roof has `roof`, a limit `limit`.
The JSON Schema in `schema.json` describes all four; `docs/results.md` tells each field with its unit.
"""

from __future__ import annotations

from typing import Any

from deepbench.core.case import Case
from deepbench.core.op import find_op

SCHEMA = "deepbench/1"

STATUSES = (
    "ok",
    "wrong",
    "unchecked",
    "unsupported",
    "unavailable",
    "out_of_memory",
    "crashed",
    "timeout",
    "interrupted",
)

# With one of these a case has a time.
MEASURED = ("ok", "unchecked")

# A record is a dictionary, because it is read from files that others wrote and goes back to JSON as it is.
Record = dict[str, Any]


def make_record(case: Case, round_number: int, status: str, reason: str | None = None) -> Record:
    """The record of a case before anything was measured: who it is and how much work it would be."""
    op = find_op(case.op)
    return {
        "case": case.text,
        "round": round_number,
        "status": status,
        "reason": reason,
        "op": case.op,
        "problem": case.problem.values,
        "direction": case.direction,
        "precision": case.precision.name,
        "types": {**case.precision.types(), "result": op.result_type(case)},
        "backend": case.backend,
        "threads": case.threads,
        "settings": case.settings,
        "flop": op.flop(case),
        "other_flop": op.other_flop(case),
        "traffic_bytes": op.traffic_bytes(case),
        "sources": [],
        "check": {"before": None, "after": None},
        "measurement": None,
        "library": None,
        "notes": {},
        "process": None,
        "warnings": [],
    }


def make_warning(code: str, text: str) -> dict[str, str]:
    """Something a reader should know about a record that is still valid."""
    return {"code": code, "text": text}
