"""Applications that two files have trained: which side is faster, and whether the quality is the same.

Both factors of the time are compared apart. Samples per second are compared as means over the seeds. Samples to the
target are compared seed by seed where both sides trained the same seeds: seeds differ more than machines do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from deepbench.core import stats
from deepbench.judge.convergence import Spread
from deepbench.judge.gate import CANNOT_TELL, PASSED, REGRESSION, CaseOutcome, Outcome
from deepbench.judge.trained import Trained

# The share of gates of equal machines that report a regression.
FALSE_ALARMS = 0.05

Verdict = Literal["faster", "slower", "same", "undecided", "failed"]

# Both sides train the same task; what else differs is what the comparison is about.
SAME_TASK = ("application", "rung", "target", "metric", "samples", "every")
PREFERRED = ("framework", "device", "precision", "ranks", "threads", "batch")


@dataclass(frozen=True)
class Pair:
    """One application on both sides."""

    first: Trained
    second: Trained
    margin: float
    """A smaller difference does not count."""
    level: float = 0.95
    """Of the intervals."""

    @property
    def rate(self) -> Spread | None:
        """Samples per second of the second over those of the first."""
        return self._over(self.first.rates, self.second.rates)

    @property
    def samples(self) -> Spread | None:
        """Samples to the target of the second over those of the first; None unless every run reached it."""
        a, b = self.first.all_samples, self.second.all_samples
        if set(a) == set(b) and a:
            return Spread.of([b[seed] / a[seed] for seed in a], self.level)
        return self._over(list(a.values()), list(b.values()))

    def _over(self, first: Sequence[float], second: Sequence[float]) -> Spread | None:
        if not first or not second:
            return None
        return Spread.of(second, self.level).times(Spread.of(first, self.level).inverse)

    @property
    def time(self) -> Spread | None:
        """Time to the target of the second over that of the first."""
        rate, samples = self.rate, self.samples
        return None if rate is None or samples is None else samples.times(rate.inverse)

    @property
    def verdict(self) -> Verdict:
        """What the second side is, by its time to the target, as sure as `level` says."""
        if self.second.reached < len(self.second.runs) and self.first.reached == len(self.first.runs):
            return "failed"
        time = self.time
        if time is None or time.low is None or time.high is None:
            return "undecided"
        if time.low > 1 and time.value > 1 + self.margin:
            return "slower"
        if time.high < 1 and time.value < 1 / (1 + self.margin):
            return "faster"
        within = time.low >= 1 / (1 + self.margin) and time.high <= 1 + self.margin
        return "same" if within else "undecided"

    @property
    def quality_differs(self) -> bool | None:
        """Whether the mean qualities at the end differ with 95 % certainty (Welch); None with fewer than two runs."""
        values = [[run.quality for run in side.whole if run.quality is not None] for side in (self.first, self.second)]
        if min(map(len, values)) < 2:
            return None
        errors = [statistics.variance(v) / len(v) for v in values]
        if not sum(errors):
            return statistics.fmean(values[0]) != statistics.fmean(values[1])
        freedom = sum(errors) ** 2 / sum(e**2 / (len(v) - 1) for e, v in zip(errors, values, strict=True))
        distance = abs(statistics.fmean(values[0]) - statistics.fmean(values[1]))
        return distance > stats.t_critical(max(1, math.floor(freedom))) * math.sqrt(sum(errors))


def pairs(
    first: Sequence[Trained], second: Sequence[Trained], margin: float, level: float = 0.95
) -> tuple[list[Pair], list[str]]:
    """The applications of both sides, each setup with the one most like it; and what has no counterpart."""
    found, left, rest = [], [], list(second)
    for a in first:
        same = [b for b in rest if all(_value(a, name) == _value(b, name) for name in SAME_TASK)]
        if not same:
            left.append(f"{a.setup['application']}, rung {a.setup['rung']}: only in the first file")
            continue
        best = max(same, key=lambda b: sum(_value(a, name) == _value(b, name) for name in PREFERRED))
        rest.remove(best)
        found.append(Pair(a, best, margin, level))
    left += [f"{b.setup['application']}, rung {b.setup['rung']}: only in the second file" for b in rest]
    return found, left


def _value(trained: Trained, name: str) -> object:
    return trained.setup[name]  # type: ignore[literal-required]


def gate(first: Sequence[Trained], second: Sequence[Trained], margin: float) -> Outcome:
    """Whether any application needs longer to its target than before, or does not reach it any more.

    Of 5 % of all gates of equal machines some application is a regression: the level is shared (Bonferroni).
    """
    looked = [pair.first for pair in pairs(first, second, margin)[0]]
    level = 1.0 - 2 * FALSE_ALARMS / max(1, len(looked))
    found, left = pairs(first, second, margin, level)
    outcomes = [CaseOutcome(_name(pair.first), *_judge(pair), None) for pair in found]
    outcomes += [CaseOutcome(text, CANNOT_TELL, text, None) for text in left if text.endswith("first file")]
    return Outcome(outcomes)


def _judge(pair: Pair) -> tuple[str, str]:
    time = pair.time
    if pair.verdict == "failed":
        return REGRESSION, f"reached its target in {pair.second.reached} of {len(pair.second.runs)} runs"
    if time is None or time.low is None or time.high is None:
        return CANNOT_TELL, "a comparison needs two seeds or more on both sides that reach the target"
    text = f"the time to the target is {time.value:.3f} times as long ({time.low:.3f} to {time.high:.3f})"
    if pair.verdict == "slower":
        return REGRESSION, text
    return (PASSED if time.high <= 1 + pair.margin else CANNOT_TELL), text


def _name(trained: Trained) -> str:
    return f"train {trained.setup['application']} --rung {trained.setup['rung']}"
