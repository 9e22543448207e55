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

from deepbench.core import stats
from deepbench.judge.trained import Run, Trained
from deepbench.results.record import TrainingSetup

# A run outside of the interval for one more seed is an outlier. 1 % of good runs are.
OUTLIER_LEVEL = 0.99

# Several runs together: the chance that they come from the reference.
LEAST_P = 0.05

Judgement = Literal["as expected", "needs fewer samples", "needs more samples"]


@dataclass(frozen=True)
class Reference:
    """The seeds of one rung with one batch."""

    application: str
    rung: str
    batch: int
    target: float
    settings: Mapping[str, Any]
    runs: int
    samples_to_target: Sequence[float]
    """Of the seeds that reached the target."""
    run_s: float
    """Seconds of a whole run on the machine of the reference: they tell how long applications take next to others."""
    curve: Sequence[tuple[float, float, float]]
    """Samples, and the mean and standard deviation of the quality over the seeds."""

    @property
    def expected(self) -> tuple[float, float] | None:
        """Between which samples to the target one more seed lies in 99 of 100 cases; None with fewer than three seeds.

        It is the prediction interval of Student's t, of logarithms.
        """
        logs = [math.log(s) for s in self.samples_to_target]
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
        between = f"{expected[0]:,.0f} to {expected[1]:,.0f} are expected"
        if samples is None:
            return f"does not reach the target; {between}" if len(self.samples_to_target) == self.runs else None
        if not expected[0] <= samples <= expected[1]:
            return f"reaches the target after {samples:,.0f} samples; {between}"
        return None

    def judge(self, trained: Trained) -> Judgement | None:
        """Whether all seeds of a setup need other numbers of samples than the reference; None if nobody can know.

        Welch's t test of logarithms, on both sides together at 5 %.
        """
        found = list(trained.all_samples.values())
        if len(found) < 2 or len(self.samples_to_target) < 3:
            return None
        a, b = ([math.log(s) for s in values] for values in (found, self.samples_to_target))
        errors = [statistics.variance(values) / len(values) for values in (a, b)]
        distance = statistics.fmean(a) - statistics.fmean(b)
        if not sum(errors):
            return "as expected" if not distance else _side(distance)
        freedom = sum(errors) ** 2 / sum(e**2 / (len(v) - 1) for e, v in zip(errors, (a, b), strict=True))
        p = stats.t_p_value(abs(distance) / math.sqrt(sum(errors)), freedom)
        return _side(distance) if p < LEAST_P else "as expected"


def _side(distance: float) -> Judgement:
    return "needs more samples" if distance > 0 else "needs fewer samples"


def reference_of(setup: TrainingSetup) -> Reference | None:
    """The reference of a setup: of the same rung, batch, target and settings; None if there is none."""
    found = references().get((setup["application"], setup["rung"], setup["batch"], setup["target"]))
    return found if found is not None and found.settings == setup["settings"] else None


@cache
def references() -> Mapping[tuple[str, str, int, float], Reference]:
    """All references by application, rung, batch and target."""
    text = resources.files("deepbench").joinpath("applications", "references.json").read_text(encoding="utf-8")
    found = [Reference(**{**r, "curve": [tuple(p) for p in r["curve"]]}) for r in json.loads(text)]
    return {(r.application, r.rung, r.batch, r.target): r for r in found}
