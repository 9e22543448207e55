"""A result file with runs that train applications: each has a process of its own, and every event is kept at once.

A file that was interrupted goes on at its last evaluation, from the checkpoint in the folder next to it. The models of
runs that end well stay in another folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

from deepbench.core.errors import BadInput, DeepBenchError
from deepbench.core.json_lines import sanitized
from deepbench.core.version import VERSION
from deepbench.machine import describe
from deepbench.measure import parent
from deepbench.plan.modes import Rounds, Rules
from deepbench.results.file import ResultFile, Store, read_results
from deepbench.results.record import SCHEMA, Training, TrainingSetup
from deepbench.training.application import Setup, find_application

# Without an event for so long a process hangs: there are several per second.
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Progress:
    """Where a session is."""

    run: int
    runs: int
    setup: TrainingSetup
    samples: int
    """Of this run so far."""
    quality: float | None
    """At the last evaluation."""


def models_of(path: Path) -> Path:
    """The folder next to a result file with the models that its runs trained."""
    return path.with_name(f"{path.name}.models")


def model_name(run: int) -> str:
    """The file of a run in this folder."""
    return f"{run}.pt"


def resolved(setup: Setup) -> TrainingSetup:
    """A setup with the numbers of its rung; `BadInput` where there is no such application, rung or framework."""
    application = find_application(setup.application)
    if setup.rung not in application.rungs:
        known = ", ".join(application.rungs)
        raise BadInput(f"{setup.application} has no rung {setup.rung!r:.40}; choose one of {known}")
    if setup.framework not in application.frameworks:
        known = ", ".join(application.frameworks)
        raise BadInput(f"{setup.application} has no version in {setup.framework!r:.40}; choose one of {known}")
    rung, metric = application.rungs[setup.rung], application.metric
    found = {**asdict(setup), "batch": setup.batch or rung.batch, "samples": setup.samples or rung.samples}
    about = {"metric": metric.name, "higher_is_better": metric.higher_is_better, "is_share": metric.is_share}
    settings = {name: list(v) if isinstance(v, tuple) else v for name, v in rung.settings.items()}
    return cast(TrainingSetup, {**found, "every": rung.every, **about, "target": rung.target, "settings": settings})


def header_of(
    setups: Sequence[TrainingSetup], mode: Literal["training", "serving"], timeout_s: float, command: Sequence[str] = ()
) -> dict[str, Any]:
    """The first line of a file for these runs, with this machine and its libraries."""
    names = sorted({s["framework"] for s in setups} & {"torch"})
    answers = parent.open_backends(names, timeout_s)
    return {
        "schema": SCHEMA,
        "tool": f"deepbench {VERSION}",
        "started": now(),
        "command": list(command),
        "machine": describe.describe_machine(),
        "libraries": {
            name: {key: answer[key] for key in ("library", "unavailable") if key in answer}
            for name, answer in answers.items()
        },
        "plan": {
            "rounds": asdict(Rounds(1, 1, 0.03, 0.0)),
            "mode": mode,
            "order_seed": 0,
            "timeout_s": timeout_s,
            "rules": asdict(Rules()),
            "cases": [],
            "training": list(setups),
        },
    }


class TrainingSession:
    """One result file with training runs. Use as a context manager: it closes the file."""

    def __init__(self, file: ResultFile, store: Store) -> None:
        self.file = file
        self._store = store
        self._setups = file.header["plan"]["training"]
        self._checkpoints = file.path.with_name(f"{file.path.name}.checkpoints")
        self._models = models_of(file.path)

    @classmethod
    def create(cls, path: Path, setups: Sequence[TrainingSetup], command: Sequence[str] = ()) -> TrainingSession:
        """A new file for these runs; `BadInput` where it exists."""
        store = Store.create(path, sanitized(header_of(setups, "training", TIMEOUT_S, command)))
        return cls(read_results(path), store)

    @classmethod
    def resume(cls, path: Path) -> TrainingSession:
        """Go on with a file where it stops; `BadInput` where it has no training runs."""
        store = Store.reopen(path)
        try:
            file = read_results(path)
            plan = file.header["plan"]
            if plan["mode"] == "serving":
                raise BadInput(f"{path} has no training runs, but served models; go on with deepbench serve -o {path}")
            if not plan.get("training"):
                raise BadInput(f"{path} has no training runs; continue it with deepbench run --resume -o {path}")
        except BaseException:
            store.close()
            raise
        store.append_after(file)
        return cls(file, store)

    def __enter__(self) -> TrainingSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def run(self, progress: Callable[[Progress], object] = lambda _: None) -> None:
        """Train every run that has not ended, and keep the models of those that end well."""
        ended = {event["run"] for event in self.file.training if "end" in event}
        for number in range(len(self._setups)):
            if number not in ended:
                self._train(number, progress)
        self._keep_models()  # of runs that an earlier process ended, which was killed before it moved them
        shutil.rmtree(self._checkpoints, ignore_errors=True)

    def _train(self, number: int, progress: Callable[[Progress], object]) -> None:
        setup = self._setups[number]
        points = [event["point"] for event in self.file.training if event["run"] == number and "point" in event]
        self._checkpoints.mkdir(exist_ok=True)
        checkpoint = self._checkpoints / model_name(number)
        done = points[-1]["samples"] if points and checkpoint.exists() else 0
        quality = points[-1]["quality"] if done else None
        names = ("application", "rung", "framework", "device", "precision", "threads", "seed", "batch", "samples")
        request = {"setup": {name: cast(Any, setup)[name] for name in names}}
        try:
            with parent.Worker(setup["threads"], "none", os.environ, "deepbench.training.worker") as worker:
                worker.send({**request, "checkpoint": str(checkpoint.resolve()), "samples": done})
                while True:
                    ending = worker.listen({"start", "progress", "point", "end"}, TIMEOUT_S)
                    answer = ending.answer
                    if answer is None:
                        self._keep(number, "end", {"status": ending.status, "reason": ending.reason})
                        return
                    if "progress" in answer:
                        progress(Progress(number, len(self._setups), setup, answer["progress"], quality))
                        continue
                    name = next(name for name in ("start", "point", "end") if name in answer)
                    self._keep(number, name, answer[name])
                    if name == "point":
                        quality = answer["point"]["quality"]
                        progress(Progress(number, len(self._setups), setup, answer["point"]["samples"], quality))
                    if name == "end":
                        self._keep_models()
                        return
        except DeepBenchError as error:
            self._keep(number, "end", {"status": error.record_status, "reason": str(error)})

    def _keep_models(self) -> None:
        """The last checkpoint of a run that ended well is its model."""
        for event in self.file.training:
            checkpoint = self._checkpoints / model_name(event["run"])
            if "end" in event and event["end"]["status"] == "ok" and checkpoint.exists():
                self._models.mkdir(exist_ok=True)
                checkpoint.replace(self._models / checkpoint.name)

    def _keep(self, number: int, name: str, value: Mapping[str, Any]) -> None:
        event = cast(Training, {"run": number, "at": now(), name: value})
        self._store.append({"training": event})
        self.file.training.append(event)


def now() -> str:
    """The time, as result files have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
