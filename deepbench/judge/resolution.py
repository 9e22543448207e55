"""How small a slowdown can this machine see now? From a run whose two sides are the same build.

Equal sides show two things: whether the gate calls a case slower although nothing has changed, and how wide the
interval of each ratio is. A slowdown that is smaller than this width can neither be found nor be excluded.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from deepbench.judge import gate
from deepbench.judge.compare import Comparison


@dataclass(frozen=True)
class Resolution:
    """What equal sides show."""

    cases: int
    """How many have an interval."""
    undecided: int
    """How many have none: too few processes, or disturbed."""
    share: float | None
    """The median over the cases of the largest slowdown that their intervals allow; None where most have none."""
    alarms: tuple[str, ...]
    """Cases that the gate would call slower."""

    def why_not(self, margin: float) -> str | None:
        """Why a gate with this margin would mislead here; None if it would not."""
        if self.alarms:
            return f"two equal builds differ here: {self.alarms[0]} would be called slower"
        if self.share is None:
            every = self.cases + self.undecided
            return f"other programs disturb this machine: {self.undecided} of {every} cases say nothing"
        if self.share > margin:
            least, wanted = percent(self.share), percent(margin)
            return f"this machine can tell slowdowns from {least} on at present; the margin is {wanted}"
        return None


def percent(share: float) -> str:
    """Such as `5 %` or `1.2 %`: a resolution is compared with margins of half a percent."""
    return f"{100 * share:.3g} %"


def resolution(comparison: Comparison, margin: float) -> Resolution:
    """Of the comparison of two equal sides."""
    verdict = gate.judge(comparison, margin)
    widths, undecided = [], 0
    for case in comparison.cases:
        if case.withheld or case.interval is None:
            undecided += 1
        else:
            low, high = case.interval
            widths.append(max(high - 1, 1 / low - 1))
    share = median(widths) if len(widths) > undecided else None
    return Resolution(len(widths), undecided, share, tuple(c.case for c in verdict.of(gate.REGRESSION)))
