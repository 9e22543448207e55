"""The parent: it gives a case to a new worker process or group, and returns a record whatever happens to them.

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
from collections.abc import Mapping, Sequence
from typing import IO, Any

from deepbench.core.case import Case
from deepbench.core.errors import Unavailable, Unsupported
from deepbench.core.json_lines import sanitized
from deepbench.machine import describe
from deepbench.measure import launch, process, wire
from deepbench.measure.group.parent import run_group
from deepbench.plan.modes import Rules
from deepbench.results.record import Record, make_record
from deepbench.results.schema import library_error, schema_error

# A worker that has closed its socket should end within this time; then it is killed.
GRACE_S = 2.0


def open_backend(name: str, timeout_s: float, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Facts about a library from a new process: `{"library": …}` or `{"unavailable": {reason, remedy}}`.

    `variables` are set in the environment of that process; an empty value removes one.
    """
    inherited = launch.with_variables(os.environ, variables or {})
    ending = _run_worker({"open": name}, {"library", "unavailable"}, 1, "none", timeout_s, inherited)
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
            ending = _run_worker(request.message, {"record"}, case.threads, case.settings["pin"], timeout_s, inherited)
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


def _run_worker(
    message: wire.Message, kinds: set[str], threads: int, pin: str, timeout_s: float, inherited: Mapping[str, str]
) -> process.Ending:
    """Start a worker, send it a message, and wait for an answer of one of these kinds."""
    cores = describe.cores()
    message = {**message, "cpus": cores[:threads] if pin == "cores" else None}
    environment = launch.worker_environment(threads, pin, cores, inherited) | {launch.PARENT: str(os.getpid())}
    # Output goes to a file: nobody reads while a kernel is timed, and a full pipe would stop the library.
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryFile() as output:
        with theirs:
            command = launch.module_command("deepbench.measure.worker", str(theirs.fileno()))
            worker = process.start(command, environment, output, [theirs.fileno()])
        try:
            return _listen(worker, wire.Connection(ours), message, kinds, output, timeout_s)
        finally:
            process.end([worker])


def _listen(
    worker: process.Child,
    connection: wire.Connection,
    message: wire.Message,
    kinds: set[str],
    output: IO[bytes],
    timeout_s: float,
) -> process.Ending:
    phase = "start"
    with contextlib.suppress(OSError):  # the worker has ended, and its exit code tells why
        connection.send(message)
    try:
        # After the answer the socket may stay open: a process that the library started may hold it.
        while (answer := connection.receive(timeout_s)) is not None:
            if kinds & set(answer):
                return process.Ending(sanitized(answer))
            phase = sanitized(str(answer.get("phase", phase)))
    except TimeoutError:
        return process.Ending(status="timeout", reason=f"no sign of life for {timeout_s:g} s during: {phase}")
    try:
        code = worker.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        return process.Ending(reason=f"it closed its connection without an answer and did not end during: {phase}")
    cause = process.exit_status(code) if code < 0 else f"it ended without an answer, {process.exit_status(code)}"
    reason = f"{cause} during: {phase}{process.last_output(output)}"
    return process.Ending(reason=reason, was_killed=code == -signal.SIGKILL)
