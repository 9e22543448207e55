"""A process that trains one run: `python -m deepbench.training.worker DESCRIPTOR`.

The argument is the descriptor of a socket. The first message says which run, and where its checkpoint is. Then the
process sends one message per event. Checkpoints are read without executing anything in them.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from deepbench import datasets
from deepbench.core.errors import BadInput, DeepBenchError, Unavailable
from deepbench.measure import launch, process, wire
from deepbench.training.application import Application, Rung, Setup, Task, find_application

# Seconds between two events of progress.
PROGRESS_S = 0.5

Emit = Callable[[dict[str, Any]], None]


def main() -> None:
    """Train, and say what happens."""

    def handle(request: dict[str, Any], emit: Emit) -> None:
        setup, checkpoint = Setup(**request["setup"]), Path(request["checkpoint"])
        guarded(lambda: train(setup, checkpoint, request["samples"], emit), emit)

    answer_parent(handle)


def answer_parent(handle: Callable[[dict[str, Any], Emit], None]) -> None:
    """Begin as a worker, handle one request, and end."""
    process.die_with_parent(int(os.environ.get(launch.PARENT, "0")))
    process.limit_output()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)  # a process that a library starts must not keep the socket open
    connection = wire.Connection(socket.socket(fileno=descriptor))
    if (request := connection.receive()) is not None:
        handle(request, connection.send)
    os._exit(0)  # without the destructors of libraries: some hang there, and everything has been sent


def guarded(work: Callable[[], None], emit: Emit) -> None:
    """Work; where it fails in a way that has a status, end with it."""
    try:
        work()
    except MemoryError as error:
        reason = str(error) or "the memory of this machine is full"
        emit({"end": {"status": "out_of_memory", "reason": reason}})
    except DeepBenchError as error:
        status = "unavailable" if isinstance(error, BadInput) else error.record_status
        emit({"end": {"status": status, "reason": str(error)}})
    except RuntimeError as error:
        if "out of memory" not in str(error) and "can't allocate memory" not in str(error):
            raise
        emit({"end": {"status": "out_of_memory", "reason": str(error).splitlines()[0]}})


def train(setup: Setup, checkpoint: Path, done: int, emit: Emit) -> None:
    """Train a run, from the checkpoint if `done` samples are over."""
    begin = perf_counter()
    emit({"phase": "loading data"})
    application = find_application(setup.application)
    rung = application.rungs[setup.rung]
    data = load_data(application, rung)
    loaded = perf_counter()
    emit({"phase": "initialising"})
    task, versions = make_task(setup, rung, data)
    if done:
        task.restore(read_checkpoint(checkpoint), done)
    seconds = {"load_s": loaded - begin, "initialise_s": perf_counter() - loaded}
    emit({"start": {"samples": done, "parameters": task.parameters, "versions": versions, **seconds}})
    batch, last = setup.batch or rung.batch, setup.samples or rung.samples
    samples = done
    while samples < last:
        end = min(samples + rung.every, last)
        emit({"phase": "training"})
        first_s, train_s, steps, told = 0.0, 0.0, 0, perf_counter()
        while samples < end:
            before = perf_counter()
            task.step()
            samples += batch
            if not steps:
                task.loss()
                first_s = perf_counter() - before
            elif perf_counter() - told > PROGRESS_S:
                told = perf_counter()
                emit({"progress": samples})
            steps += 1
            train_s += perf_counter() - before
        before = perf_counter()
        loss = task.loss()
        train_s += perf_counter() - before
        if not math.isfinite(loss):
            reason = f"the loss is {loss} after {samples:,} samples; try a smaller batch"
            emit({"end": {"status": "diverged", "reason": reason}})
            return
        emit({"phase": "evaluating"})
        before = perf_counter()
        quality = task.evaluate()
        evaluate_s = perf_counter() - before
        write_checkpoint(checkpoint, task.state())
        point = {"samples": samples, "quality": quality if math.isfinite(quality) else None, "loss": loss}
        times = {"train_s": train_s, "first_step_s": first_s, "steps": steps, "evaluate_s": evaluate_s}
        emit({"point": {**point, **times}})
    emit({"end": {"status": "ok", "reason": None}})


def load_data(application: Application, rung: Rung) -> list[Any]:
    """What each data set of a rung loads."""
    return [datasets.find(datasets.find_dataset(name)).load() for name in rung.datasets or application.datasets]


def make_task(setup: Setup, rung: Rung, data: list[Any]) -> tuple[Task, dict[str, str]]:
    """A run at its begin, and the versions of its framework."""
    application = find_application(setup.application)
    if setup.framework == "torch":
        from deepbench.backends.torch import import_torch

        torch = import_torch()
        torch.set_num_threads(setup.threads)
        return application.torch_task(setup, rung, data), {"torch": torch.__version__}
    raise Unavailable(f"no framework is called {setup.framework}", "choose torch")


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Replace the file at once: it is never half written."""
    import torch

    draft = path.with_suffix(".new")
    torch.save(state, draft)
    draft.replace(path)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What `write_checkpoint` wrote; `BadInput` where the file is missing or damaged."""
    from pickle import UnpicklingError

    import torch

    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, UnpicklingError) as error:
        raise BadInput(f"the checkpoint {path} cannot be read: {error}; train the run again") from None
    return state


if __name__ == "__main__":
    main()
