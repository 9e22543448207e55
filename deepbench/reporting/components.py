"""A table of whole cases next to the sum of their parts (`judge/components.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from deepbench.core import units
from deepbench.judge.components import Component, wholes
from deepbench.reporting.cases import differing_places, place_cells, place_columns
from deepbench.reporting.notes import disturbed_sentences
from deepbench.reporting.table import LEAST_PROBLEM, Cell, Column, Table, number
from deepbench.results.summary import Summary


def table(summaries: Sequence[Summary]) -> Table:
    """One row per whole case and library."""
    found = wholes(summaries)
    shown = [whole.summary for whole in found]
    differing = differing_places(shown)
    rows: list[dict[str, Cell]] = []
    for whole in found:
        s, interval = whole.summary, whole.interval
        rows.append(
            {
                "problem": f"{s.record['op']} {s.problem_title}",
                "precision": s.record["precision"],
                **place_cells(s, differing),
                "library": s.library_title,
                "time": None if s.is_disturbed else s.time_s,
                "sum": whole.sum_s,
                "ratio": whole.ratio,
                "±": (interval[1] - interval[0]) / 2 / whole.ratio if interval and whole.ratio else None,
                "low": interval[0] if interval else None,
                "high": interval[1] if interval else None,
                "parts": " + ".join(_with_time(part) for part in whole.parts),
                "lacks": whole.lacks,
            }
        )
    columns = [
        *(Column("problem", least=LEAST_PROBLEM), Column("precision", title="type"), *place_columns(differing)),
        *(Column("library"), number("time", units.seconds), number("sum", units.seconds, "sum of parts")),
        *(number("ratio", units.significant, "whole / sum"), number("±", units.plus_minus, narrow=1)),
        Column("parts", narrow=2),
        *([Column("lacks", title="no ratio because", style="yellow")] if any(row["lacks"] for row in rows) else []),
    ]
    measured = [part.summary for whole in found for part in whole.parts if part.summary is not None]
    notes = [
        *disturbed_sentences([*shown, *measured]),
        "sum of parts: the same work as cases of its own on the same library, each as often as the whole needs it. "
        "whole / sum below 1: the whole is faster.",
        "±: half of the range of the ratio that the 95 % intervals of all times allow.",
        *(["To measure parts too: deepbench run … --with-parts"] if any(row["lacks"] for row in rows) else []),
    ]
    return Table(columns, rows, notes, more_for_programs=("low", "high"))


def _with_time(part: Component) -> str:
    """`2 × gemm 4096 × 50 × 1024 1.20 ms`."""
    return f"{part.title} {units.seconds(part.time_s)}" if part.time_s is not None else part.title
