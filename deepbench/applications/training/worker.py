"""A process that trains one run: `python -m deepbench.applications.training.worker DESCRIPTOR`.

The argument is the descriptor of a socket. The first message says which run, and where its checkpoint is. Then the
process sends one message per event. A message may also ask which version of a framework is here.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from deepbench.applications import datasets
from deepbench.applications.training import checkpoint as checkpoints
from deepbench.applications.training.application import Application, Rung, Setup, Task, find_application
from deepbench.backends.torch import import_torch
from deepbench.core import variables
from deepbench.core.errors import BadInput, DeepBenchError, Unavailable, Unsupported, shorten
from deepbench.machine import describe
from deepbench.measuring import launch, process, wire
from deepbench.networks.traces import from_jax

# Seconds between two events of progress.
PROGRESS_S = 0.5

# Of an exception.
MOST_WORDS = 300

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
    request = connection.receive()
    if request is not None and "open" in request:
        connection.send(open_framework(request["open"]))
    elif request is not None:
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
    except Exception as error:
        # Said here, and not by a traceback: destructors of libraries may hang before the process has ended.
        is_memory = "out of memory" in str(error) or "can't allocate memory" in str(error)
        place = traceback.extract_tb(error.__traceback__)[-1]
        words = shorten(" ".join(str(error).split()), MOST_WORDS)
        reason = f"{type(error).__name__}: {words} ({Path(place.filename).name}, line {place.lineno})"
        emit({"end": {"status": "out_of_memory" if is_memory else "crashed", "reason": reason}})


def train(
    setup: Setup,
    checkpoint: Path,
    done: int,
    emit: Emit,
    join: Callable[[], int] = lambda: 0,
    read: Callable[[Path], dict[str, Any]] = checkpoints.read,
) -> None:
    """Train a run, from the checkpoint if `done` samples are over; from the beginning where it is of other samples.

    `join` brings ranks together and returns that of this process; `read` reads the checkpoint.
    """
    begin = perf_counter()
    emit({"phase": "loading data"})
    application = find_application(setup.application)
    rung = application.rungs[setup.rung]
    data = load_data(application, rung)
    loaded = perf_counter()
    emit({"phase": "initialising"})
    task, versions, rank = make_task(setup, rung, data, join)
    try:
        state = read(checkpoint) if done else {}
    except BadInput:  # damaged: the run begins anew
        state = {}
    # It may be ahead of the file: the process was killed before it told of the evaluation, or the disk was full.
    done = done if state.get("samples") == done else 0
    if done:
        task.restore(state, done)
    seconds = {"load_s": loaded - begin, "initialise_s": perf_counter() - loaded}
    sizes = {"parameters": task.parameters, "examples": task.examples, "tests": task.tests}
    about: dict[str, Any] = {"versions": versions, "environment": variables.tuning(os.environ)}
    about |= {"optimizer": task.optimizer_name, "learning_rate": task.learning_rate}
    about |= {"device": task.device_name} if task.device_name is not None else {}
    emit({"start": {"samples": done, **sizes, **about, **seconds}})
    batch, last = setup.batch or rung.batch, setup.samples or rung.samples
    samples = done

    def tell(steps: int) -> None:
        emit({"progress": samples + steps * batch})

    while samples < last:
        end = min(samples + rung.every, last)
        emit({"phase": "training"})
        cpus = os.sched_getaffinity(0)
        others = describe.OtherPrograms(cpus)
        steps = -(-(end - samples) // batch)
        times = train_steps(task, steps, tell)
        samples += steps * batch
        other_cpus = others.cpus() if setup.ranks == 1 else None
        loss = task.loss()
        if not math.isfinite(loss):
            reason = f"the loss is {loss} after {samples:,} samples; try a smaller batch"
            emit({"end": {"status": "diverged", "reason": reason}})
            return
        emit({"phase": "evaluating"})
        before = perf_counter()
        quality = task.evaluate()
        evaluated = perf_counter()
        if not rank:
            checkpoints.write(checkpoint, {**task.state(), "samples": samples})
        times |= {"evaluate_s": evaluated - before, "checkpoint_s": perf_counter() - evaluated}
        point = {"samples": samples, "quality": quality if math.isfinite(quality) else None, "loss": loss}
        if application.outside_steps is not None:
            times["first_step_s"] = times["train_s"] / steps
        emit({"point": {**point, **times, "steps": steps, "cpus": len(cpus), "other_cpus": other_cpus}})
    emit({"end": {"status": "ok", "reason": None}})


def train_steps(task: Task, steps: int, progress: Callable[[int], None] = lambda _: None) -> dict[str, float]:
    """Train so many steps; the seconds of all, and of the first, in which a framework may compile.

    Only behind the first and the last step it waits for the device. `progress` is told how many steps are done.
    """
    begin = told = perf_counter()
    task.step()
    task.loss()
    first_s = perf_counter() - begin
    for done in range(1, steps):
        if (now := perf_counter()) - told > PROGRESS_S:
            told = now
            progress(done)
        task.step()
    task.loss()
    return {"train_s": perf_counter() - begin, "first_step_s": first_s}


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


def load_data(application: Application, rung: Rung) -> list[Any]:
    """What each data set of a rung loads."""
    return [datasets.find(datasets.find_dataset(name)).load() for name in rung.datasets or application.datasets]


def make_task(
    setup: Setup, rung: Rung, data: list[Any], join: Callable[[], int] = lambda: 0
) -> tuple[Task, dict[str, str], int]:
    """A run at its begin, the versions of its framework, and the rank of this process; `join` brings ranks together."""
    application = find_application(setup.application)
    if setup.framework == "torch":
        torch = import_torch()
        torch.set_num_threads(setup.threads)
        if setup.device != "cpu" and not torch.cuda.is_available():
            remedy = "use --device cpu, or install a PyTorch for this GPU"
            raise Unavailable(f"PyTorch {torch.__version__} finds no GPU", remedy)
        rank = join()
        return application.torch_task(setup, rung, data), {"torch": torch.__version__}, rank
    if setup.ranks > 1:
        raise Unsupported(f"training with several ranks is implemented for PyTorch only, not for {setup.framework}")
    jax = import_jax(setup.threads)
    import jaxlib

    return application.jax_task(setup, rung, data), {"jax": jax.__version__, "jaxlib": jaxlib.__version__}, 0


if __name__ == "__main__":
    main()
