"""Which groups of cases moved together? Many small changes of one kind are certain where no single one is.

A group has the cases of one operation, direction, precision and library. Its ratio is the geometric mean of the ratios
of its cases. The standard error of its logarithm is the larger of two: the one that follows from the errors of the
cases, and the one that follows from how much the cases differ from each other. The second keeps a group apart from a
single case that changed a lot. What a session adds is common to all cases, so that averaging does not reduce it.

The hypothesis is that the ratio is within the margin. Its p-values are corrected for the number of groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev

from deepbench.core import stats
from deepbench.judge.compare import LEVEL, ComparedCase, Comparison, mean_difference
from deepbench.judge.reasons import library_title

# With fewer cases, a group says no more than they do.
LEAST_CASES = 3


@dataclass(frozen=True)
class KindOfCases:
    """Cases of one kind, and how their times changed on average."""

    op: str
    direction: str
    precision: str
    library: str
    cases: Sequence[ComparedCase]
    difference: stats.Difference
    """The mean of the log ratios of the cases."""
    p: float
    """p-value of the hypothesis that the ratio is within the margin."""

    @property
    def ratio(self) -> float:
        """The geometric mean of the ratios: above 1, the second side is slower."""
        return math.exp(self.difference.mean)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the ratio, not corrected for the number of groups."""
        low, high = self.difference.interval(LEVEL)
        return math.exp(low), math.exp(high)

    @property
    def verdict(self) -> str:
        """What happened to the group if it moved."""
        return "slower" if self.difference.mean > 0 else "faster"

    @property
    def decided(self) -> int:
        """How many of its cases have the same verdict by themselves."""
        return sum(c.verdict == self.verdict for c in self.cases)


def moved_together(comparison: Comparison) -> list[KindOfCases]:
    """Groups that are slower or faster as a whole and have undecided cases: slower ones first, the largest on top."""
    groups = _groups(comparison)
    corrected = stats.benjamini_hochberg({i: min(1.0, comparison.looks * g.p) for i, g in enumerate(groups)})
    moved = [g for i, g in enumerate(groups) if corrected[i] < 1 - LEVEL and g.decided < len(g.cases)]
    return sorted(moved, key=lambda g: (g.verdict == "faster", -abs(g.difference.mean)))


def _groups(comparison: Comparison) -> list[KindOfCases]:
    """All groups of at least LEAST_CASES. Times that other programs may explain are left out."""
    by_kind: dict[tuple[str, str, str, str], list[ComparedCase]] = {}
    for c in comparison.cases:
        if c.difference is not None and not c.withheld and not c.is_disturbed and c.other_load is None:
            record = c.a.record
            kind = (record["op"], record["direction"], record["precision"], library_title(c.a, c.b))
            by_kind.setdefault(kind, []).append(c)
    return [
        KindOfCases(*kind, cases, *_tested(cases, comparison.between_sessions))
        for kind, cases in by_kind.items()
        if len(cases) >= LEAST_CASES
    ]


def _tested(cases: Sequence[ComparedCase], between_sessions: float) -> tuple[stats.Difference, float]:
    """The mean difference and its p-value, with the standard error that is more cautious."""
    differences = [c.difference for c in cases if c.difference is not None]
    by_errors = mean_difference(differences, between_sessions)
    variance, session_variance = stdev(d.mean for d in differences) ** 2 / len(cases), 2 * between_sessions**2
    total = variance + session_variance
    degrees_of_freedom = (len(cases) - 1) * (total / variance) ** 2 if variance else 1e6
    by_cases = stats.Difference(by_errors.mean, math.sqrt(total), min(1e6, degrees_of_freedom))
    tested = [(d, _p_beyond(d, cases[0].margin)) for d in (by_errors, by_cases)]
    return max(tested, key=lambda pair: (pair[1], pair[0].standard_error))


def _p_beyond(d: stats.Difference, margin: float) -> float:
    """p-value of the hypothesis that the ratio is within the margin; without a margin, that there is no difference."""
    effect, limit = abs(d.mean), math.log1p(margin)
    if effect <= limit:
        return 1.0
    if d.standard_error == 0:
        return 0.0
    return sum(stats.t_p_value((effect + x) / d.standard_error, d.degrees_of_freedom) / 2 for x in (-limit, limit))
