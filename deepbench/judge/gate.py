"""Is anything slower than before? Yes (regression), no (passed), or undecided.

A case is a regression if its ratio is beyond the margin and its one-sided p-value is below 5 %, corrected by Holm's
method: 5 % of all comparisons of unchanged code report any regression. A case that was measured before and fails now is
a regression too. A case passes if the upper end of the 95 % confidence interval of its ratio is within the margin.
"""

from __future__ import annotations

import xml.etree.ElementTree as xml
from collections.abc import Sequence
from dataclasses import dataclass

from deepbench.core import stats, units
from deepbench.core.units import minutes
from deepbench.judge.compare import IMPORTED, IN_TURN, LEVEL, QUIET_MACHINE, ROUNDS, ComparedCase, Comparison
from deepbench.judge.reasons import Reason

# Larger than the margin of a comparison, because every commit passes the gate.
MARGIN = 0.05

# Of what differs, a line about a regression names so much.
MOST_REASONS = 2

PASSED, REGRESSION, CANNOT_TELL = "passed", "regression", "cannot tell"
EXIT = {PASSED: 0, REGRESSION: 1, CANNOT_TELL: 2}


@dataclass(frozen=True)
class CaseOutcome:
    """The verdict on one case."""

    case: str
    verdict: str
    reason: str
    compared: ComparedCase | None
    """None if the case has no time any more."""
    is_lost: bool = False
    """Whether it is no slower time, but none: the case was not measured again, or fails."""


@dataclass(frozen=True)
class GateVerdict:
    """The verdict on all cases."""

    cases: list[CaseOutcome]

    @property
    def verdict(self) -> str:
        """The worst of all verdicts."""
        verdicts = {c.verdict for c in self.cases}
        return next((v for v in (REGRESSION, CANNOT_TELL) if v in verdicts), PASSED)

    @property
    def exit_code(self) -> int:
        """0 passed, 1 regression, 2 undecided."""
        return EXIT[self.verdict]

    def of(self, verdict: str) -> list[CaseOutcome]:
        """Cases with this verdict."""
        return [c for c in self.cases if c.verdict == verdict]


def judge(comparison: Comparison, margin: float = MARGIN) -> GateVerdict:
    """The verdict on every case that the first side measured."""
    differences = {c.case: c.difference for c in comparison.cases if c.difference is not None and not c.withheld}
    # One-sided: the hypothesis is that the second side is not slower.
    one_sided = {case: d.p / 2 if d.mean > 0 else 1 - d.p / 2 for case, d in differences.items()}
    p_values = stats.holm({case: min(1.0, comparison.looks * p) for case, p in one_sided.items()})
    broken = [CaseOutcome(case, REGRESSION, reason, None, is_lost=True) for case, reason in comparison.broken.items()]
    judged = [_judge(c, p_values.get(c.case), margin, comparison.reasons_of(c)) for c in comparison.cases]
    return GateVerdict(broken + judged)


def _judge(c: ComparedCase, p: float | None, margin: float, reasons: Sequence[Reason]) -> CaseOutcome:
    if c.withheld:
        return CaseOutcome(c.case, CANNOT_TELL, c.withheld, c)
    if c.interval is None or p is None:
        return CaseOutcome(c.case, CANNOT_TELL, f"one process per side: significance unknown{_advice(c)}", c)
    low, high = c.interval
    words = units.faster_or_slower
    ratio = f"{words(c.ratio)} (95 % interval: {' to '.join(map(words, units.by_factor(low, high)))})"
    load_a, load_b = c.other_load or (0.0, 0.0)
    load = f"but other programs used {load_a:.1f} CPUs during the first side and {load_b:.1f} during the second"
    if p < 1 - LEVEL and c.ratio > 1 + margin:
        if load_b > load_a:
            return CaseOutcome(c.case, CANNOT_TELL, f"{ratio}, {load}", c)
        texts = [f"{ratio}, {'p < 1e-6' if p < 1e-6 else f'p = {p:.2g}'}", *(r.text for r in reasons[:MOST_REASONS])]
        return CaseOutcome(c.case, REGRESSION, "; ".join(texts), c)
    if high <= 1 + margin:
        if load_a > load_b:  # with less load the first side would have been faster
            return CaseOutcome(c.case, CANNOT_TELL, f"{ratio}, {load}", c)
        if c.slow_processes and c.b.slow_processes:
            return CaseOutcome(c.case, CANNOT_TELL, f"{ratio}, but {c.slow_processes}", c)
        return CaseOutcome(c.case, PASSED, ratio, c)
    return CaseOutcome(c.case, CANNOT_TELL, f"{ratio}, the limit is {words(1 + margin)}{_advice(c)}", c)


