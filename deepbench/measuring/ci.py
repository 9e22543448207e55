"""What a CI job measures: the old build against itself, old and new in turn, and what looks slower once more."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from deepbench.core.errors import BadInput
from deepbench.core.progress import Progress, no_progress
from deepbench.judge import gate
from deepbench.judge.ci import CiVerdict
from deepbench.judge.resolution import Resolution, resolution
from deepbench.measuring.session import Options
from deepbench.measuring.sides import Side, Turns
from deepbench.plan.cases import Choices

# Of the time, for equal sides first, and for the second look.
EQUAL_SHARE, AGAIN_SHARE = 0.2, 0.2

# Cases of equal sides: enough to see the machine.
EQUAL_CASES = 6


def judge_change(
    sides: tuple[Side, Side],
    words: Sequence[str],
    choices: Choices,
    options: Options,
    folder: Path,
    *,
    budget_s: float,
    margin: float,
    machine: str,
    repeat: Sequence[str],
    progress: Progress = no_progress,
) -> CiVerdict:
    """The verdict on a change from the first side to the second, within a time.

    Writes `change.a.jsonl`, `change.b.jsonl`, and those of the other two measurements, into the folder. `repeat` are
    the words of a command that measures a case again.
    """
    begin = time.monotonic()
    ends = begin + budget_s
    with ExitStack() as stack:
        change = stack.enter_context(Turns.create(sides, words, choices, options, folder / "change", margin))
        few = [pair.a.text for pair in change.pairs[:: max(1, len(change.pairs) // EQUAL_CASES)]][:EQUAL_CASES]
        found = measure_equal(sides[0], few, options, folder, margin, begin + EQUAL_SHARE * budget_s, progress)
        verdict = CiVerdict(
            sides[0].words, sides[1].words, machine, margin, found, found.why_not(margin), None, (), tuple(repeat)
        )
        if verdict.refusal is not None:
            for session in change.sessions:
                session.discard()
            return verdict
        change.run(progress, ends - AGAIN_SHARE * budget_s)
        outcome = gate.judge(change.comparison(), margin)
    suspects = [c.case for c in outcome.of(gate.REGRESSION) if not c.is_lost]
    if suspects:
        with Turns.create(sides, suspects, Choices(), options, folder / "again", margin) as again:
            again.run(progress, max(ends, time.monotonic() + AGAIN_SHARE * budget_s / 2))
            second = gate.judge(again.comparison(), margin)
        outcome = gate.after_rerun(outcome, second)
    if not outcome.cases:
        raise BadInput("no case has a time on both sides; see deepbench show for the reasons: change.a.jsonl")
    return replace(verdict, outcome=outcome, seen_again=tuple(suspects))


def measure_equal(
    base: Side,
    cases: Sequence[str],
    options: Options,
    folder: Path,
    margin: float,
    ends: float,
    progress: Progress,
) -> Resolution:
    """What two equal sides show on these cases."""
    sides = replace(base, name="a"), replace(base, name="b")
    with Turns.create(sides, cases, Choices(), options, folder / "equal", margin) as equal:
        equal.run(progress, ends)
        return resolution(equal.comparison(), margin)
