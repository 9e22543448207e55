"""Starts worker processes and talks to them, whatever happens to them.

It knows processes and time-outs, and nothing of files or terminals. It may be used in any thread: it installs no signal
handlers, and leaves the environment and the affinity of this process alone.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from time import clock_gettime_ns
from typing import Any

from deepbench.core.backend import known_backend
from deepbench.core.errors import MORE_MEMORY, Unavailable
from deepbench.core.json_lines import sanitized
from deepbench.machine import describe
from deepbench.measuring import awake, launch, leftovers, process, wire
from deepbench.results.schema import library_error

# A worker that has closed its socket should end within this time; then it is killed.
GRACE_S = 2.0

# Linux derives the ID of a process's CPU clock from its number (include/linux/posix-timers_types.h).
CLOCK_SCHED = 2

# So many more processes than CPUs load libraries at once: they mostly wait for the disk.
MORE_THAN_CPUS = 4


class Worker:
    """A new process that answers messages. Use as a context manager: the process ends with the context."""

    def __init__(
        self, threads: int, pin: str, inherited: Mapping[str, str], module: str = "deepbench.measuring.worker"
    ) -> None:
        """`Unavailable` where the system does not start it."""
        cores = describe.cores()
        self.cpus = cores[:threads] if pin == "cores" else None
        """The CPUs that it may use; None: its affinity stays as it is."""
        environment = launch.worker_environment(threads, pin, cores, inherited) | {launch.PARENT: str(os.getpid())}
        self._phase = "start"
        with contextlib.ExitStack() as stack:
            scratch = stack.enter_context(leftovers.scratch())
            environment["TMPDIR"] = str(scratch.folder)  # for what a library compiles, and its compiler leaves
            # Output goes to a file: nobody reads while a kernel is timed, and a full pipe would stop the library.
            self._output = stack.enter_context(tempfile.TemporaryFile())
            ours, theirs = socket.socketpair()
            stack.enter_context(ours)
            with theirs:
                command = launch.module_command(module, str(theirs.fileno()))
                self._child = process.start(command, environment, self._output, [theirs.fileno()])
            stack.callback(process.end, [self._child])
            scratch.add(self._child.pid)
            self.connection = wire.Connection(ours)
            self.begin = awake.now()
            self.close = stack.pop_all().close

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, message: wire.Message, answers: set[str], timeout_s: float) -> process.Ending:
        """Send a message, and wait for an answer as `listen` does."""
        self.send(message)
        return self.listen(answers, timeout_s)

    def send(self, message: wire.Message) -> None:
        """Send a message. Where the worker has ended, `listen` tells why."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def listen(self, answers: set[str], timeout_s: float, first_s: float | None = None) -> process.Ending:
        """Wait for a message with one of these members, so long between two messages; `first_s` to the first one."""
        wait_s = timeout_s if first_s is None else first_s
        try:
            # After the answer the socket may stay open: a process that the library started may hold it.
            while (answer := self.connection.receive(wait_s)) is not None:
                if answers & set(answer):
                    return process.Ending(sanitized(answer))
                self._phase, wait_s = sanitized(str(answer.get("phase", self._phase))), timeout_s
        except TimeoutError:
            reason = f"no sign of life for {timeout_s:g} s during: {self._phase}"
            return process.Ending(status="timeout", reason=reason)
        try:
            code = self._child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            reason = f"it closed its connection without an answer and did not end during: {self._phase}"
            return process.Ending(reason=reason)
        cause = process.exit_status(code) if code < 0 else f"it ended without an answer, {process.exit_status(code)}"
        return process.failure(f"{cause} during: {self._phase}", self._output, was_killed=code == -signal.SIGKILL)

    def pause(self) -> None:
        """Stop the process and all that it started, so that none of its threads uses a core."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let them run again."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)

    def cpu_s(self) -> float:
        """CPU seconds that it has used; 0 where they cannot be read."""
        try:
            return clock_gettime_ns((~self._child.pid << 3) | CLOCK_SCHED) / 1e9
        except OSError:
            return 0.0


def open_backend(name: str, timeout_s: float, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Facts about a library from a new process: `{"library": …}` or `{"unavailable": {reason, remedy}}`."""
    return open_backends([name], timeout_s, variables)[name]


def open_backends(
    names: Sequence[str],
    timeout_s: float,
    variables: Mapping[str, str] | None = None,
    module: str = "deepbench.measuring.worker",
    devices: Mapping[str, str] | None = None,
) -> dict[str, dict[str, Any]]:
    """The same for several libraries, each in a process of its own, several at once but for those of GPUs.

    A GPU in exclusive mode refuses a second process, so its libraries are opened one after the other. There are no
    threads: they would make Ctrl-C wait for the slowest library. `variables` are set in the environment of these
    processes; an empty value removes one. They run `module`. `devices` has the device to open where that is not the
    usual one.
    """
    inherited, most = launch.with_variables(os.environ, variables or {}), (os.cpu_count() or 1) + MORE_THAN_CPUS
    waiting, answers = list(reversed(dict.fromkeys(names))), dict[str, dict[str, Any]]()
    running: dict[str, Worker] = {}
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        while waiting or running:
            while waiting and len(running) < most:
                busy = any(_uses_gpu(n, devices) for n in running)
                name = next((n for n in reversed(waiting) if not (busy and _uses_gpu(n, devices))), None)
                if name is None:
                    break
                try:
                    worker = stack.enter_context(Worker(1, "none", inherited, module))
                    worker.send({"open": name, "cpus": None, "device": (devices or {}).get(name)})
                except Unavailable as error:
                    if running:  # the system lets us start no more at once
                        most = len(running)
                        break
                    answers[name] = {"unavailable": {"reason": error.reason, "remedy": error.remedy}}
                else:
                    running[name] = worker
                    selector.register(worker.connection.stream, selectors.EVENT_READ, name)
                waiting.remove(name)
            next_s = min((worker.begin + timeout_s for worker in running.values()), default=0.0) - awake.now()
            step_s = awake.step(next_s, timeout_s)
            with awake.waiting(step_s):
                ready = {key.data for key, _ in selector.select(step_s)} if running else set()
            for name, worker in list(running.items()):
                left_s = worker.begin + timeout_s - awake.now()
                if name in ready or left_s <= 0:
                    answers[name] = _facts(name, worker.listen({"library", "unavailable"}, timeout_s, max(0.0, left_s)))
                    selector.unregister(worker.connection.stream)
                    running.pop(name).close()
    return {name: answers[name] for name in names}


def _uses_gpu(name: str, devices: Mapping[str, str] | None) -> bool:
    backend = known_backend(name)
    return backend is not None and (devices or {}).get(name, backend.device) != "cpu"


def _facts(name: str, ending: process.Ending) -> dict[str, Any]:
    """What the process that loaded a library said, or how it failed."""
    if ending.answer is None:
        reason = f"the process that loaded {name} failed: {ending.reason}"
        remedy = "use another build of the library; for an exception of Python, correct its method open()"
        if ending.status == "out_of_memory":
            remedy = MORE_MEMORY
    elif mismatch := library_error(ending.answer):
        reason, remedy = (
            f"what open() of {name} returns does not fit the schema: {mismatch}",
            "correct its method open()",
        )
    else:
        return ending.answer
    return {"unavailable": {"reason": reason, "remedy": remedy}}
