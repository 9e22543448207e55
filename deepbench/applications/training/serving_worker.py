"""A process in which a trained model answers: `python -m deepbench.applications.training.serving_worker DESCRIPTOR`.

The first message names the model and the scenarios. Then the process sends one message per scenario. Every answer of a
timed run is graded.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

from deepbench.applications.judge.serving import (
    GRADE_TOLERANCE,
    batch_rate,
    best_batch,
    default_bound_s,
    probe_s,
    wrong_answers,
)
from deepbench.applications.training import loadgen, scenarios
from deepbench.applications.training.application import Setup, Task, find_application
from deepbench.applications.training.scenarios import AnsweringModel, ServingOptions
from deepbench.applications.training.worker import (
    PROGRESS_S,
    Emit,
    answer_parent,
    guarded,
    load_data,
    make_task,
    restore,
)
from deepbench.core import units, variables
from deepbench.core.errors import BadInput
from deepbench.machine import describe
from deepbench.results.record import Scenario, ServedAnswers, ServedBatch, ServedProbe, ServedRepeats, ServingStart

# Test examples that a plain evaluation answers at once, as training does.
PLAIN_BATCH = 1000

# Of the seconds of a scenario. Together they take less than six times these seconds.
BATCHES_SHARE, OFFLINE_SHARE, SEARCH_SHARE, REPEATS_SHARE = 0.8, 0.6, 2.0, 0.1


def main() -> None:
    """Answer queries, and say how long each took."""

    def handle(message: dict[str, Any], emit: Emit) -> None:
        setup, options = Setup(**message["setup"]), ServingOptions(**message["options"])
        server = Server(setup, options, message["quality"], emit)
        guarded(lambda: server.serve(Path(message["checkpoint"]), message["samples"]), emit)

    answer_parent(handle)


class Server:
    """A loaded model, and the plain answers to all test examples.

    `quality` is that of the last evaluation in training.
    """

    def __init__(self, setup: Setup, options: ServingOptions, quality: float | None, emit: Emit) -> None:
        self._setup, self._options, self._quality = setup, options, quality
        self._emit, self._told = emit, perf_counter()
        self._plain: list[Any] = []
        self._batches: list[ServedBatch] = []
        self._repeats: ServedRepeats | None = None
        self._repeats_model: AnsweringModel | None = None

    def serve(self, path: Path, samples: int) -> None:
        """Load the checkpoint of a run that trained on so many samples, run every scenario, and send what was found."""
        self._load(path, samples)
        if {"offline", "server"} & set(self._options.scenarios) and "batches" not in self._options.scenarios:
            self._run("batches")
        for scenario in self._options.scenarios:
            self._emit({"scenario": {"scenario": scenario, **self._run(scenario)}})
        self._emit({"end": {"status": "ok", "reason": None}})

    def _load(self, path: Path, samples: int) -> None:
        setup = self._setup
        application, begin = find_application(setup.application), perf_counter()
        self._application = application
        self._emit({"phase": "loading data"})
        rung = application.rungs[setup.rung]
        data = load_data(application, rung)
        loaded = perf_counter()
        self._emit({"phase": "initialising"})
        self._task, versions, _ = make_task(setup, rung, data)
        try:
            restore(self._task, path, samples)
        except BadInput as error:
            raise BadInput(f"{error}; train the run again") from None
        initialised = perf_counter()
        # A collection would look at everything that was loaded, again and again while queries wait.
        gc.collect()
        gc.freeze()
        if application.has_equal_samples and "single" in self._options.scenarios and self._task.tests > 1:
            self._emit({"phase": "comparing samples that repeat"})
            self._repeats_model = self._model()
            self._repeats = scenarios.repeats(self._repeats_model, REPEATS_SHARE * self._options.seconds)
        before = perf_counter()
        self._answer_plainly(self._task)
        metric = application.answer_metric or application.metric
        self._grade = _finite(self._task.grade(range(self._task.tests), self._plain))
        start: ServingStart = {
            "tests": self._task.tests,
            "metric": metric.name,
            "is_share": metric.is_share,
            "grade": self._grade,
            "versions": versions,
            "environment": variables.tuning(os.environ),
            "load_s": loaded - begin,
            "initialise_s": initialised - loaded,
            "evaluate_s": perf_counter() - before,
        }
        if self._task.device_name is not None:
            start["device"] = self._task.device_name
        self._emit({"start": start})

    def _answer_plainly(self, task: Task) -> None:
        parts = []
        for at in range(0, task.tests, PLAIN_BATCH):
            self._emit({"phase": "evaluating"})
            parts.append(task.answer(range(at, min(at + PLAIN_BATCH, task.tests))))
        self._plain = list(chain.from_iterable(parts))

    def _run(self, scenario: Scenario) -> dict[str, Any]:
        """What a line says about a scenario: its numbers, its answers and its status."""
        self._emit({"phase": f"the scenario {scenario}"})
        model, cpus = self._model(), os.sched_getaffinity(0)
        others = describe.OtherPrograms(cpus)
        runs: dict[Scenario, Callable[[AnsweringModel], dict[str, Any]]] = {
            "batches": self._run_batches,
            "single": self._run_single,
            "multi": self._run_multi,
            "offline": self._run_offline,
            "server": self._run_server,
        }
        found = {"status": "ok", "reason": None, "cpus": len(cpus), **runs[scenario](model)}
        found["other_cpus"] = others.cpus()
        if self._options.driver == "loadgen" and scenario != "batches" and found["reason"] is None:
            self._emit({"phase": f"the scenario {scenario} of LoadGen"})
            found["loadgen"] = self._run_loadgen(model, scenario, found)
        if model.asked:
            found["answers"] = self._answers(model)
            if reason := self._wrong_model() or wrong_answers(found["answers"]):
                found |= {"status": "wrong", "reason": reason}
        return found

    def _wrong_model(self) -> str | None:
        """Why this is not the model that was trained; None if it is, or if grades measure something else."""
        quality, grade = self._quality, self._grade
        if self._application.answer_metric is not None or quality is None:
            return None
        if grade is not None and abs(grade - quality) <= GRADE_TOLERANCE * abs(quality):
            return None
        shown = "no finite number" if grade is None else units.significant(grade)
        trained = units.significant(quality)
        return f"a plain evaluation gives {shown}, and training ended with {trained}: this is another model"

    def _answers(self, model: AnsweringModel) -> ServedAnswers:
        plain = [self._plain[test] for test in model.asked]
        return {
            "answers": len(plain),
            "equal": sum(answer == other for answer, other in zip(model.answers, plain, strict=True)),
            "grade": _finite(self._task.grade(model.asked, model.answers)),
            "plain_grade": _finite(self._task.grade(model.asked, plain)),
        }

    def _run_loadgen(self, model: AnsweringModel, scenario: Scenario, found: dict[str, Any]) -> dict[str, str]:
        rate, latency_s = 0.0, 0.0
        if search := found.get("search"):
            rate = search["probes"][-1]["rate"]  # the one that was confirmed
            latency_s = search["bound_s"]
        elif "queries" in found:
            latency_s = statistics.median(found["queries"]["latency_s"])
        else:
            rate = batch_rate(best_batch(self._batches))
        return loadgen.run(model, scenario, found["batch"], self._options.seconds, rate, latency_s)

    def _run_batches(self, model: AnsweringModel) -> dict[str, Any]:
        self._batches = scenarios.by_batch(model, self._options.batch, BATCHES_SHARE * self._options.seconds)
        return {"batch": self._batches[-1]["batch"], "batches": self._batches}

    def _run_single(self, model: AnsweringModel) -> dict[str, Any]:
        found: dict[str, Any] = {"batch": 1, "queries": scenarios.one_after_another(model, 1, self._options.seconds)}
        if self._repeats is not None and self._repeats_model is not None:
            model.asked += self._repeats_model.asked
            model.answers += self._repeats_model.answers
            found["repeats"] = self._repeats
        return found

    def _run_multi(self, model: AnsweringModel) -> dict[str, Any]:
        return {"batch": 8, "queries": scenarios.one_after_another(model, 8, self._options.seconds)}

    def _run_offline(self, model: AnsweringModel) -> dict[str, Any]:
        batch = best_batch(self._batches)["batch"]
        return {"batch": batch, "passes_s": scenarios.offline(model, batch, OFFLINE_SHARE * self._options.seconds)}

    def _run_server(self, model: AnsweringModel) -> dict[str, Any]:
        options = self._options
        bound_s = options.latency_s or default_bound_s(statistics.median(self._batches[0]["latency_s"]))
        capacity = batch_rate(best_batch(self._batches))
        probes, queries = scenarios.highest_rate(
            model, options.batch, capacity, bound_s, SEARCH_SHARE * options.seconds
        )
        found: dict[str, Any] = {
            "batch": options.batch,
            "search": {"bound_s": bound_s, "is_chosen": options.latency_s is not None, "probes": probes},
        }
        if queries is not None:
            return {**found, "queries": queries}
        return {**found, "reason": _no_rate(probes, bound_s, capacity)}

    def _model(self) -> AnsweringModel:
        return AnsweringModel(self._task.answer, self._task.tests, self._tell)

    def _tell(self) -> None:
        """A sign of life, not too often."""
        if perf_counter() - self._told > PROGRESS_S:
            self._told = perf_counter()
            self._emit({"progress": True})


def _no_rate(probes: Sequence[ServedProbe], bound_s: float, capacity: float) -> str:
    """Why no rate was found that keeps the bound."""
    if probes:
        last, rate = probes[-1], units.significant(probes[-1]["rate"])
        return (
            f"no rate that was tried keeps the bound of {units.seconds(bound_s)}: at {rate} queries per second, "
            f"{last['late']} of {last['queries']} were later; more --seconds try lower rates"
        )
    needed_s = probe_s(0.8 * capacity, bound_s)
    seconds = math.ceil(2 * needed_s / SEARCH_SHARE)
    return f"to judge a rate takes {units.seconds(needed_s)} with this bound; use --seconds {seconds}"


def _finite(grade: float) -> float | None:
    return grade if math.isfinite(grade) else None


if __name__ == "__main__":
    main()
