"""A result file with runs that train applications: each has a process of its own, and every event is kept at once.

A file that was interrupted goes on at its last evaluation, from the checkpoint in the folder next to it. A checkpoint
stays until the evaluation behind a later one is in the file, so that a process which is killed at any moment leaves the
checkpoint that the file needs. The models of runs that end well stay in another folder.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

from deepbench.applications.judge.references import reference_of
from deepbench.applications.training import checkpoint
from deepbench.applications.training.application import Setup, find_application, quality_text
from deepbench.core import units
from deepbench.core.errors import BadInput, DeepBenchError
from deepbench.core.files import NotWritten, make_private_folder
from deepbench.core.json_lines import sanitized
from deepbench.core.progress import Activity, Progress, no_progress
from deepbench.core.version import VERSION
from deepbench.machine import describe
from deepbench.machine.system import require_linux
from deepbench.measuring import launch, parent, process
from deepbench.measuring.group.link import RANK_VARIABLES
from deepbench.measuring.group.parent import Coordinator, reachable_address
from deepbench.measuring.session import require_same_machine
from deepbench.measuring.trust import require_hosts, require_ranks
from deepbench.plan.modes import Rounds, Rules
from deepbench.results.file import ResultFile, Store, read_results
from deepbench.results.record import SCHEMA, Training, TrainingSetup

# Without an event for so long a process hangs. While it trains there are several per second, in an evaluation none.
TIMEOUT_S = 1800.0

# How much of the first run of a setup has to be over before it says something about the time that is left.
LEAST_SHARE = 0.1

WORKER = "deepbench.applications.training.worker"

PRECISIONS = ("f32", "bf16")


class Stopped(BadInput):
    """The system refuses what a run needs, such as space on a disk. The run has not ended: it can go on later."""


def require_same_rungs(path: Path, setups: Iterable[TrainingSetup]) -> None:
    """`BadInput` where this version of DeepBench has other rungs than the one that made the file."""
    for setup in setups:
        now_here = resolved(setup_of(setup))
        differing = [name for name, value in setup.items() if cast(Any, now_here).get(name) != value]
        if differing:
            what = f"{setup['application']}, rung {setup['rung']}"
            raise BadInput(f"{path} is of another version of DeepBench: {what} had other {', '.join(differing)}")


def setup_of(setup: TrainingSetup) -> Setup:
    """The setup without the numbers of its rung."""
    return Setup(**{field.name: cast(Any, setup)[field.name] for field in fields(Setup)})


def models_of(path: Path) -> Path:
    """The folder next to a result file with the models that its runs trained."""
    return path.with_name(f"{path.name}.models")


def model_name(run: int) -> str:
    """The file of a run in this folder."""
    return f"{run}.npz"


def resolved(setup: Setup) -> TrainingSetup:
    """A setup with the numbers of its rung; `BadInput` where there is no such application, rung or framework."""
    application = find_application(setup.application)
    if setup.rung not in application.rungs:
        known = ", ".join(application.rungs)
        raise BadInput(f"{setup.application} has no rung {setup.rung!r:.40}; choose one of {known}")
    if setup.framework not in application.frameworks:
        known = ", ".join(application.frameworks)
        raise BadInput(f"{setup.application} has no version in {setup.framework!r:.40}; choose one of {known}")
    if setup.precision not in PRECISIONS:
        raise BadInput(f"no training in precision {setup.precision!r:.40}; choose one of {', '.join(PRECISIONS)}")
    if not re.fullmatch("cpu|cuda(:[0-9]{1,3})?", setup.device):
        raise BadInput(f"no training on the device {setup.device!r:.40}; choose cpu, cuda, or cuda:1 and so on")
    if setup.ranks > 1 and ":" in setup.device:
        raise BadInput(f"{setup.ranks} ranks cannot share the device {setup.device}; with cuda each rank has its own")
    rung, metric = application.rungs[setup.rung], application.metric
    found = {**asdict(setup), "batch": setup.batch or rung.batch, "samples": setup.samples or rung.samples}
    about = {"metric": metric.name, "higher_is_better": metric.higher_is_better, "is_share": metric.is_share}
    settings = {name: list(v) if isinstance(v, tuple) else v for name, v in rung.settings.items()}
    return cast(TrainingSetup, {**found, "every": rung.every, **about, "target": rung.target, "settings": settings})


def header_of(
    setups: Sequence[TrainingSetup],
    mode: Literal["training", "serving"],
    timeout_s: float,
    command: Sequence[str] = (),
    hosts: Sequence[str] = (),
) -> dict[str, Any]:
    """The first line of a file for these runs, with this machine and its libraries."""
    answers = _opened({s["framework"] for s in setups})
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
            **({"hosts": list(hosts)} if hosts else {}),
        },
    }


class TrainingSession:
    """One result file with training runs. Use as a context manager: it closes the file."""

    def __init__(self, file: ResultFile, store: Store, hosts: Sequence[str] = ()) -> None:
        self.file = file
        self._hosts = hosts
        self._store = store
        self._setups = file.header["plan"]["training"]
        self._seconds: dict[str, float] = {}
        self._checkpoints = file.path.with_name(f"{file.path.name}.checkpoints")
        self._models = models_of(file.path)
        self.notes: list[str] = []
        """Sentences for people about what `run` has done."""

    @classmethod
    def create(
        cls, path: Path, setups: Sequence[TrainingSetup], command: Sequence[str] = (), hosts: Sequence[str] = ()
    ) -> TrainingSession:
        """A new file for these runs; `BadInput` where it exists. Ranks run on `hosts`, or on this machine."""
        require_linux("training")
        store = Store.create(path, sanitized(header_of(setups, "training", TIMEOUT_S, command, hosts)))
        return cls(read_results(path), store, hosts)

    @classmethod
    def resume(
        cls, path: Path, hosts: Sequence[str] = (), *, trusted: bool = False, started: int = 0
    ) -> TrainingSession:
        """Go on with a file where it stops; `BadInput` where it has no training runs.

        `hosts`, `trusted` and `started` as in `measuring.session.Session.resume`.
        """
        store = Store.reopen(path)
        try:
            file = read_results(path)
            plan = file.header["plan"]
            if plan["mode"] == "serving":
                raise BadInput(
                    f"{path} has no training runs, but served models; continue with deepbench serve FILE -o {path}"
                )
            if not plan.get("training"):
                raise BadInput(f"{path} has no training runs; continue it with deepbench run --resume -o {path}")
            if not trusted:
                require_hosts(file, hosts)
                require_ranks(file, max(setup["ranks"] for setup in plan["training"]), hosts, started)
            hosts = hosts or plan.get("hosts") or []
            require_same_machine(file, hosts, lambda names: _opened(set(names)))
            require_same_rungs(path, plan["training"])
        except BaseException:
            store.close()
            raise
        store.append_after(file)
        return cls(file, store, hosts)

    def __enter__(self) -> TrainingSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def run(self, progress: Progress = no_progress) -> None:
        """Train every run that has not ended, and keep the models of those that end well.

        `Stopped` and `NotWritten` where the system refuses what a run needs.
        """
        ended = {event["run"] for event in self.file.training if "end" in event}
        for number in range(len(self._setups)):
            if number not in ended:
                self._train(number, progress)
            else:
                self._keep_model(number)  # the process that ended the run may have been killed before it did so
        with contextlib.suppress(OSError):  # not empty: the checkpoints of runs that did not end well stay
            self._checkpoints.rmdir()

    def _train(self, number: int, progress: Progress) -> None:
        setup = self._setups[number]
        points = [event["point"] for event in self.file.training if event["run"] == number and "point" in event]
        make_private_folder(self._checkpoints)
        kills = describe.kills_for_memory() or 0
        done = points[-1]["samples"] if points else 0
        if done and not os.path.lexists(self._checkpoint(number, done)):
            self._note(setup, f"begins anew: {self._checkpoint(number, done)} is missing")
            done = 0
        quality = points[-1]["quality"] if done else None
        begin, first, loading_s = time.monotonic(), done, 0.0

        def tell(samples: int) -> None:
            seconds, share = time.monotonic() - begin, (samples - first) / max(1, setup["samples"] - first)
            left_s = self._left_s(number, seconds - loading_s, loading_s, first, share)
            words = [f"{setup['application']}, seed {setup['seed']}", units.percent(samples / setup["samples"])]
            if quality is not None:  # the value first: 80 columns cut off the name of the metric
                words.append(f"{quality_text(quality, setup['is_share'])} {setup['metric']}")
            progress(Activity(", ".join(words), number, len(self._setups), left_s))

        where = {"checkpoints": str(self._checkpoints.resolve()), "run": number}
        request = {"setup": asdict(setup_of(setup)), **where, "samples": done}
        try:
            with self._process(setup, request) as worker:
                while True:
                    ending = worker.listen({"start", "progress", "note", "stopped", "point", "end"}, TIMEOUT_S)
                    answer = ending.answer
                    if answer is None:
                        self._end(number, _failure(ending, kills))
                        return
                    if "stopped" in answer:
                        raise Stopped(answer["stopped"])
                    if "progress" in answer:
                        tell(answer["progress"])
                    elif "note" in answer:
                        self._note(setup, answer["note"])
                    elif "start" in answer:
                        self._require_same_device(setup, answer["start"].get("device"))
                        loading_s = time.monotonic() - begin
                        self._keep(number, "start", answer["start"])
                    elif "point" in answer:
                        self._keep(number, "point", answer["point"])
                        self._remove_checkpoints(number, answer["point"]["samples"])
                        quality = answer["point"]["quality"]
                        tell(answer["point"]["samples"])
                    else:
                        self._end(number, answer["end"])
                        return
        except BadInput:
            raise
        except DeepBenchError as error:  # its process cannot be started
            raise Stopped(str(error)) from None
        except OSError as error:  # of this process: the run did nothing wrong
            raise Stopped(f"cannot start the process of a run: {error.strerror or error}") from None

    def _end(self, number: int, end: Mapping[str, Any]) -> None:
        """Keep how a run ended, unless the memory is full that was enough for it before: then the run can go on."""
        has_fitted = any(event["run"] == number and "point" in event for event in self.file.training)
        if end["status"] == "out_of_memory" and has_fitted:
            raise Stopped(f"the memory is full, which was enough before ({end['reason']}); free some memory")
        self._keep(number, "end", end)
        self._keep_model(number)

    def _note(self, setup: TrainingSetup, text: str) -> None:
        self.notes.append(f"{setup['application']}, seed {setup['seed']}: {text}")

    def _checkpoint(self, number: int, samples: int) -> Path:
        return self._checkpoints / checkpoint.file_name(number, samples)

    def _remove_checkpoints(self, number: int, before: float) -> None:
        """Remove the files of a run from the folder of checkpoints that are before so many samples."""
        for path, samples in checkpoint.files_of(self._checkpoints, number).items():
            if samples < before:
                with contextlib.suppress(OSError):  # it takes space, no more
                    path.unlink()

    def _require_same_device(self, setup: TrainingSetup, name: str | None) -> None:
        """`BadInput` where earlier runs of the file had another GPU: their rates would become one mean."""
        for event in self.file.training:
            is_same = self._setups[event["run"]]["device"] == setup["device"]
            before = event["start"].get("device") if "start" in event else None
            if is_same and before is not None and before != name:
                raise BadInput(
                    f"{self.file.path} was trained on {before}, and this is {name or 'no GPU'}; start a new file"
                )

    def _keep_model(self, number: int) -> None:
        """The last checkpoint of a run that ended well is its model; the other ones go."""
        events = [event for event in self.file.training if event["run"] == number]
        points = [event["point"] for event in events if "point" in event]
        if not points or not any("end" in event and event["end"]["status"] == "ok" for event in events):
            return
        last, model = self._checkpoint(number, points[-1]["samples"]), self._models / model_name(number)
        if last.exists():
            make_private_folder(self._models)
            try:
                last.replace(model)
            except OSError as error:
                raise NotWritten(model, error) from None
        self._remove_checkpoints(number, math.inf)

    def _left_s(self, number: int, seconds: float, loading_s: float, first: int, share: float) -> float | None:
        """What the current run and those behind it need, from what the runs so far have needed.

        The current run has trained for `seconds` since it was loaded, a `share` of its samples from the `first` on.
        """
        here, ended = self._setups[number], {event["run"] for event in self.file.training if "end" in event}
        part = 1.0 - first / here["samples"]  # a run that goes on trains less than a whole one
        whole_s = self._seconds.get(_kind(here))
        if share >= 1.0:
            self._seconds[_kind(here)] = whole_s = loading_s + seconds / part
        elif whole_s is None and share >= LEAST_SHARE:
            whole_s = loading_s + seconds / (share * part)
        if whole_s is None:
            return None
        left_s, before = (1.0 - share) * part * max(0.0, whole_s - loading_s), reference_of(here)
        for i, setup in enumerate(self._setups):
            if i > number and i not in ended:
                known, reference = self._seconds.get(_kind(setup)), reference_of(setup)
                ratio = reference.run_s / before.run_s if reference and before else 1.0
                left_s += known or ratio * whole_s
        return left_s

    def _process(self, setup: TrainingSetup, request: Mapping[str, Any]) -> parent.Worker | Coordinator:
        """The process that trains a run; of several ranks, their coordinator."""
        threads, ranks = setup["threads"], setup["ranks"]
        if ranks == 1:
            worker = parent.Worker(threads, "none", os.environ, "deepbench.applications.training.worker")
            worker.send(dict(request))
            return worker
        variables = launch.worker_environment(threads, "none", describe.cores(), os.environ)
        environment = {name: value for name, value in variables.items() if name not in RANK_VARIABLES}
        address = reachable_address(self._hosts)
        command = launch.module_command("deepbench.applications.training.rank")
        return Coordinator(ranks, dict(request), TIMEOUT_S, None, environment, address, self._hosts, command)

    def _keep(self, number: int, name: str, value: Mapping[str, Any]) -> None:
        event = cast(Training, {"run": number, "at": now(), name: value})
        self._store.append({"training": event})
        self.file.training.append(event)


def _failure(ending: process.Ending, kills: int) -> dict[str, Any]:
    """The end of a run whose process did not say it itself. `kills`: of the system for memory, before the process."""
    if ending.was_killed and (describe.kills_for_memory() or 0) > kills:
        reason = f"the system killed a process to free memory: {ending.reason}"
        return {"status": "out_of_memory", "reason": reason}
    return {"status": ending.status, "reason": ending.reason}


def _kind(setup: TrainingSetup) -> str:
    """What runs that take the same time have in common."""
    return " ".join(str(value) for name, value in setup.items() if name != "seed")


def _opened(frameworks: set[str]) -> dict[str, dict[str, Any]]:
    """Facts about these frameworks; a framework that is also a library of cases is opened as such."""
    libraries = {"torch"}
    return {
        **parent.open_backends(sorted(frameworks & libraries), TIMEOUT_S),
        **parent.open_backends(sorted(frameworks - libraries), TIMEOUT_S, module=WORKER),
    }


def now() -> str:
    """The time, as result files have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
