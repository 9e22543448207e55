"""Applications that two files have trained: which side is faster, and whether the quality is the same.

Both factors of the time are compared apart. Samples per second are compared as means over the seeds. Samples to the
target are compared seed by seed where both sides trained the same seeds: seeds differ more than machines do.

Runs of one file share its session. How much a machine changes from one session to the next is part of the interval of
the rate where self-tests of the machine know it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from deepbench.applications.judge.convergence import Spread
from deepbench.applications.judge.trained import CHOSEN, SETTINGS, Trained, runs_of
from deepbench.core import stats
from deepbench.judge.gate import CANNOT_TELL, PASSED, REGRESSION, CaseOutcome, GateVerdict
from deepbench.results.file import ResultFile

# Rates and times that differ by less do not matter.
MARGIN = 0.02

# The share of gates of equal machines that report a regression, and of comparisons that find a difference.
FALSE_ALARMS = 0.05

# Of intervals that people see.
LEVEL = 0.95

# A normal distribution, as Student's.
MANY = 1e6

Verdict = Literal["faster", "slower", "same", "undecided", "failed"]

# Both sides train the same task; what else differs is what the comparison is about.
SAME_TASK = ("application", "rung", "target", "metric", "samples", "every", "settings")


@dataclass(frozen=True)
class TrainingPair:
    """One application on both sides."""

    first: Trained
    second: Trained
    margin: float
    """A smaller difference does not count."""
    level: float = LEVEL
    """Of the verdict: higher where there are several pairs."""
    drift: float = 0.0
    """Standard deviation of log rates from one session of the machine to another; 0: not known, or one file."""

    @property
    def rate(self) -> Spread | None:
        """Samples per second of the second over those of the first."""
        return self._rate(LEVEL)

    @property
    def samples(self) -> Spread | None:
        """Samples to the target of the second over those of the first; None unless every run reached it."""
        return self._samples(LEVEL)

    @property
    def time(self) -> Spread | None:
        """Time to the target of the second over that of the first."""
        return self.time_at(LEVEL)

    def time_at(self, level: float) -> Spread | None:
        """`time`, with the interval of another level."""
        rate, samples = self._rate(level), self._samples(level)
        return None if rate is None or samples is None else samples.times(rate.inverse)

    def _rate(self, level: float) -> Spread | None:
        found = _over(self.first.rates, self.second.rates, level)
        if found is None or not self.drift:
            return found
        half = stats.t_critical(MANY, level) * math.sqrt(2) * self.drift
        return found.times(Spread(1.0, math.exp(-half), math.exp(half)))

    def _samples(self, level: float) -> Spread | None:
        a, b = self.first.all_samples, self.second.all_samples
        if set(a) == set(b) and a:
            found: Spread | None = Spread.of([b[seed] / a[seed] for seed in a], level)
        else:
            found = _over(list(a.values()), list(b.values()), level)
        is_bound = self.first.is_bound or self.second.is_bound
        return Spread(found.value, None, None) if found is not None and is_bound else found

    @property
    def other_load(self) -> tuple[float, float] | None:
        """CPUs that other programs took from each side, where the difference may explain a ratio; else None."""
        a, b = self.first.other_cpus, self.second.other_cpus
        return None if a is None or b is None or abs(a - b) < stats.OTHER_LOAD else (a, b)

    @property
    def verdict(self) -> Verdict:
        """What the second side is, by its time to the target, as sure as `level` says."""
        if self._stopped_working() or self._misses_more():
            return "failed"
        time, load = self.time_at(self.level), self.other_load
        if time is None or time.low is None or time.high is None:
            return "undecided"
        # Only a side that is slower despite less load from other programs is certainly slower.
        if time.low > 1 and time.value > 1 + self.margin:
            return "slower" if load is None or load[1] < load[0] else "undecided"
        if time.high < 1 and time.value < 1 / (1 + self.margin):
            return "faster" if load is None or load[1] > load[0] else "undecided"
        within = time.low >= 1 / (1 + self.margin) and time.high <= 1 + self.margin
        return "same" if within and load is None else "undecided"

    def _stopped_working(self) -> bool:
        """Whether every run of the first side reached its target, and every run of the second one failed or missed it.

        Both sides have two runs or more. Runs that could not begin are no evidence.
        """
        first, second = self.first.runs, self.second.runs
        is_reached = self.first.reached == len(first)
        is_lost = not self.second.reached and all(run.status in ("ok", *CHOSEN) for run in second)
        return is_reached and is_lost and min(len(first), len(second)) > 1

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


def _over(first: Sequence[float], second: Sequence[float], level: float) -> Spread | None:
    if not first or not second:
        return None
    return Spread.of(second, level).times(Spread.of(first, level).inverse)


def pairs(
    first: Sequence[Trained],
    second: Sequence[Trained],
    margin: float = MARGIN,
    *,
    drift: float = 0.0,
    alarms: float = FALSE_ALARMS,
    only_equal: bool = False,
) -> tuple[list[TrainingPair], list[str]]:
    """The applications of both sides, those most alike together; and what has no counterpart.

    The result has the order of the first side. With `only_equal`, all settings of a pair are the same. Of a share
    `alarms` of all comparisons of equal machines some pair is called different: pairs share it (Bonferroni).
    """
    alike = [
        (sum(a.setting(name) == b.setting(name) for name in SETTINGS), i, j)
        for i, a in enumerate(first)
        for j, b in enumerate(second)
        if all(a.setting(name) == b.setting(name) for name in SAME_TASK)
    ]
    partner: dict[int, int] = {}
    for equal, i, j in sorted(alike, key=lambda entry: (-entry[0], entry[1:])):
        if i not in partner and j not in partner.values() and (equal == len(SETTINGS) or not only_equal):
            partner[i] = j
    level = 1.0 - alarms / max(1, len(partner))
    found = [TrainingPair(first[i], second[j], margin, level, drift) for i, j in sorted(partner.items())]
    left = [f"{_title(a, second)}: only in the first file" for i, a in enumerate(first) if i not in partner]
    left += [f"{_title(b, first)}: only in the second file" for j, b in enumerate(second) if j not in partner.values()]
    return found, left


def _title(trained: Trained, others: Sequence[Trained]) -> str:
    """`image, rung mini, target 0.9`: a setup, with what differs from the setups of the same rung on the other side."""
    of_rung = [
        other for other in others if all(other.setting(n) == trained.setting(n) for n in ("application", "rung"))
    ]
    names = [n for n in (*SAME_TASK, *SETTINGS) if any(other.setting(n) != trained.setting(n) for other in of_rung)]
    words = ["other settings" if name == "settings" else f"{name} {trained.setting(name)}" for name in names]
    return ", ".join([str(trained.setup["application"]), f"rung {trained.setup['rung']}", *words])


def differences(first: ResultFile, second: ResultFile) -> list[str]:
    """What else differs between two files and may explain a ratio: `torch: 2.13.0 → 2.14.1`.

    Processors, GPUs, hosts, versions of frameworks, and environment variables that change what libraries do.
    """
    a, b = _conditions(first), _conditions(second)
    names = dict.fromkeys([*a, *b])
    found = [(name, a.get(name, "not set"), b.get(name, "not set")) for name in names]
    return [f"{name}: {before} → {after}" for name, before, after in found if before != after]


def _conditions(file: ResultFile) -> dict[str, str]:
    starts = [start for run in runs_of(file) for start in run.starts]
    versions: dict[str, dict[str, None]] = {}
    for start in starts:
        for name, version in start["versions"].items():
            versions.setdefault(name, {})[version] = None
    several = {
        "processor": [str(file.header["machine"].get("cpu"))],
        "GPU": [device for start in starts if (device := start.get("device")) is not None],
        "hosts": file.header["plan"].get("hosts", []),
        **dict(sorted(versions.items())),
    }
    found = {name: ", ".join(dict.fromkeys(values)) for name, values in several.items() if values}
    return found | dict(sorted(file.chosen_variables.items()))


def gate(first: Sequence[Trained], second: Sequence[Trained], margin: float, drift: float = 0.0) -> GateVerdict:
    """Whether any application needs longer to its target than before, or does not reach it any more."""
    found, left = judged(first, second, margin, drift)
    outcomes = [CaseOutcome(_name(pair.first), *_judge(pair), None) for pair in found]
    outcomes += [CaseOutcome(text, CANNOT_TELL, text, None) for text in left if text.endswith("first file")]
    return GateVerdict(outcomes)


def judged(
    first: Sequence[Trained], second: Sequence[Trained], margin: float, drift: float = 0.0
) -> tuple[list[TrainingPair], list[str]]:
    """The pairs of a gate, at its level, and what has no counterpart. It asks about one side of the interval only."""
    return pairs(first, second, margin, drift=drift, alarms=2 * FALSE_ALARMS, only_equal=True)


def _judge(pair: TrainingPair) -> tuple[str, str]:
    time, verdict, load = pair.time_at(pair.level), pair.verdict, pair.other_load
    ends = dict.fromkeys(run.status for run in pair.second.runs if run.status != "ok")
    if verdict == "failed":
        why = f" ({', '.join(ends)})" if ends else ""
        return REGRESSION, f"reached its target in {pair.second.reached} of {len(pair.second.runs)} runs{why}"
    if time is None or time.low is None or time.high is None:
        why = f"; in the second file runs are {', '.join(ends)}" if ends else ""
        return CANNOT_TELL, f"a comparison needs two seeds or more on both sides, all of which reach the target{why}"
    interval = f"{time.low:.3f} to {time.high:.3f}, the {100 * pair.level:.3g} % interval of a gate"
    text = f"the time to target is {time.value:.3f} times that of the first file ({interval})"
    if load is not None:
        text += f", but other programs took {load[0]:.1f} CPUs from the first side and {load[1]:.1f} from the second"
    if verdict == "slower":
        return REGRESSION, text
    # With less load, the first side would have been faster.
    is_flattered = load is not None and load[0] > load[1]
    return (PASSED if time.high <= 1 + pair.margin and not is_flattered else CANNOT_TELL), text


def _name(trained: Trained) -> str:
    return f"train {trained.setup['application']} --rung {trained.setup['rung']}"
