"""Whole cases next to the sum of their parts: what a library gains, or loses, by doing the work as one.

The parts of a case are the cases of `Op.components`, on the same library, read from the same file. Nothing is compared
where a part is missing or its time is not trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepbench.core.case import Case, parse_case
from deepbench.core.errors import BadInput
from deepbench.results.summary import Summary


@dataclass(frozen=True)
class Component:
    """A part of a whole: the work that it stands for, how often, and what the file knows about it."""

    case: Case
    count: int
    summary: Summary | None

    @property
    def title(self) -> str:
        """`2 × gemm 4096 × 50 × 1024`."""
        problem = self.case.operation.title(self.case.problem)
        direction = "" if self.case.direction == "forward" else f" {self.case.direction}"
        return f"{f'{self.count} × ' if self.count > 1 else ''}{self.case.op} {problem}{direction}"

    @property
    def time_s(self) -> float | None:
        """The time of all its calls; None where it is missing or not trusted."""
        s = self.summary
        return None if s is None or not s.is_ranked or s.is_disturbed else self.count * s.time_s

    @property
    def lacks(self) -> str | None:
        """Why there is no such time, in words."""
        if self.time_s is not None:
            return None
        if self.summary is None:
            return f"not in this file: {self.case.text}"
        return f"{'disturbed' if self.summary.is_disturbed else self.summary.status}: {self.case.text}"


@dataclass(frozen=True)
class Whole:
    """A measured case whose work can be done piece by piece."""

    summary: Summary
    parts: tuple[Component, ...]

    @property
    def sum_s(self) -> float | None:
        """The sum of the parts; None where one of them has no trusted time."""
        times = [part.time_s for part in self.parts]
        known = [time_s for time_s in times if time_s is not None]
        return sum(known) if len(known) == len(times) else None

    @property
    def ratio(self) -> float | None:
        """Time of the whole over the sum of its parts; below 1, the whole is faster."""
        return None if self.sum_s is None or self.summary.is_disturbed else self.summary.time_s / self.sum_s

    @property
    def interval(self) -> tuple[float, float] | None:
        """The least and the largest ratio that the 95 % intervals of all times allow; None where one is missing.

        Intervals of one process do not count: they are too narrow.
        """
        estimates = [(1, self.summary), *((part.count, part.summary) for part in self.parts)]
        bounds = [
            (count * s.estimate.low_s, count * s.estimate.high_s)
            for count, s in estimates
            if s is not None and s.estimate is not None and not s.single_process
            if s.estimate.low_s is not None and s.estimate.high_s is not None
        ]
        if self.ratio is None or len(bounds) < len(estimates):
            return None
        low_s, high_s = (sum(bound[i] for bound in bounds[1:]) for i in (0, 1))
        return bounds[0][0] / high_s, bounds[0][1] / low_s

    @property
    def lacks(self) -> str | None:
        """Why there is no ratio."""
        whole = ["the whole is disturbed"] if self.summary.is_disturbed else []
        return "; ".join(filter(None, [*whole, *(part.lacks for part in self.parts)])) or None


def wholes(summaries: Sequence[Summary]) -> list[Whole]:
    """Every case with a time that has parts, in the order of the file."""
    by_text: Mapping[str, Summary] = {s.record["case"]: s for s in summaries}
    found = []
    for s in summaries:
        parts = _components(s) if s.is_ranked and not s.imported else {}
        if parts:
            found.append(Whole(s, tuple(Component(case, n, by_text.get(case.text)) for case, n in parts.items())))
    return found


def _components(s: Summary) -> Mapping[Case, int]:
    """The parts of a case; none of an operation that this version does not have."""
    try:
        case = parse_case(s.record["case"])
        return case.operation.components(case)
    except BadInput:
        return {}
