"""Which operations compute the definitions of others, and why some have none: tables and rows for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepbench.plan.foreign import Coverage
from deepbench.reporting.table import Cell, Column, Table, number


def coverage_rows(definitions: Sequence[Coverage]) -> list[dict[str, Any]]:
    """A row per definition. `cases` counts workloads that are cases here; `reasons` has the others."""
    return [
        {
            "definition": d.definition,
            "op_type": d.op_type,
            "models": list(d.models),
            "stages": list(d.stages),
            "operation": d.op,
            "precision": d.precision,
            "workloads": d.workloads,
            "cases": len(d.problems),
            "reasons": dict(d.reasons),
        }
        for d in definitions
    ]


def coverage_table(definitions: Sequence[Coverage]) -> Table:
    """The same for people, with the sums below."""
    how = Column("how", title="operation, or why there is none")
    columns = (Column("definition"), number("workloads"), number("cases"), how)
    rows: list[dict[str, Cell]] = [
        {"definition": d.definition, "workloads": d.workloads, "cases": len(d.problems), "how": _how(d)}
        for d in definitions
    ]
    matched = sum(d.op is not None for d in definitions)
    workloads = sum(d.workloads for d in definitions)
    cases = sum(len(d.problems) for d in definitions)
    notes = (
        f"{matched} of {len(definitions)} definitions match an operation.",
        f"{cases} of {workloads} workloads are cases here.",
    )
    return Table(columns, rows, notes)


def _how(d: Coverage) -> str:
    if d.op is None:
        return next(iter(d.reasons))
    others = [f"{count} not: {reason}" for reason, count in d.reasons.items()]
    return "; ".join([f"{d.op} {d.precision}", *others])
