"""A process that runs steps of a network when it is asked to: `python -m deepbench.networks.predictions.runner`.

The first line of the standard input says which network, as JSON. Each further line asks for steps during so many
seconds. Answers are lines of JSON on the standard output; what the program itself prints goes to the standard error.
The process ends with its standard input.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from time import perf_counter_ns
from typing import Any

from deepbench.core.errors import DeepBenchError
from deepbench.machine import describe
from deepbench.measuring import launch, process
from deepbench.measuring.clock import Sample, SystemClock, take_sample

# The network that measures what an operator costs besides its kernel. Its code is not in the caches: the kernels of a
# real step evict it. So memory that is this many times as large as the caches is read before each sample.
OVERHEAD = "overhead"
TIMES_CACHE = 2


@dataclass(frozen=True)
class StepRequest:
    """Which network, and how."""

    program: str
    """FILE.py:FUNCTION, or `OVERHEAD`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    is_training: bool = False
    optimizer: str = "sgd"
    threads: int = 1


class RunnerError(DeepBenchError):
    """The process of a network ended, or its program failed; the text is its last words."""


class Runner:
    """A network in a process of its own. Use as a context manager."""

    def __init__(self, request: StepRequest, keeps_memory: bool = True) -> None:
        """`keeps_memory`: freed memory stays in the process, as it does where its kernels are measured."""
        environment = launch.worker_environment(request.threads, "none", [], os.environ)
        environment |= launch.KEEPS_MEMORY if keeps_memory else {}
        environment[launch.PARENT] = str(os.getpid())
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the process)
        self._child = subprocess.Popen(
            launch.module_command("deepbench.networks.predictions.runner"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env=environment,
            start_new_session=True,
        )
        assert self._child.stdin is not None, "it is a pipe"
        assert self._child.stdout is not None, "it is a pipe"
        self._questions, self._answers = self._child.stdin, self._child.stdout
        try:
            self._send(asdict(request))
            self._receive()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            self._questions.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()
        self._answers.close()
        self._words.close()

    def samples(self, seconds: float, least: int = 1) -> list[Sample]:
        """Steps that run one after the other for so many seconds; at least `least` of them.

        One step before them is not measured: caches and branch predictors belonged to other processes.
        """
        self._send({"seconds": seconds, "least": least})
        return [Sample(*values) for values in self._receive()["samples"]]

    def _send(self, message: Mapping[str, Any]) -> None:
        try:
            self._questions.write(json.dumps(message).encode() + b"\n")
            self._questions.flush()
        except OSError:
            pass  # the answer says why

    def _receive(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            self._child.wait()
            raise RunnerError(f"the program of the network ended{process.last_output(self._words)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RunnerError(answer["error"])
        return answer


def main() -> None:
    """Answer requests until the standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the program prints must not mix with the answers

    def answer(message: Mapping[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")

    request = StepRequest(**json.loads(sys.stdin.readline()))
    try:
        run, evict = _prepare(request)
        for _ in range(2):
            run()
    except DeepBenchError as error:
        answer({"error": str(error)})
        return
    answer({})
    for line in sys.stdin:
        wanted = json.loads(line)
        answer({"samples": _samples(run, evict, wanted["seconds"], wanted["least"])})


def _prepare(request: StepRequest) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A step of the network, and what to do before each."""
    from deepbench.backends.torch import import_torch
    from deepbench.networks.traces import program

    if request.program == OVERHEAD:
        torch = import_torch()
        memory = torch.ones(TIMES_CACHE * (describe.cache_bytes() or describe.GUESSED_CACHE_BYTES) // 4)
        network = program.program_of(tiny_network(torch), OVERHEAD, request.is_training, request.optimizer)
        return network.run, memory.sum
    return program.load(request.program, request.settings, request.is_training, request.optimizer).run, lambda: None


def tiny_network(torch: Any) -> Any:
    """A network whose kernels take no time: what remains is what each operator costs besides."""
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.ones(4, 4), lambda y: y.sum()


def _samples(run: Callable[[], Any], evict: Callable[[], Any], seconds: float, least: int) -> list[Sample]:
    def timer(turns: int) -> int:
        begin = perf_counter_ns()
        for _ in range(turns):
            run()
        return perf_counter_ns() - begin

    run()
    clock, samples = SystemClock(timer), list[Sample]()
    end = clock.now() + seconds
    while len(samples) < least or clock.now() < end:
        evict()
        samples.append(take_sample(clock, 1))
    return samples


if __name__ == "__main__":
    process.die_with_parent(int(os.environ.get(launch.PARENT, "0")))
    main()