def _advice(c: ComparedCase) -> str:
    if c.advice == ROUNDS and c.seconds_to_decide is not None:
        return f"; --rounds {c.rounds_to_decide} would probably decide, which takes {minutes(c.seconds_to_decide)}"
    ways = {
        IN_TURN: "; more rounds would not decide within an hour: measure both sides in heats (run --against)",
        QUIET_MACHINE: "; more rounds would not decide within an hour: measure on an idle machine",
        IMPORTED: f"; {c.imported} measured a side: measure both sides with DeepBench (deepbench run)",
    }
    return ways.get(c.advice or "", "")


def after_rerun(outcome: GateVerdict, rerun: GateVerdict) -> GateVerdict:
    """The outcome after the regressions were measured again: only the new measurement counts for them.

    Old and new data together would keep the accident that made a case look slow.
    """
    new = {c.case: c for c in rerun.cases}
    return GateVerdict([new.get(c.case, c) if c.verdict == REGRESSION else c for c in outcome.cases])


def junit(outcome: GateVerdict, seconds: float = 0.0) -> str:
    """JUnit XML: a regression is a failure, `cannot tell` is skipped."""
    suite = xml.Element(
        "testsuite",
        name="deepbench gate",
        tests=str(len(outcome.cases)),
        failures=str(len(outcome.of(REGRESSION))),
        skipped=str(len(outcome.of(CANNOT_TELL))),
        time=f"{seconds:.3f}",
    )
    for c in outcome.cases:
        case = xml.SubElement(suite, "testcase", classname=f"deepbench.{c.case.partition(' ')[0]}", name=c.case)
        if c.verdict == PASSED:
            xml.SubElement(case, "system-out").text = c.reason
        else:
            xml.SubElement(case, "failure" if c.verdict == REGRESSION else "skipped", message=c.reason)
    xml.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(suite, encoding="unicode") + "\n"


def sentences(outcome: GateVerdict, most: int = 20) -> list[str]:
    """The verdict, then the cases that did not pass, the worst first, `most` of each verdict."""
    regressions = outcome.of(REGRESSION)
    lost = sum(c.is_lost for c in regressions)
    numbers = {
        "slower": len(regressions) - lost,
        "not measured": lost,
        "undecided": len(outcome.of(CANNOT_TELL)),
        "passed": len(outcome.of(PASSED)),
    }
    counts = [f"{number} {name}" for name, number in numbers.items() if number]
    verdicts = {PASSED: "no regression", REGRESSION: "REGRESSION", CANNOT_TELL: "UNDECIDED"}
    lines = [f"{verdicts[outcome.verdict]}: {', '.join(counts)}"]
    for verdict in (REGRESSION, CANNOT_TELL):
        cases = sorted(outcome.of(verdict), key=lambda c: -(c.compared.ratio if c.compared else float("inf")))
        word = "undecided" if verdict == CANNOT_TELL else verdict
        lines += [f"{word}: {c.case}: {c.reason}" for c in cases[:most]]
        if len(cases) > most:
            lines.append(f"{word}: {len(cases) - most} more")
    return lines
