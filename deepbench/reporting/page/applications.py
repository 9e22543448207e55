"""Applications next to published machines: totals of these machines, and ratios to them.

Both sides of a ratio are sums over the same kernels. A kernel is a row of a suite in one direction and precision. Times
are seconds per call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from deepbench.reporting import totals
from deepbench.reporting.totals import Kind, Row, Total
from deepbench.results import published
from deepbench.results.published import Result
from deepbench.results.summary import Summary

_Cell = tuple[float | None, int, int]
"""Ratio of the time there to the time here, kernels compared, and kernels left out."""


@dataclass(frozen=True)
class _Pair:
    """The times of one kernel here and on a published machine."""

    here_s: float
    there_s: float
    disturbed: bool
    """Whether the time here is not trusted."""


def of_file(summaries: Sequence[Summary], here: Sequence[Total]) -> list[dict[str, Any]]:
    """Published machines next to the totals of a file; those without a common application are left out.

    `applications` are the totals of the published machine. `common` has an entry per total of the file: the ratio of
    the published machine's time to the time here over the kernels that both have, the number of these kernels, and the
    number that was left out because the time here is disturbed. The entry is None where there is no common kernel.
    Cases count if their sizes and settings are those of the published results.
    """
    suites = {sheet.suite for sheet in published.sheets()}
    listed = (s for s in summaries if any(source["suite"] in suites for source in s.record["sources"]))
    as_published = [s for s in listed if any(_is_as_published(s, row) for row in _rows_of(s))]
    kernels: dict[Kind, list[tuple[Row, Summary]]] = {}
    for kernel, s in totals.kernel_times(as_published).items():
        row = kernel.suite, kernel.op, kernel.row, kernel.direction
        if s is not None and _is_as_published(s, row):
            kernels.setdefault(kernel.kind, []).append((row, s))

    def cell(total: Total, machine: str) -> _Cell | None:
        precisions = [p for p, ours in published.PRECISIONS.items() if total.precision in ours]
        return _cell(
            _Pair(s.time_s, there.time_s, s.is_disturbed)
            for row, s in kernels.get(total.kind, ())
            if (there := _fastest(machine, row, precisions))
        )

    return _compared(here, published.machines(), cell)


def of_machine(machine: str) -> list[dict[str, Any]]:
    """The other published machines next to the totals of one of them, as in `of_file`."""
    kernels = totals.published_kernels(machine)

    def cell(total: Total, other: str) -> _Cell | None:
        return _cell(
            _Pair(r.time_s, there.time_s, False)
            for row, r in kernels[total.kind].items()
            if (there := _fastest(other, row, [total.precision]))
        )

    return _compared(totals.of_published(machine), [m for m in published.machines() if m != machine], cell)


def _compared(
    here: Sequence[Total], machines: Iterable[str], cell: Callable[[Total, str], _Cell | None]
) -> list[dict[str, Any]]:
    applications = {(t.suite, t.application) for t in here}
    found = []
    for machine in machines:
        there = [t for t in totals.of_published(machine) if (t.suite, t.application) in applications]
        if there:
            year = max(s.year for s in published.sheets() if s.machine == machine)
            common = [cell(total, machine) for total in here]
            found.append({"name": machine, "year": year, "applications": [t.values() for t in there], "common": common})
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


def _fastest(machine: str, row: Row, precisions: Iterable[str]) -> Result | None:
    results = totals.published_results(machine)
    found = [results[row, precision] for precision in precisions if (row, precision) in results]
    return min(found, key=lambda r: r.time_s, default=None)


def _rows_of(s: Summary) -> list[Row]:
    r = s.record
    return [(source["suite"], r["op"], source["row"], r["direction"]) for source in r["sources"]]


def _is_as_published(s: Summary, row: Row) -> bool:
    """Whether a case has the sizes and settings with which this row was published."""
    result = _published_rows().get(row)
    return result is not None and (s.work.problem, s.work.settings) == _work_of(result)


@cache
def _published_rows() -> dict[Row, Result]:
    """Rows of suites that any machine has a result of, with one of these results: all ran the same sizes."""
    return {row: r for machine in published.machines() for (row, _), r in totals.published_results(machine).items()}


def _work_of(r: Result) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The sizes and settings of a result, as `Work` has them."""
    return tuple(r.values.text.split()), tuple(f"{name}={value}" for name, value in r.settings.items())
