"""Applications next to published machines: totals of these machines, and ratios to them.

Both sides of a ratio are sums over the same kernels. A kernel is a row of a suite in one direction and precision. Times
are seconds per call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any

from deepbench.judge import totals
from deepbench.judge.published import published_work
from deepbench.judge.totals import Row, SuiteKernel, Total
from deepbench.results import published
from deepbench.results.summary import Summary
from deepbench.results.work import Work

_Pair = tuple[Summary, Summary]
"""A kernel here, and on a published machine."""

_Place = tuple[Row, str]
"""The row of a suite that a kernel is, and the published precision with as many bits."""

_Cell = tuple[float | None, int, int]
"""Ratio of the time there to the time here, kernels compared, and kernels left out."""


def of_file(
    summaries: Sequence[Summary], here: Sequence[Total], name: str, named: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Published machines next to the totals of a file; without a common application only those that are `named`.

    `name` is that of the file: a published machine is not compared with itself. `applications` are the totals of the
    published machine. `common` has an entry per total of the file: the ratio of the published machine's time to the
    time here over the kernels that both have, the number of these kernels, and the number that was left out because
    the time here is disturbed. The entry is None where there is no common kernel. Cases count if their sizes and
    settings are those of the published results.
    """
    applications = {(t.suite, t.application) for t in here}
    if not applications:
        return []
    machines = [machine for machine in published.machines() if machine != name]
    theirs = {machine: _published(machine) for machine in machines}
    works = {id(s): _work_of(s) for s in summaries}
    compared = [s for s in summaries if works[id(s)] in _published_works()]
    ours: dict[totals.Kind, list[tuple[_Place, str, Summary]]] = {}
    for kernel, s in totals.kernel_times(compared).items():
        if s is not None:
            place = _row(kernel), published_work(s.work).precision
            ours.setdefault(kernel.kind, []).append((place, works[id(s)], s))
    found = []
    for machine, (sums, kernels) in theirs.items():
        there = [t for t in sums if machine in named or (t.suite, t.application) in applications]
        if there:
            pairs = {
                kind: [(s, other) for place, work, s in listed if (other := kernels.get((place, work)))]
                for kind, listed in ours.items()
            }
            common = [_cell(pairs.get(total.kind, ())) for total in here]
            year = published.year_of(machine)
            found.append({"name": machine, "year": year, "applications": [t.values() for t in there], "common": common})
    return found


@cache
def _published(machine: str) -> tuple[list[Total], dict[tuple[_Place, str], Summary]]:
    """The totals of a published machine, and its times by place and work."""
    summaries = published.summaries(machine)
    fastest = totals.fastest_times(summaries).items()
    times = {((_row(k), k.precision), _work_of(s)): s for k, s in fastest if s is not None}
    return totals.of_summaries(summaries), times


@cache
def _published_works() -> frozenset[str]:
    """What any published machine computed."""
    return frozenset(_work_of(s) for machine in published.machines() for s in published.summaries(machine))


def _row(kernel: SuiteKernel) -> Row:
    return kernel.suite, kernel.op, kernel.row, kernel.direction


def _work_of(s: Summary) -> str:
    """Sizes, direction, settings and published precision."""
    return _text_of(s.work)


@cache
def _text_of(work: Work) -> str:  # the published machines ran the same problems
    return published_work(work.without("device", "threads")).text


def _cell(pairs: Iterable[_Pair]) -> _Cell | None:
    """No ratio where most common kernels are disturbed; None without a common kernel."""
    common = list(pairs)
    trusted = [(here, there) for here, there in common if not here.is_disturbed]
    if not common:
        return None
    here_s, there_s = sum(here.time_s for here, _ in trusted), sum(there.time_s for _, there in trusted)
    ratio = there_s / here_s if here_s and 2 * len(trusted) >= len(common) else None
    return ratio, len(trusted), len(common) - len(trusted)
