"""A process that trains one run: `python -m deepbench.training.worker DESCRIPTOR`.

The argument is the descriptor of a socket. The first message says which run, and where its checkpoint is. Then the
process sends one message per event. A message may also ask which version of a framework is here.
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
from deepbench.backends.torch import import_torch
from deepbench.core.errors import BadInput, DeepBenchError, Unavailable
from deepbench.measure import launch, process, wire
from deepbench.networks import from_jax
from deepbench.training import checkpoint as checkpoints
from deepbench.training.application import Rung, Setup, Task, find_application

# Seconds between two events of progress.
PROGRESS_S = 0.5

Emit = Callable[[dict[str, Any]], None]


def main() -> None:
    """Train, and say what happens."""
    process.die_with_parent(int(os.environ.get(launch.PARENT, "0")))
    process.limit_output()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)  # a process that a library starts must not keep the socket open
    connection = wire.Connection(socket.socket(fileno=descriptor))
    request = connection.receive()
    if request is not None and "open" in request:
        connection.send(open_framework(request["open"]))
    elif request is not None:
        serve(Setup(**request["setup"]), Path(request["checkpoint"]), request["samples"], connection.send)
    os._exit(0)  # without the destructors of libraries: some hang there, and everything has been sent


def serve(setup: Setup, checkpoint: Path, done: int, emit: Emit) -> None:
    """Train a run, and end with its status."""
    try:
        train(setup, checkpoint, done, emit)
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
    data = [datasets.find(datasets.find_dataset(name)).load() for name in rung.datasets or application.datasets]
    loaded = perf_counter()
    emit({"phase": "initialising"})
    task, versions = _task(setup, rung, data)
    if done:
        task.restore(checkpoints.read(checkpoint), done)
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
        checkpoints.write(checkpoint, task.state())
        point = {"samples": samples, "quality": quality if math.isfinite(quality) else None, "loss": loss}
        times = {"train_s": train_s, "first_step_s": first_s, "steps": steps, "evaluate_s": evaluate_s}
        emit({"point": {**point, **times}})
    emit({"end": {"status": "ok", "reason": None}})


def open_framework(name: str) -> dict[str, Any]:
    """Facts about a framework that is no library of `backends/`, or why it is not available."""
    try:
        jax = import_jax(threads=1)
    except Unavailable as error:
        return {"unavailable": {"reason": error.reason, "remedy": error.remedy}}
    return {"library": {"name": "JAX", "version": jax.__version__, "path": jax.__file__, "threading": "own threads"}}


def import_jax(threads: int) -> Any:
    """The module `jax`, which will use so many threads of the CPU; `Unavailable` without it."""
    # XLA reads it when it is first used. It has no other way to choose the number.
    os.environ["PJRT_NPROC"] = str(threads)
    return from_jax.import_jax()


def _task(setup: Setup, rung: Rung, data: list[Any]) -> tuple[Task, dict[str, str]]:
    application = find_application(setup.application)
    if setup.framework == "torch":
        torch = import_torch()
        torch.set_num_threads(setup.threads)
        return application.torch_task(setup, rung, data), {"torch": torch.__version__}
    if setup.framework == "jax":
        jax = import_jax(setup.threads)
        import jaxlib

        return application.jax_task(setup, rung, data), {"jax": jax.__version__, "jaxlib": jaxlib.__version__}
    raise Unavailable(f"no framework is called {setup.framework}", "choose torch or jax")


if __name__ == "__main__":
    main()
