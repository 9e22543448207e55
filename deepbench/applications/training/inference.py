"""Serving: the models that a file has trained answer queries, and how long that takes is appended to the file.

Each model has a process of its own. A scenario that fails ends its process, and the others go on in a new one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

from deepbench.applications.judge.trained import Run, runs_of, trained
from deepbench.applications.training import loadgen
from deepbench.applications.training.scenarios import ServingOptions
from deepbench.applications.training.session import (
    Stopped,
    header_of,
    model_name,
    models_of,
    now,
    require_same_rungs,
    setup_of,
)
from deepbench.core.errors import BadInput, DeepBenchError
from deepbench.core.json_lines import sanitized
from deepbench.core.progress import Activity, Progress, no_progress
from deepbench.core.shell import command
from deepbench.machine import describe
from deepbench.measuring import parent
from deepbench.results.file import ResultFile, Store, read_results
from deepbench.results.record import Scenario, Serving


class InferenceSession:
    """A file whose models answer queries, and the file that the results go to. Use as a context manager."""

    def __init__(self, source: ResultFile, file: ResultFile, store: Store, options: ServingOptions) -> None:
        self.file = file
        self._source, self._store, self._options = source, store, options
        self._served = served_runs(source)
        self._before = len(file.serving)

    @classmethod
    def open(cls, path: Path, options: ServingOptions, output: Path | None = None) -> InferenceSession:
        """Append to the file that has trained the models, or to `output`; `BadInput` where it has no model."""
        if options.driver == "loadgen":
            loadgen.require()
        source = read_results(path)
        if not served_runs(source):
            raise BadInput(f"{path} has no model; train one: {command('train', 'all', '-o', 'new.jsonl')}")
        require_same_rungs(path, [run.setup for _, run in served_runs(source)])
        if output is None:
            return cls(source, *_reopened(path), options)
        setups = source.header["plan"]["training"]
        if output.exists():
            file, store = _reopened(output)
            plan = file.header["plan"]
            if plan["mode"] != "serving" or plan.get("training") != setups:
                store.close()
                raise BadInput(
                    f"{output} exists, but has no results of serving the models of {path}; choose another name with -o"
                )
        else:
            store = Store.create(output, sanitized(header_of(setups, "serving", options.timeout_s)))
            file = read_results(output)
        return cls(source, file, store, options)

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    @property
    def added(self) -> ResultFile:
        """The file with what this session has added to it alone."""
        return replace(self.file, serving=self.file.serving[self._before :])

    def run(self, progress: Progress = no_progress) -> None:
        """Let every model answer in every scenario."""
        scenarios, total, done = self._options.scenarios, len(self._served) * len(self._options.scenarios), 0
        for number, run in self._served:
            left = list(scenarios)
            while left:
                progress(Activity(f"{run.setup['application']}, {left[0]}", done, total))
                for line in self._serve(number, run, left):
                    self._keep(line)
                    left.remove(line["scenario"])
                    done += 1
                    if left:
                        progress(Activity(f"{run.setup['application']}, {left[0]}", done, total))

    def _serve(self, number: int, run: Run, scenarios: Sequence[Scenario]) -> Iterator[Serving]:
        """A line for each scenario, up to and with the first one at which the process fails; for all if none can be."""
        options, setup = replace(self._options, scenarios=list(scenarios)), setup_of(run.setup)
        setup = replace(setup, threads=options.threads or setup.threads, device=options.device or setup.device)
        setup = replace(setup, ranks=1)  # however many have trained it
        about = {"run": number, "device": setup.device, "precision": setup.precision, "threads": setup.threads}
        model = models_of(self._source.path) / model_name(number)
        request = {
            "setup": asdict(setup),
            "checkpoint": str(model.resolve()),
            "samples": run.points[-1].samples,
            "quality": run.quality,
            "options": asdict(options),
        }
        left = list(scenarios)

        def failed(status: str, reason: str, names: Sequence[Scenario]) -> Iterator[Serving]:
            for name in names:
                yield cast(Serving, {**about, "at": now(), "scenario": name, "status": status, "reason": reason})

        try:
            with parent.Worker(
                setup.threads, "none", os.environ, "deepbench.applications.training.serving_worker"
            ) as worker:
                worker.send(request)
                start = None
                while True:
                    ending = worker.listen({"start", "progress", "scenario", "stopped", "end"}, options.timeout_s)
                    answer = ending.answer
                    if answer is None:
                        # A model that cannot be loaded fails in every scenario; one that fails later, in this one.
                        yield from failed(ending.status, ending.reason, left[: 1 if start else None])
                        return
                    if "stopped" in answer:
                        raise Stopped(answer["stopped"])
                    if "start" in answer:
                        start = answer["start"]
                    elif "scenario" in answer:
                        found = answer["scenario"]
                        left.remove(found["scenario"])
                        yield cast(Serving, {**about, "at": now(), "start": start, **found})
                    elif "end" in answer:
                        end = answer["end"]
                        yield from failed(end["status"], end["reason"], left[: 1 if start else None])
                        return
        except Stopped:
            raise
        except DeepBenchError as error:
            yield from failed(error.record_status, str(error), left)

    def _keep(self, line: Serving) -> None:
        self._store.append({"serving": line})
        self.file.serving.append(line)


def served_runs(file: ResultFile) -> list[tuple[int, Run]]:
    """Of each setup that a file has trained, the first run that ended well, by its place in the plan."""
    runs = runs_of(file)
    whole = [next(iter(group.whole), None) for group in trained(runs)]
    return [(number, run) for number, run in enumerate(runs) if any(run is other for other in whole)]


def _reopened(path: Path) -> tuple[ResultFile, Store]:
    """An existing file of this machine; `BadInput` for one of another."""
    store = Store.reopen(path)
    try:
        file = read_results(path)
        if different := describe.differences(file.header["machine"], describe.describe_machine()):
            raise BadInput(f"{path} is of another machine ({different[0]}); write to a new file with -o")
        store.append_after(file)
    except BaseException:
        store.close()
        raise
    return file, store
