"""Runs of applications from a result file, and what the seeds of one setup say together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from deepbench.judge.convergence import (
    MeanQuality,
    Point,
    Spread,
    crossing,
    mean_quality,
    olympic_mean,
    samples_per_second,
    seconds_to,
)
from deepbench.results.file import ResultFile
from deepbench.results.record import Training, TrainingEnd, TrainingSetup, TrainingStart


@dataclass
class Run:
    """One seed of a setup, from its first process to its last."""

    setup: TrainingSetup
    starts: list[TrainingStart] = field(default_factory=list)
    """One per process: a run that was interrupted has several."""
    started: list[datetime] = field(default_factory=list)
    """When each process was ready."""
    points: list[Point] = field(default_factory=list)
    ended: list[datetime] = field(default_factory=list)
    """When the evaluation of each point ended."""
    losses: list[float | None] = field(default_factory=list)
    compile_s: float = 0.0
    """Of all first steps, what they took longer than the other steps next to them."""
    end: TrainingEnd | None = None
    """None: it has not ended yet."""

    @property
    def status(self) -> str:
        """`ok`, why it failed, or `interrupted`."""
        return "interrupted" if self.end is None else self.end["status"]

    @cached_property
    def samples_to_target(self) -> float | None:
        """None where it never reached the target."""
        return crossing(self.points, self.setup["target"], self.setup["higher_is_better"])

    @cached_property
    def samples_per_second(self) -> float | None:
        """None without a point."""
        return samples_per_second(self.points)

    @property
    def seconds_to_target(self) -> float | None:
        """Of training and evaluation, as they happened in this run."""
        return None if self.samples_to_target is None else seconds_to(self.points, self.samples_to_target)

    @property
    def quality(self) -> float | None:
        """At the last evaluation."""
        return self.points[-1].quality if self.points and math.isfinite(self.points[-1].quality) else None


@dataclass(frozen=True)
class Trained:
    """All seeds of one setup."""

    setup: TrainingSetup
    """That of the first run; the seeds differ."""
    runs: tuple[Run, ...]

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
        """Over the seeds; None unless every run reached the target."""
        return Spread.of(list(self.all_samples.values())) if self.all_samples else None

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
        """Mean seconds of a whole run by part."""
        if not self.whole:
            return {}
        of = {
            "load": [sum(start["load_s"] for start in run.starts) for run in self.whole],
            "initialise": [sum(start["initialise_s"] for start in run.starts) for run in self.whole],
            "compile": [run.compile_s for run in self.whole],
            "train": [sum(point.train_s for point in run.points) for run in self.whole],
            "evaluate": [sum(point.evaluate_s for point in run.points) for run in self.whole],
        }
        return {name: statistics.fmean(values) for name, values in of.items()}

    @cached_property
    def curve(self) -> list[MeanQuality]:
        """The mean quality of the whole runs."""
        return mean_quality([run.points for run in self.whole], self.setup["higher_is_better"])

    @property
    def is_certain(self) -> bool | None:
        """Whether the mean quality reaches the target with 95 % certainty at the end; None with fewer than two runs."""
        return self.curve[-1].reaches(self.setup["target"], self.setup["higher_is_better"]) if self.curve else None

    @property
    def olympic_s(self) -> float | None:
        """The score of MLPerf in 2018: the mean of the seconds to the target without the fastest and slowest run."""
        found = [run.seconds_to_target for run in self.runs]
        return olympic_mean([s for s in found if s is not None]) if all(s is not None for s in found) else None


def runs_of(file: ResultFile) -> list[Run]:
    """The runs that a file plans, with what is known of each."""
    runs = [Run(setup) for setup in file.header["plan"].get("training", ())]
    for event in file.training:
        if event["run"] < len(runs):
            _add(runs[event["run"]], event)
    return runs


def _add(run: Run, event: Training) -> None:
    if "start" in event:
        start = event["start"]
        run.starts.append(start)
        run.started.append(datetime.fromisoformat(event["at"]))
        # A run whose checkpoint was lost begins again.
        kept = sum(point.samples <= start["samples"] for point in run.points)
        del run.points[kept:], run.losses[kept:], run.ended[kept:]
    elif "point" in event:
        p = event["point"]
        compile_s = 0.0
        if p["steps"] > 1:
            others_s = (p["train_s"] - p["first_step_s"]) / (p["steps"] - 1)
            before = run.points[-1].samples if run.points else 0
            is_first = not run.starts or before == run.starts[-1]["samples"]
            compile_s = max(0.0, p["first_step_s"] - others_s) if is_first else 0.0
        run.compile_s += compile_s
        quality = math.nan if p["quality"] is None else p["quality"]
        run.points.append(Point(p["samples"], quality, p["train_s"] - compile_s, p["evaluate_s"]))
        run.losses.append(p["loss"])
        run.ended.append(datetime.fromisoformat(event["at"]))
    elif "end" in event:
        run.end = event["end"]


def trained(runs: Iterable[Run]) -> list[Trained]:
    """The runs of each setup together, in the order of the first."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        key = tuple(str(value) for name, value in run.setup.items() if name != "seed")
        groups.setdefault(key, []).append(run)
    return [Trained(found[0].setup, tuple(found)) for found in groups.values()]
