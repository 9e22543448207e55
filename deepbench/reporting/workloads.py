"""Which operations compute the definitions of others, and why some have none: tables and rows for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepbench.plan.workloads import Kernel
from deepbench.reporting.table import Cell, Column, Table, number


def coverage_rows(kernels: Sequence[Kernel]) -> list[dict[str, Any]]:
    """A row per definition. `cases` counts workloads that are cases here; `reasons` has the others."""
    return [
        {
            "definition": kernel.definition.name,
            "op_type": kernel.definition.op_type,
            "models": list(kernel.definition.tagged("model")),
            "stages": list(kernel.definition.tagged("stage")),
            "operation": kernel.op,
            "precision": kernel.precision,
            "workloads": kernel.workloads,
            "cases": len(kernel.wanted),
            "reasons": dict(kernel.reasons),
        }
        for kernel in kernels
    ]


def coverage_table(kernels: Sequence[Kernel]) -> Table:
    """The same for people, with the sums below."""
    columns = (
        Column("definition"),
        number("workloads"),
        number("cases"),
        Column("how", title="operation, or why there is none"),
    )
    rows: list[dict[str, Cell]] = [
        {
            "definition": kernel.definition.name,
            "workloads": kernel.workloads,
            "cases": len(kernel.wanted),
            "how": _how(kernel),
        }
        for kernel in kernels
    ]
    matched = sum(kernel.op is not None for kernel in kernels)
    workloads = sum(kernel.workloads for kernel in kernels)
    cases = sum(len(kernel.wanted) for kernel in kernels)
    notes = (
        f"{matched} of {len(kernels)} definitions match an operation.",
        f"{cases} of {workloads} workloads are cases here.",
    )
    return Table(columns, rows, notes)


def _how(kernel: Kernel) -> str:
    if kernel.op is None:
        return next(iter(kernel.reasons))
    others = [f"{count} not: {reason}" for reason, count in kernel.reasons.items()]
    return "; ".join([f"{kernel.op} {kernel.precision}", *others])
