"""Starts worker processes and talks to them, whatever happens to them.

It knows processes and time-outs, and nothing of files or terminals. It may be used in any thread: it installs no signal
handlers, and leaves the environment and the affinity of this process alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from time import clock_gettime_ns
from typing import Any

from deepbench.core.json_lines import sanitized
from deepbench.machine import describe
from deepbench.measure import launch, process, wire
from deepbench.results.schema import library_error

# A worker that has closed its socket should end within this time; then it is killed.
GRACE_S = 2.0

# Linux derives the ID of a process's CPU clock from its number (include/linux/posix-timers_types.h).
CLOCK_SCHED = 2


class Worker:
    """A new process that answers messages. Use as a context manager: the process ends with the context."""

    def __init__(self, threads: int, pin: str, inherited: Mapping[str, str]) -> None:
        cores = describe.cores()
        self.cpus = cores[:threads] if pin == "cores" else None
        """The CPUs that it may use; None: its affinity stays as it is."""
        environment = launch.worker_environment(threads, pin, cores, inherited) | {launch.PARENT: str(os.getpid())}
        # Output goes to a file: nobody reads while a kernel is timed, and a full pipe would stop the library.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `__exit__`)
        self._phase = "start"
        ours, theirs = socket.socketpair()
        self._connection = wire.Connection(ours)
        with theirs:
            command = launch.module_command("deepbench.measure.worker", str(theirs.fileno()))
            self._process = process.start(command, environment, self._output, [theirs.fileno()])

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        process.end([self._process])
        self._connection.close()
        self._output.close()

    def ask(self, message: wire.Message, answers: set[str], timeout_s: float) -> process.Ending:
        """Send a message and wait for a message with one of these members, or for the end of the process."""
        with contextlib.suppress(OSError):  # the worker has ended, and its exit code tells why
            self._connection.send(message)
        try:
            # After the answer the socket may stay open: a process that the library started may hold it.
            while (answer := self._connection.receive(timeout_s)) is not None:
                if answers & set(answer):
                    return process.Ending(sanitized(answer))
                self._phase = sanitized(str(answer.get("phase", self._phase)))
        except TimeoutError:
            reason = f"no sign of life for {timeout_s:g} s during: {self._phase}"
            return process.Ending(status="timeout", reason=reason)
        return self._ended()

    def _ended(self) -> process.Ending:
        """Why it closed its connection without an answer."""
        try:
            code = self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            reason = f"it closed its connection without an answer and did not end during: {self._phase}"
            return process.Ending(reason=reason)
        cause = process.exit_status(code) if code < 0 else f"it ended without an answer, {process.exit_status(code)}"
        reason = f"{cause} during: {self._phase}{process.last_output(self._output)}"
        return process.Ending(reason=reason, was_killed=code == -signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal to the process and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def cpu_s(self) -> float:
        """CPU seconds that it has used; 0 where they cannot be read."""
        try:
            return clock_gettime_ns((~self._process.pid << 3) | CLOCK_SCHED) / 1e9
        except OSError:
            return 0.0


def open_backend(name: str, timeout_s: float, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Facts about a library from a new process: `{"library": …}` or `{"unavailable": {reason, remedy}}`.

    `variables` are set in the environment of that process; an empty value removes one.
    """
    inherited = launch.with_variables(os.environ, variables or {})
    with Worker(1, "none", inherited) as worker:
        ending = worker.ask({"open": name, "cpus": None}, {"library", "unavailable"}, timeout_s)
    if ending.answer is None:
        reason = f"the process that loaded {name} failed: {ending.reason}"
        remedy = "use another build of the library; for an exception of Python, correct its method open()"
    elif mismatch := library_error(ending.answer):
        reason, remedy = (
            f"what open() of {name} returns does not fit the schema: {mismatch}",
            "correct its method open()",
        )
    else:
        return ending.answer
    return {"unavailable": {"reason": reason, "remedy": remedy}}
