"""Is anything slower than before? Three answers: no, yes, and nobody can tell.

A case is a regression when its ratio is beyond the margin and the chance of that by accident, corrected so that a whole
list of unchanged cases is accused once in twenty times (Holm), is below 5 %; or when it was done before and is not now.
It passes when the upper end of its 95 % interval is within the margin. All else: cannot tell.
"""

from __future__ import annotations

import xml.etree.ElementTree as xml
from collections.abc import Sequence
from dataclasses import dataclass

from deepbench.core import stats
from deepbench.judge.compare import LEVEL, Compared, Comparison

# What a gate lets pass: more than a comparison's margin, because every commit goes through it.
MARGIN = 0.05

PASSED, REGRESSION, CANNOT_TELL = "passed", "regression", "cannot tell"
EXIT = {PASSED: 0, REGRESSION: 1, CANNOT_TELL: 2}


@dataclass(frozen=True)
class Judged:
    """One case and what the gate says of it."""

    case: str
    verdict: str
    reason: str
    compared: Compared | None
    """None where it has no time any more."""


@dataclass(frozen=True)
class Outcome:
    """All cases."""

    cases: list[Judged]

    @property
    def verdict(self) -> str:
        """The worst of all: a regression, else one that cannot be told, else passed."""
        found = {j.verdict for j in self.cases}
        return next((v for v in (REGRESSION, CANNOT_TELL) if v in found), PASSED)

    @property
    def exit_code(self) -> int:
        """0 passed, 1 regression, 2 cannot tell."""
        return EXIT[self.verdict]

    def of(self, verdict: str) -> list[Judged]:
        """Cases with this verdict."""
        return [j for j in self.cases if j.verdict == verdict]


def judge(found: Comparison, margin: float = MARGIN) -> Outcome:
    """Judge every case that the first side did."""
    slower = {c.case: min(1.0, found.looks * _slower_p(c.difference)) for c in found.cases if c.difference is not None}
    chances = stats.holm(slower)
    judged = [_judge(c, chances.get(c.case), margin) for c in found.cases]
    broken = [Judged(text.partition(": ")[0], REGRESSION, text.partition(": ")[2], None) for text in found.broken]
    return Outcome(broken + judged)


def _slower_p(difference: stats.Difference) -> float:
    """Chance of a second side that looks at least so much slower, if it is not."""
    half = difference.p / 2
    return half if difference.mean > 0 else 1 - half


def _judge(c: Compared, p: float | None, margin: float) -> Judged:
    if c.interval is None or p is None:
        return Judged(c.case, CANNOT_TELL, "one process a side says nothing of chance", c)
    low, high = c.interval
    numbers = f"{c.ratio:.3f} times the time ({low:.3f} to {high:.3f})"
    one, other = c.other_load or (0.0, 0.0)
    company = f"but other programs kept {one:.1f} CPUs busy beside the first side and {other:.1f} beside the second"
    if p < 1 - LEVEL and c.ratio > 1 + margin:
        if other > one:
            return Judged(c.case, CANNOT_TELL, f"{numbers}, {company}", c)
        return Judged(c.case, REGRESSION, f"{numbers}, by chance 1 in {_one_in(p)}", c)
    if high <= 1 + margin:
        if one > other:  # the first side would have been faster alone
            return Judged(c.case, CANNOT_TELL, f"{numbers}, {company}", c)
        return Judged(c.case, PASSED, numbers, c)
    more = f"; {c.more_rounds} more rounds of each side would probably tell" if c.more_rounds else ""
    return Judged(c.case, CANNOT_TELL, f"{numbers}, allowed is {1 + margin:g}{more}", c)


def _one_in(p: float) -> str:
    return f"{1 / p:.0f}" if p > 1e-6 else "a million"


def confirmed(outcome: Outcome, again: Outcome) -> Outcome:
    """The outcome after what was flagged has been measured afresh: of those cases only the fresh verdict counts.

    Judged on old and fresh data together, what looked slow by accident would keep that accident.
    """
    fresh = {j.case: j for j in again.cases}
    return Outcome([fresh.get(j.case, j) if j.verdict == REGRESSION else j for j in outcome.cases])


def junit(outcome: Outcome, seconds: float = 0.0) -> str:
    """JUnit's XML: a regression is a failure, what nobody can tell is skipped."""
    suite = xml.Element(
        "testsuite",
        name="deepbench gate",
        tests=str(len(outcome.cases)),
        failures=str(len(outcome.of(REGRESSION))),
        skipped=str(len(outcome.of(CANNOT_TELL))),
        time=f"{seconds:.3f}",
    )
    for j in outcome.cases:
        case = xml.SubElement(suite, "testcase", classname=f"deepbench.{j.case.partition(' ')[0]}", name=j.case)
        if j.verdict == REGRESSION:
            xml.SubElement(case, "failure", message=j.reason)
        elif j.verdict == CANNOT_TELL:
            xml.SubElement(case, "skipped", message=j.reason)
        else:
            xml.SubElement(case, "system-out").text = j.reason
    xml.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(suite, encoding="unicode") + "\n"


def sentences(outcome: Outcome, most: int = 20) -> list[str]:
    """The verdict, then every case that did not pass, the worst first."""
    counts = [f"{len(outcome.of(v))} {v}" for v in (REGRESSION, CANNOT_TELL, PASSED) if outcome.of(v)]
    answers = {PASSED: "no regression", REGRESSION: "REGRESSION", CANNOT_TELL: "cannot tell"}
    lines = [f"{answers[outcome.verdict]}: {', '.join(counts)}"]
    for verdict in (REGRESSION, CANNOT_TELL):
        told = _worst_first(outcome.of(verdict))
        lines += [f"{verdict}: {j.case}: {j.reason}" for j in told[:most]]
        if len(told) > most:
            lines.append(f"{verdict}: {len(told) - most} more")
    return lines


def _worst_first(cases: Sequence[Judged]) -> list[Judged]:
    return sorted(cases, key=lambda j: -(j.compared.ratio if j.compared else float("inf")))
