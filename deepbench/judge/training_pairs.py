"""Applications that two files have trained: which side is faster, and whether the quality is the same.

Both factors of the time are compared apart. Samples per second are compared as means over the seeds. Samples to the
target are compared seed by seed where both sides trained the same seeds: seeds differ more than machines do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
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
SAME_TASK = ("application", "rung", "target", "metric", "samples", "every", "settings")
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
        if self._misses_more():
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

    def _misses_more(self) -> bool:
        """Whether more whole runs of the second side miss the target than chance explains (Fisher's exact test)."""
        whole = len(self.first.whole), len(self.second.whole)
        missed = whole[0] - self.first.reached, whole[1] - self.second.reached
        total = math.comb(sum(whole), sum(missed))
        most = min(whole[1], sum(missed))
        ways = (math.comb(whole[1], k) * math.comb(whole[0], sum(missed) - k) for k in range(missed[1], most + 1))
        return missed[1] > 0 and sum(ways) / total <= (1 - self.level) / 2

    @property
    def quality_differs(self) -> bool | None:
        """Whether the mean qualities at the end differ with 95 % certainty (Welch); None with fewer than two runs."""
        if self.first.quality is None or self.second.quality is None:
            return None
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
    first: Sequence[Trained], second: Sequence[Trained], margin: float, level: float = 0.95, only_equal: bool = False
) -> tuple[list[Pair], list[str]]:
    """The applications of both sides, those most alike together; and what has no counterpart.

    The result has the order of the first side. With `only_equal`, all settings of a pair are the same.
    """
    alike = [
        (sum(_value(a, name) == _value(b, name) for name in PREFERRED), i, j)
        for i, a in enumerate(first)
        for j, b in enumerate(second)
        if all(_value(a, name) == _value(b, name) for name in SAME_TASK)
    ]
    partner: dict[int, int] = {}
    for equal, i, j in sorted(alike, key=lambda entry: (-entry[0], entry[1:])):
        if i not in partner and j not in partner.values() and (equal == len(PREFERRED) or not only_equal):
            partner[i] = j
    found = [Pair(first[i], second[j], margin, level) for i, j in sorted(partner.items())]
    left = [f"{_title(a, second)}: only in the first file" for i, a in enumerate(first) if i not in partner]
    left += [f"{_title(b, first)}: only in the second file" for j, b in enumerate(second) if j not in partner.values()]
    return found, left


def _title(trained: Trained, others: Sequence[Trained]) -> str:
    """`image, rung mini, target 0.9`: a setup, with what differs from the setups of the same rung on the other side."""
    of_rung = [
        other for other in others if all(_value(other, n) == _value(trained, n) for n in ("application", "rung"))
    ]
    names = [n for n in (*SAME_TASK, *PREFERRED) if any(_value(other, n) != _value(trained, n) for other in of_rung)]
    words = ["other settings" if name == "settings" else f"{name} {_value(trained, name)}" for name in names]
    return ", ".join([str(trained.setup["application"]), f"rung {trained.setup['rung']}", *words])


def other_variables(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Environment variables that change what libraries do and differ between two files: `XLA_FLAGS: not set → --x`."""
    names = sorted({*first, *second})
    pairs = [(name, first.get(name, "not set"), second.get(name, "not set")) for name in names]
    return [f"{name}: {a} → {b}" for name, a, b in pairs if a != b]


def _value(trained: Trained, name: str) -> object:
    return trained.setup[name]  # type: ignore[literal-required]


def gate(first: Sequence[Trained], second: Sequence[Trained], margin: float) -> Outcome:
    """Whether any application needs longer to its target than before, or does not reach it any more.

    Of 5 % of all gates of equal machines some application is a regression: the level is shared (Bonferroni).
    """
    found, left = judged(first, second, margin)
    outcomes = [CaseOutcome(_name(pair.first), *_judge(pair), None) for pair in found]
    outcomes += [CaseOutcome(text, CANNOT_TELL, text, None) for text in left if text.endswith("first file")]
    return Outcome(outcomes)


def judged(first: Sequence[Trained], second: Sequence[Trained], margin: float) -> tuple[list[Pair], list[str]]:
    """The pairs of a gate, at its level, and what has no counterpart."""
    count = len(pairs(first, second, margin, only_equal=True)[0])
    return pairs(first, second, margin, 1.0 - 2 * FALSE_ALARMS / max(1, count), only_equal=True)


def _judge(pair: Pair) -> tuple[str, str]:
    time = pair.time
    if pair.verdict == "failed":
        return REGRESSION, f"reached its target in {pair.second.reached} of {len(pair.second.runs)} runs"
    if time is None or time.low is None or time.high is None:
        ends = dict.fromkeys(run.status for run in pair.second.runs if run.status != "ok")
        why = f"; in the second file runs are {', '.join(ends)}" if ends else ""
        return CANNOT_TELL, f"a comparison needs two seeds or more on both sides, all of which reach the target{why}"
    text = f"the time to the target is {time.value:.3f} times as long ({time.low:.3f} to {time.high:.3f})"
    if pair.verdict == "slower":
        return REGRESSION, text
    return (PASSED if time.high <= 1 + pair.margin else CANNOT_TELL), text


def _name(trained: Trained) -> str:
    return f"train {trained.setup['application']} --rung {trained.setup['rung']}"
