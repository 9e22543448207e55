"""Runs of applications from a result file, and what the seeds of one setup say together."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, cast

from deepbench.applications.judge.convergence import (
    CurvePoint,
    MeanQuality,
    Spread,
    crossing,
    mean_quality,
    olympic_mean,
    samples_per_second,
)
from deepbench.core import stats
from deepbench.results.file import ResultFile
from deepbench.results.record import Training, TrainingEnd, TrainingPoint, TrainingSetup, TrainingStart

INCONSISTENT = "inconsistent"

# With a larger share of disturbed time the rate of a run says too little about the machine.
MOST_DISTURBED = 0.1

# What may differ between setups that train the same.
SETTINGS = ("framework", "device", "precision", "ranks", "threads", "batch")

# Statuses that may depend on the seed: the mean of the other runs would be better than that of all.
CHOSEN = ("diverged", "crashed", "out_of_memory", "timeout", INCONSISTENT)


@dataclass
class Run:
    """One seed of a setup, from its first process to its last."""

    setup: TrainingSetup
    starts: list[TrainingStart] = field(default_factory=list)
    """One per process: a run that was interrupted has several."""
    started: list[datetime] = field(default_factory=list)
    """When each process was ready."""
    evaluations: list[Evaluation] = field(default_factory=list)
    end: TrainingEnd | None = None
    """None: it has not ended yet."""
    defect: str | None = None
    """How its lines contradict each other."""

    @property
    def status(self) -> str:
        """`ok`, why it failed, `interrupted`, or `inconsistent`."""
        if self.defect is not None:
            return INCONSISTENT
        return "interrupted" if self.end is None else self.end["status"]

    @property
    def reason(self) -> str | None:
        """Why it is not `ok`, as far as the file says."""
        return self.defect or (self.end["reason"] if self.end else None)

    @cached_property
    def points(self) -> list[CurvePoint]:
        """Its evaluations, without the time in which its framework compiled."""
        found = []
        for one in self.evaluations:
            p, compile_s = one.event, self._compile_s(one)
            trained = p["steps"] * self.setup["batch"]
            found.append(CurvePoint(p["samples"], p["quality"], p["train_s"] - compile_s, p["evaluate_s"], trained))
        return found

    @cached_property
    def compile_s(self) -> float:
        """What the first steps of its processes took longer than the steps behind them."""
        return sum(map(self._compile_s, self.evaluations))

    def _compile_s(self, one: Evaluation) -> float:
        if not one.is_first:
            return 0.0
        steps, others_s = one.event["steps"] - 1, one.event["train_s"] - one.event["first_step_s"]
        if not steps:  # the steps behind the next evaluations
            later = [other.event for other in self.evaluations if not other.is_first]
            steps, others_s = sum(p["steps"] for p in later), sum(p["train_s"] for p in later)
        return max(0.0, round(one.event["first_step_s"] - others_s / steps, 9)) if steps else 0.0

    @cached_property
    def samples_to_target(self) -> float | None:
        """None where it never reached the target."""
        return crossing(self.points, self.setup["target"], self.setup["higher_is_better"])

    @cached_property
    def samples_per_second(self) -> float | None:
        """None without a point."""
        return samples_per_second(self.points)

    @property
    def is_bound(self) -> bool:
        """Whether no quality below the target is known before it was reached: the samples are then an upper bound."""
        at = len(self._to_target) - 1
        return at == 0 or (at > 0 and self.points[at - 1].quality is None)

    @property
    def _to_target(self) -> list[CurvePoint]:
        """The evaluations up to the first one that reaches the target; empty where none does."""
        needed = self.samples_to_target
        before = 0 if needed is None else 1 + sum(point.samples < needed for point in self.points)
        return self.points[:before]

    @property
    def seconds_to_target(self) -> float | None:
        """Of training and evaluation, up to the end of the first evaluation that reached the target."""
        return sum(point.train_s + point.evaluate_s for point in self._to_target) or None

    @property
    def evaluate_s_to_target(self) -> float:
        """Of these, evaluations alone."""
        return sum(point.evaluate_s for point in self._to_target)

    @property
    def quality(self) -> float | None:
        """At the planned end; None where the last evaluation is missing or gave no number."""
        at_end = self.points and self.points[-1].samples >= self.setup["samples"]
        return self.points[-1].quality if at_end else None

    @property
    def other_cpus(self) -> float | None:
        """CPUs that other programs took from it while it trained, as a mean over time; None where nobody looked.

        What they used of CPUs that the run did not need is left out. A run on a GPU needs one CPU.
        """
        seconds = sum(train_s for _, train_s in self._taken)
        return sum(cpus * train_s for cpus, train_s in self._taken) / seconds if seconds else None

    @property
    def disturbed_share(self) -> float:
        """Of its training, the share of the time in which other programs took CPUs from it."""
        seconds = sum(train_s for _, train_s in self._taken)
        return sum(s for cpus, s in self._taken if cpus >= stats.OTHER_LOAD) / seconds if seconds else 0.0

    @cached_property
    def _taken(self) -> list[tuple[float, float]]:
        """The CPUs that other programs took in each interval between evaluations, and its seconds of training."""
        needed = self.setup["threads"] if self.setup["device"] == "cpu" else 1
        found = []
        for one in self.evaluations:
            others = one.event.get("other_cpus")
            if others is not None:
                spare = max(0, one.event.get("cpus", needed) - needed)
                found.append((max(0.0, others - spare), one.event["train_s"]))
        return found


@dataclass(frozen=True)
class Evaluation:
    """A line of the file about an evaluation."""

    event: TrainingPoint
    is_first: bool
    """Whether it is the first one of a process."""


@dataclass(frozen=True)
class Trained:
    """All seeds of one setup."""

    setup: TrainingSetup
    """That of the first run; the seeds differ."""
    runs: tuple[Run, ...]

    def setting(self, name: str) -> Any:
        """A value of its setup."""
        return cast(Any, self.setup)[name]

    @cached_property
    def whole(self) -> tuple[Run, ...]:
        """The runs that trained to their end."""
        return tuple(run for run in self.runs if run.status == "ok")

    @property
    def reached(self) -> int:
        """How many runs reached the target."""
        return sum(run.samples_to_target is not None for run in self.whole)

    @property
    def all_samples(self) -> Mapping[int, float]:
        """Samples to the target by seed; empty unless every run reached it: the slowest seeds would be left out."""
        found = {run.setup["seed"]: run.samples_to_target for run in self.whole}
        reached = {seed: samples for seed, samples in found.items() if samples}
        return reached if len(reached) == len(self.runs) else {}

    @property
    def rates(self) -> Sequence[float]:
        """Samples per second of each run that trained to its end."""
        return [rate for run in self.whole if (rate := run.samples_per_second)]

    @property
    def samples_to_target(self) -> Spread | None:
        """Over the seeds; None unless every run reached the target. Without an interval where it is an upper bound."""
        found = Spread.of(list(self.all_samples.values())) if self.all_samples else None
        return Spread(found.value, None, None) if found is not None and self.is_bound else found

    @property
    def is_bound(self) -> bool:
        """Whether the first evaluation of some run reached the target: when it did so before is not known."""
        return any(run.is_bound for run in self.whole)

    @property
    def samples_per_second(self) -> Spread | None:
        """Over the runs that trained to their end."""
        return Spread.of(self.rates) if self.rates else None

    @property
    def train_s(self) -> Spread | None:
        """Seconds of training to the target: the product of both factors."""
        samples, rate = self.samples_to_target, self.samples_per_second
        return None if samples is None or rate is None else samples.times(rate.inverse)

    @property
    def parts_s(self) -> Mapping[str, float]:
        """Mean seconds of a whole run by part; without those that were not measured.

        Of a run with several processes, what each of them repeats counts once: loading, initialising and compiling.
        """
        if not self.whole:
            return {}
        of = {
            "load": [run.starts[-1]["load_s"] for run in self.whole],
            "initialise": [run.starts[-1]["initialise_s"] for run in self.whole],
            "compile": [run.compile_s / sum(one.is_first for one in run.evaluations) for run in self.whole],
            "train": [sum(point.train_s for point in run.points) for run in self.whole],
            "evaluate": [sum(point.evaluate_s for point in run.points) for run in self.whole],
        }
        events = [[one.event for one in run.evaluations] for run in self.whole]
        if all("checkpoint_s" in event for of_run in events for event in of_run):  # not in files of earlier versions
            of["checkpoint"] = [sum(event["checkpoint_s"] for event in of_run) for of_run in events]
        return {name: statistics.fmean(values) for name, values in of.items()}

    @cached_property
    def curve(self) -> list[MeanQuality]:
        """The mean quality of the whole runs; empty where others failed, which may depend on their seeds."""
        if any(run.status in CHOSEN for run in self.runs):
            return []
        return mean_quality([run.points for run in self.whole], self.setup["higher_is_better"])

    @property
    def quality(self) -> MeanQuality | None:
        """At the planned end."""
        is_whole = self.curve and self.curve[-1].samples >= self.setup["samples"]
        return self.curve[-1] if is_whole else None

    @property
    def is_certain(self) -> bool | None:
        """Whether the mean quality reaches the target with 95 % certainty at the end; None with fewer than two runs."""
        quality = self.quality
        return None if quality is None else quality.reaches(self.setup["target"], self.setup["higher_is_better"])

    @property
    def disturbed_share(self) -> float:
        """Of the training of that run which was disturbed most, the share of the time."""
        return max((run.disturbed_share for run in self.whole), default=0.0)

    @property
    def is_disturbed(self) -> bool:
        """Whether its rate says too little about the machine."""
        return self.disturbed_share > MOST_DISTURBED

    @property
    def other_cpus(self) -> float | None:
        """The most CPUs that other programs took from a whole run, as a mean over the run."""
        return max((run.other_cpus for run in self.whole if run.other_cpus is not None), default=None)

    @property
    def olympic_s(self) -> float | None:
        """The score of MLPerf in 2018: the mean of the seconds to the target without the fastest and slowest run."""
        found = [run.seconds_to_target for run in self.whole]
        is_whole = len(found) == len(self.runs) and all(s is not None for s in found)
        return olympic_mean([s for s in found if s is not None]) if is_whole else None


def runs_of(file: ResultFile) -> list[Run]:
    """The runs that a file plans, with what is known of each."""
    runs = [Run(setup) for setup in file.header["plan"].get("training", ())]
    for event in file.training:
        if event["run"] < len(runs):
            run = runs[event["run"]]
            run.defect = run.defect or _add(run, event)
    for run in runs:
        if run.defect is None and run.status == "ok" and not run.evaluations:
            run.defect = "it ended well without an evaluation"
        if run.defect is not None:
            run.evaluations.clear()
    return runs


def _add(run: Run, event: Training) -> str | None:
    """Add an event to its run; how it contradicts those before, if it does."""
    try:
        at = datetime.fromisoformat(event["at"])
    except ValueError:
        return f"{event['at']} is no time"
    if "start" in event:
        start = event["start"]
        run.starts.append(start)
        run.started.append(at)
        # A run whose checkpoint was lost begins again.
        kept = sum(one.event["samples"] <= start["samples"] for one in run.evaluations)
        del run.evaluations[kept:]
    elif "point" in event:
        p = event["point"]
        before = run.evaluations[-1].event["samples"] if run.evaluations else 0
        if not run.starts:
            return "an evaluation before the run began"
        if p["samples"] <= before or p["steps"] < 1:
            return f"an evaluation after {p['samples']:,} samples follows one after {before:,}"
        if p["first_step_s"] > p["train_s"]:
            return f"the first of {p['steps']:,} steps takes longer than all of them"
        run.evaluations.append(Evaluation(p, before == run.starts[-1]["samples"]))
    elif "end" in event:
        run.end = event["end"]
    return None


def trained(runs: Iterable[Run]) -> list[Trained]:
    """The runs of each setup together, in the order of the first."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        key = tuple(str(value) for name, value in run.setup.items() if name != "seed")
        groups.setdefault(key, []).append(run)
    return [Trained(found[0].setup, tuple(found)) for found in groups.values()]
