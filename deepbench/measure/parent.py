"""The parent: it gives a case to a new worker process or group, and returns a record whatever happens to them.

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
import time
from collections.abc import Mapping, Sequence
from typing import Any

from deepbench.core.case import Case
from deepbench.core.errors import Unavailable, Unsupported
from deepbench.core.json_lines import sanitized
from deepbench.machine import describe
from deepbench.measure import launch, leftovers, process, wire
from deepbench.measure.group.parent import run_group
from deepbench.plan.modes import Rules
from deepbench.results.record import Record, make_record
from deepbench.results.schema import library_error, schema_error

# A worker that has closed its socket should end within this time; then it is killed.
GRACE_S = 2.0

# So many more processes than CPUs load libraries at once: they mostly wait for the disk.
MORE_THAN_CPUS = 4


def open_backend(name: str, timeout_s: float, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Facts about a library from a new process: `{"library": …}` or `{"unavailable": {reason, remedy}}`."""
    return open_backends([name], timeout_s, variables)[name]


def open_backends(
    names: Sequence[str], timeout_s: float, variables: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """The same for several libraries, each in a process of its own, several at once.

    There are no threads: they would make Ctrl-C wait for the slowest library. `variables` are set in the environment of
    these processes; an empty value removes one.
    """
    inherited, most = launch.with_variables(os.environ, variables or {}), (os.cpu_count() or 1) + MORE_THAN_CPUS
    waiting, answers = list(reversed(dict.fromkeys(names))), dict[str, dict[str, Any]]()
    running: dict[str, _Worker] = {}
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        while waiting or running:
            while waiting and len(running) < most:
                name = waiting[-1]
                try:
                    worker = stack.enter_context(_Worker({"open": name}, 1, "none", inherited))
                except Unavailable as error:
                    if running:  # the system lets us start no more at once
                        most = len(running)
                        break
                    answers[name] = {"unavailable": {"reason": error.reason, "remedy": error.remedy}}
                else:
                    running[name] = worker
                    selector.register(worker.connection.stream, selectors.EVENT_READ, name)
                waiting.pop()
            next_s = min((worker.begin + timeout_s for worker in running.values()), default=0.0) - time.monotonic()
            ready = {key.data for key, _ in selector.select(max(0.0, next_s))} if running else set()
            for name, worker in list(running.items()):
                left_s = worker.begin + timeout_s - time.monotonic()
                if name in ready or left_s <= 0:
                    answers[name] = _facts(name, worker.listen({"library", "unavailable"}, timeout_s, max(0.0, left_s)))
                    selector.unregister(worker.connection.stream)
                    running.pop(name).close()
    return {name: answers[name] for name in names}


def _facts(name: str, ending: process.Ending) -> dict[str, Any]:
    """What the process that loaded a library said, or how it failed."""
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


def measure_case(
    case: Case,
    round_number: int,
    rules: Rules,
    timeout_s: float,
    hosts: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> Record:
    """The record of one case, measured in a new process. A process that fails gives a record too.

    `timeout_s` limits the time without a sign of life: processes send a message when they enter a phase. The ranks of a
    group are spread evenly over `hosts`; without hosts they run on this machine. `variables` are set in the environment
    of these processes; an empty value removes one.
    """
    kills, inherited = describe.kills_for_memory(), launch.with_variables(os.environ, variables or {})
    request = launch.Request(case, round_number, rules, timeout_s)
    try:
        if request.op.is_group:
            ending = run_group(request, hosts, inherited)
        else:
            with _Worker(request.message, case.threads, case.settings["pin"], inherited) as worker:
                ending = worker.listen({"record"}, timeout_s)
    except (Unavailable, Unsupported) as error:
        return make_record(case, round_number, error.record_status, str(error))
    if ending.answer is not None:
        record: Record = ending.answer["record"]
        if mismatch := schema_error(record):
            return make_record(case, round_number, "crashed", f"its record does not fit the schema: {mismatch}")
        return record
    if ending.was_killed and (describe.kills_for_memory() or 0) > (kills or 0):
        reason = f"the system killed a process to free memory: {ending.reason}"
        return make_record(case, round_number, "out_of_memory", reason)
    return make_record(case, round_number, ending.status, ending.reason)


class _Worker:
    """A worker process that has been sent a message. Use as a context manager, which ends it."""

    def __init__(self, message: wire.Message, threads: int, pin: str, inherited: Mapping[str, str]) -> None:
        """`Unavailable` where the system does not start it."""
        cores = describe.cores()
        environment = launch.worker_environment(threads, pin, cores, inherited) | {launch.PARENT: str(os.getpid())}
        with contextlib.ExitStack() as stack:
            scratch = stack.enter_context(leftovers.scratch())
            # Output goes to a file: nobody reads while a kernel is timed, and a full pipe would stop the library.
            self._output = stack.enter_context(tempfile.TemporaryFile())
            ours, theirs = socket.socketpair()
            stack.enter_context(ours)
            with theirs:
                command = launch.module_command("deepbench.measure.worker", str(theirs.fileno()))
                self._child = process.start(command, environment, self._output, [theirs.fileno()])
            stack.callback(process.end, [self._child])
            scratch.add(self._child.pid)
            self.connection = wire.Connection(ours)
            self.begin = time.monotonic()
            with contextlib.suppress(OSError):  # the worker has ended, and its exit code tells why
                self.connection.send({**message, "cpus": cores[:threads] if pin == "cores" else None})
            self.close = stack.pop_all().close

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def listen(self, kinds: set[str], timeout_s: float, first_s: float | None = None) -> process.Ending:
        """Wait for an answer of one of these kinds, for so long between two messages; `first_s` to the first one."""
        phase, wait_s = "start", timeout_s if first_s is None else first_s
        try:
            # After the answer the socket may stay open: a process that the library started may hold it.
            while (answer := self.connection.receive(wait_s)) is not None:
                if kinds & set(answer):
                    return process.Ending(sanitized(answer))
                phase, wait_s = sanitized(str(answer.get("phase", phase))), timeout_s
        except TimeoutError:
            return process.Ending(status="timeout", reason=f"no sign of life for {timeout_s:g} s during: {phase}")
        try:
            code = self._child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            return process.Ending(reason=f"it closed its connection without an answer and did not end during: {phase}")
        cause = process.exit_status(code) if code < 0 else f"it ended without an answer, {process.exit_status(code)}"
        return process.failure(f"{cause} during: {phase}", self._output, was_killed=code == -signal.SIGKILL)
