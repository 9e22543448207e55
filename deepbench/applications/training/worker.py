"""A process that trains one run: `python -m deepbench.applications.training.worker DESCRIPTOR`.

The argument is the descriptor of a socket. The first message says which run, and where its checkpoints are. Then the
process sends one message per event. Besides the events of a result file there are `note`, a sentence for people, and
`stopped`: the system has refused something that has nothing to do with the run, so the run can go on later. A message
may also ask which version of a framework is here.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from deepbench.applications import datasets
from deepbench.applications.training import checkpoint as checkpoints
from deepbench.applications.training.application import Application, Rung, Setup, Task, find_application
from deepbench.backends.torch import import_torch
from deepbench.core import variables
from deepbench.core.errors import BadInput, DeepBenchError, Unavailable, Unsupported, shorten
from deepbench.core.files import FULL_DISK, NotWritten
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
        setup, places = Setup(**request["setup"]), Places(Path(request["checkpoints"]), request["run"])
        guarded(lambda: train(setup, places, request["samples"], emit), emit)

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
    """Work; where it fails in a way that has a status, end with it. Where the disk is full, nothing has ended."""
    try:
        work()
    except NotWritten as error:
        emit({"stopped": str(error)})
    except DeepBenchError as error:
        status = "unavailable" if isinstance(error, BadInput) else error.record_status
        emit({"end": {"status": status, "reason": str(error)}})
    except Exception as error:
        # Said here, and not by a traceback: destructors of libraries may hang before the process has ended.
        place = traceback.extract_tb(error.__traceback__)[-1]
        if is_full_disk(error):
            where = getattr(error, "filename", None) or f"{Path(place.filename).name}, line {place.lineno}"
            emit({"stopped": f"the disk is full ({where}): {one_line(error)}; free some space"})
        elif is_full_memory(error):
            reason = one_line(error) or "the memory of this machine is full"
            emit({"end": {"status": "out_of_memory", "reason": reason}})
        else:
            reason = f"{type(error).__name__}: {one_line(error)} ({Path(place.filename).name}, line {place.lineno})"
            emit({"end": {"status": "crashed", "reason": reason}})


def one_line(error: Exception) -> str:
    """The text of an exception of a library, shortened."""
    return shorten(" ".join(str(error).split()), MOST_WORDS)


def is_full_disk(error: Exception) -> bool:
    """Whether a disk is full, or what a user may use of it. Libraries raise exceptions of their own with its words."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in FULL_DISK
    return any(os.strerror(number) in str(error) for number in FULL_DISK)


def is_full_memory(error: Exception) -> bool:
    """Whether memory lacks, of this machine or of a GPU."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return "out of memory" in str(error) or "can't allocate memory" in str(error)


@dataclass(frozen=True)
class Places:
    """Where the checkpoints of a run are: one for each evaluation, until the parent has stored a later one."""

    folder: Path
    run: int

    def path(self, samples: int) -> Path:
        """The checkpoint after so many samples."""
        return self.folder / checkpoints.file_name(self.run, samples)


def restore(task: Task, path: Path, samples: int, read: Callable[[Path], dict[str, Any]] = checkpoints.read) -> None:
    """Let a run go on from a checkpoint after so many samples. `BadInput` where it is damaged or of another run.

    After an error the task is of no use.
    """
    state = read(path)
    if state.get("samples") != samples:
        raise BadInput(f"the checkpoint {path} is not one after {samples:,} samples")
    try:
        task.restore(state, samples)
    except Exception as error:
        if is_full_memory(error):
            raise
        raise BadInput(f"the checkpoint {path} is not one of this run: {one_line(error)}") from None


def train(
    setup: Setup,
    places: Places,
    done: int,
    emit: Emit,
    join: Callable[[], int] = lambda: 0,
    read: Callable[[Path], dict[str, Any]] = checkpoints.read,
) -> None:
    """Train a run, from its checkpoint if `done` samples are over; from the beginning where that cannot be used.

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
    if done:
        try:
            restore(task, places.path(done), done, read)
        except BadInput as error:
            emit({"note": f"begins anew: {error}"})
            done = 0
            task, versions, rank = make_task(setup, rung, data, lambda: rank)
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
            with process.unlimited_files():
                checkpoints.write(places.path(samples), {**task.state(), "samples": samples})
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
