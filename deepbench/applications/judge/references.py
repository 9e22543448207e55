"""Reference curves: how applications trained on the authors' machines, seed by seed.

How many samples a training needs belongs to the task, and not to the machine. So a single run can be judged: a run
far outside of what other seeds would do has another cause than its seed, such as wrong arithmetic.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from deepbench.applications.judge.trained import Run, Trained
from deepbench.core import stats
from deepbench.results.record import TrainingSetup

# A run outside of the interval for one more seed is an outlier. 1 % of good runs are.
OUTLIER_LEVEL = 0.99

# Several runs together differ from the reference where chance would do so in fewer cases than this. A session has seven
# applications, so 5 % would find a difference in every third session of equal machines.
LEAST_P = 0.01

Judgement = Literal["as expected", "needs fewer samples", "needs more samples"]


@dataclass(frozen=True)
class ReferenceRuns:
    """The seeds of one rung with one batch."""

    application: str
    rung: str
    batch: int
    target: float
    settings: Mapping[str, Any]
    runs: int
    samples_to_target: Mapping[int, float]
    """Of the seeds that reached the target, by seed."""
    run_s: float
    """Seconds of a whole run on the machine of the reference: they tell how long applications take next to others."""
    curve: Sequence[tuple[float, float, float | None]]
    """Samples, and the mean and standard deviation of the quality over the seeds; None where there is one seed."""

    @property
    def expected(self) -> tuple[float, float] | None:
        """Between which samples to the target one more seed lies in 99 of 100 cases; None with fewer than three seeds.

        It is the prediction interval of Student's t, of logarithms.
        """
        logs = [math.log(s) for s in self.samples_to_target.values()]
        if len(logs) < 3:
            return None
        half = stats.t_critical(len(logs) - 1, OUTLIER_LEVEL) * statistics.stdev(logs) * math.sqrt(1 + 1 / len(logs))
        mean = statistics.fmean(logs)
        return math.exp(mean - half), math.exp(mean + half)

    def outlier(self, run: Run) -> str | None:
        """What is unusual about one run, as the end of a sentence; None if nothing."""
        samples, expected = run.samples_to_target, self.expected
        if expected is None or run.status != "ok":
            return None
        between = f"99 % of seeds need {expected[0]:,.0f} to {expected[1]:,.0f}"
        if samples is None:
            return f"does not reach the target; {between}" if len(self.samples_to_target) == self.runs else None
        if not expected[0] <= samples <= expected[1]:
            return f"reaches the target after {samples:,.0f} samples; {between}"
        return None

    def judge(self, trained: Trained) -> Judgement | None:
        """Whether all seeds of a setup need other numbers of samples than the reference; None if nobody can know.

        A t test of the mean difference of the logarithms, seed by seed, on both sides together. The deviation is that
        of the reference, whose seeds are more. Seeds are paired because in the same framework the same seed needs
        nearly the same samples: three seeds that happen to be slow are no finding.
        """
        both = [(s, self.samples_to_target[n]) for n, s in trained.all_samples.items() if n in self.samples_to_target]
        if len(both) < 2 or len(self.samples_to_target) < 3:
            return None
        distance = statistics.fmean(math.log(found / known) for found, known in both)
        deviation = statistics.stdev(math.log(s) for s in self.samples_to_target.values())
        if not distance:
            return "as expected"
        if deviation:
            error = deviation * math.sqrt(2 / len(both))
            if stats.t_p_value(abs(distance) / error, len(self.samples_to_target) - 1) >= LEAST_P:
                return "as expected"
        return "needs more samples" if distance > 0 else "needs fewer samples"


def reference_of(setup: TrainingSetup) -> ReferenceRuns | None:
    """The reference of a setup: of the same rung, batch, target and settings; None if there is none."""
    found = references().get((setup["application"], setup["rung"], setup["batch"], setup["target"]))
    return found if found is not None and found.settings == setup["settings"] else None


@cache
def references() -> Mapping[tuple[str, str, int, float], ReferenceRuns]:
    """All references by application, rung, batch and target."""
    text = resources.files("deepbench").joinpath("applications", "tasks", "references.json").read_text(encoding="utf-8")
    found = [
        ReferenceRuns(
            **{
                **r,
                "samples_to_target": {int(seed): samples for seed, samples in r["samples_to_target"].items()},
                "curve": [tuple(point) for point in r["curve"]],
            }
        )
        for r in json.loads(text)
    ]
    return {(r.application, r.rung, r.batch, r.target): r for r in found}
