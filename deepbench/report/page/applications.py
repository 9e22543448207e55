"""Applications next to published machines: totals of these machines, and ratios to them.

Both sides of a ratio are sums over the same kernels. A kernel is a row of a suite in one direction and precision. Times
are seconds per call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from deepbench.core.op import find_op
from deepbench.plan.suites import read_suite
from deepbench.report.views import kernel_times
from deepbench.results import published
from deepbench.results.published import Result
from deepbench.results.summary import Summary

_Row = tuple[str, str, int, str]
"""Suite, operation, row of the suite and direction."""

_Kind = tuple[str, str, str, int | None]
"""Suite, application, precision and number of threads; published results state no number."""

_Total = Mapping[str, Any]
"""A row of `views.by_application`."""

_Cell = tuple[float | None, int, int]
"""Ratio of the time there to the time here, kernels compared, and kernels left out."""


@dataclass(frozen=True)
class _Pair:
    """The times of one kernel here and on a published machine."""

    here_s: float
    there_s: float
    disturbed: bool
    """Whether the time here is not trusted."""


def of_file(summaries: Sequence[Summary], totals: Sequence[_Total]) -> list[dict[str, Any]]:
    """Published machines next to the totals of `views.by_application`; those without a common kernel are left out.

    `cells` has an entry per total: the ratio of the published machine's time to the time here, the number of kernels
    that were compared, and the number that was left out because the time here is disturbed. The entry is None where
    there is no common kernel. Cases count if their sizes and settings are those of the published results.
    """
    suites = {sheet.suite for sheet in published.sheets()}
    listed = (s for s in summaries if any(source["suite"] in suites for source in s.record["sources"]))
    kernels: dict[_Kind, list[tuple[_Row, Summary]]] = {}
    for kernel, s in kernel_times([s for s in listed if any(_is_as_published(s, row) for row in _rows_of(s))]).items():
        row = kernel.suite, kernel.op, kernel.row, kernel.direction
        if s is not None and _is_as_published(s, row):
            kind = kernel.suite, kernel.application, kernel.precision, kernel.threads
            kernels.setdefault(kind, []).append((row, s))
    if not kernels:
        return []

    def cell(total: _Total, machine: str) -> _Cell | None:
        precisions = [p for p, ours in published.PRECISIONS.items() if total["precision"] in ours]
        return _cell(
            _Pair(s.time_s, there.time_s, s.is_disturbed)
            for row, s in kernels.get(_kind_of(total), ())
            if (there := _fastest(machine, row, precisions))
        )

    return _compared(totals, published.machines(), cell)


def of_machine(machine: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The totals of a published machine in the form of `views.by_application`, and the other machines as in `of_file`.

    Gradients of a recurrent layer count as one kernel, and only where both were published.
    """
    kernels: dict[_Kind, dict[_Row, Result]] = {}
    for (row, precision), result in _results(machine).items():
        suite, op, number, direction = row
        application = _kernels_of(suite).get((op, number, direction))
        if application:
            kernels.setdefault((suite, application, precision, None), {})[row] = result
    totals: list[dict[str, Any]] = []
    for (suite, application, precision, threads), results in kernels.items():
        count = Counter(_kernels_of(suite).values())[application]
        totals.append(
            {
                "suite": suite,
                "application": application,
                "precision": precision,
                "threads": threads,
                "kernels": count,
                "measured": len(results),
                "disturbed": 0,
                "time": sum(r.time_s for r in results.values()),
                "share": None,
                "of which": None,
                "coverage": f"{len(results)} of {count} kernels",
            }
        )
    totals.sort(key=lambda total: (total["suite"], total["precision"], -total["time"]))

    def cell(total: _Total, other: str) -> _Cell | None:
        return _cell(
            _Pair(r.time_s, there.time_s, False)
            for row, r in kernels[_kind_of(total)].items()
            if (there := _fastest(other, row, [total["precision"]]))
        )

    return totals, _compared(totals, [m for m in published.machines() if m != machine], cell)


def _kind_of(total: _Total) -> _Kind:
    return total["suite"], total["application"], total["precision"], total["threads"]


def _compared(
    totals: Sequence[_Total], machines: Iterable[str], cell: Callable[[_Total, str], _Cell | None]
) -> list[dict[str, Any]]:
    found = []
    for machine in machines:
        cells = [cell(total, machine) for total in totals]
        if any(cells):
            year = max(s.year for s in published.sheets() if s.machine == machine)
            found.append({"name": machine, "year": year, "cells": cells})
    return found


def _cell(pairs: Iterable[_Pair]) -> _Cell | None:
    """No ratio where most common kernels are disturbed; None without a common kernel."""
    common = list(pairs)
    trusted = [pair for pair in common if not pair.disturbed]
    if not common:
        return None
    here_s, there_s = sum(pair.here_s for pair in trusted), sum(pair.there_s for pair in trusted)
    ratio = there_s / here_s if here_s and 2 * len(trusted) >= len(common) else None
    return ratio, len(trusted), len(common) - len(trusted)


def _fastest(machine: str, row: _Row, precisions: Iterable[str]) -> Result | None:
    results = _results(machine)
    found = [results[row, precision] for precision in precisions if (row, precision) in results]
    return min(found, key=lambda r: r.time_s, default=None)


def _rows_of(s: Summary) -> list[_Row]:
    r = s.record
    return [(source["suite"], r["op"], source["row"], r["direction"]) for source in r["sources"]]


def _is_as_published(s: Summary, row: _Row) -> bool:
    """Whether a case has the sizes and settings with which this row was published."""
    result = _published_rows().get(row)
    return result is not None and (s.work.problem, s.work.settings) == _work_of(result)


@cache
def _results(machine: str) -> dict[tuple[_Row, str], Result]:
    """The fastest result of a published machine for each row of a suite and precision."""
    results: dict[tuple[_Row, str], Result] = {}
    for r in published.of_machine(machine):
        key = (r.suite, r.op, r.row, r.direction), r.precision
        if r.direction != published.TOTAL and (key not in results or r.time_s < results[key].time_s):
            results[key] = r
    return results


@cache
def _published_rows() -> dict[_Row, Result]:
    """Rows of suites that any machine has a result of, with one of these results: all ran the same sizes."""
    return {row: r for machine in published.machines() for (row, _), r in _results(machine).items()}


def _work_of(r: Result) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The sizes and settings of a result, as `Work` has them."""
    return tuple(r.values.text.split()), tuple(f"{name}={value}" for name, value in r.settings.items())


@cache
def _kernels_of(suite: str) -> dict[tuple[str, int, str], str]:
    """The application of each kernel of a suite that counts, by operation, row and direction."""
    kernels: dict[tuple[str, int, str], str] = {}
    for entry in read_suite(suite):
        op, source = find_op(entry.pattern.op), entry.source
        if source and source["application"] and source.get("needed", True) and not op.is_group:
            kernels[op.name, source["row"], entry.pattern.direction or "forward"] = source["application"]
    return kernels
