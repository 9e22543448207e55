"""The parent: a case goes to a fresh worker process, and a record comes back whatever happens to it.

Knows processes and time-outs; knows nothing of files or terminals.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any

from deepbench.core.backend import find_backend
from deepbench.core.case import Case
from deepbench.core.errors import Unavailable, Unsupported
from deepbench.core.json_lines import from_line, printable, sanitized
from deepbench.core.op import find_op
from deepbench.machine import describe
from deepbench.measure import launch
from deepbench.measure.group import link, parent
from deepbench.native import mpi
from deepbench.plan.modes import Rules
from deepbench.results.record import Record, Status, make_record
from deepbench.results.schema import library_error, schema_error

# A worker that closed its pipe should end at once; after this it is killed.
GRACE_S = 2.0

# What is quoted of a library's last words.
TAIL_BYTES = 600


@dataclass(frozen=True)
class Ending:
    """How a worker ended."""

    answer: dict[str, Any] | None
    phase: str
    timed_out: bool
    exit_code: int | None
    output: str
    """The tail of what was printed on standard output and error."""


def open_backend(name: str, timeout_s: float) -> dict[str, Any]:
    """Facts about a library from a fresh process: `{"library": …}` or `{"unavailable": {reason, remedy}}`."""
    ending = _serve({"open": name}, 1, "none", timeout_s)
    if ending.answer is not None and "record" not in ending.answer:
        misfit = library_error(ending.answer)
        if misfit is None:
            return ending.answer
        return {"unavailable": {"reason": f"its facts do not fit the schema: {misfit}", "remedy": "mend its open()"}}
    return {
        "unavailable": {
            "reason": f"loading it ended the process: {_cause(ending, timeout_s)}",
            "remedy": "name another build of the library",
        }
    }


def measure_case(
    case: Case,
    round_number: int,
    rules: Rules,
    timeout_s: float,
    hosts: Sequence[str] = (),
) -> Record:
    """The record of one case, measured in a fresh worker; a worker that fails is a record too.

    `timeout_s` bounds the time without a sign of life: workers tell when they enter a phase. A group's ranks run on
    `hosts`, as many on each; on this machine where there are none.
    """
    if find_op(case.op).is_group:
        return _measure_group(case, round_number, rules, timeout_s, hosts)
    kills = describe.kills_for_memory()
    request = {"case": case.text, "round": round_number, "rules": asdict(rules)}
    ending = _serve(request, case.threads, case.settings["pin"], timeout_s)
    if ending.answer is not None and "record" in ending.answer:
        return _fitting(ending.answer["record"], case, round_number)
    status: Status = "timeout" if ending.timed_out else "crashed"
    reason = f"{_cause(ending, timeout_s)} during: {ending.phase}"
    killed = ending.exit_code == -signal.SIGKILL and not ending.timed_out
    if killed and (describe.kills_for_memory() or 0) > (kills or 0):
        status, reason = "out_of_memory", f"the kernel killed it for memory during: {ending.phase}"
    return make_record(case, round_number, status, reason)


def _fitting(found: Record, case: Case, round_number: int) -> Record:
    """What a worker sent, if it fits the schema; else a record that says why not."""
    misfit = schema_error(found)
    if misfit is None:
        return found
    return make_record(case, round_number, "crashed", f"its record does not fit the schema: {misfit}")


def _measure_group(case: Case, round_number: int, rules: Rules, timeout_s: float, hosts: Sequence[str]) -> Record:
    """The record of a case in which one process a rank takes part."""
    kills = describe.kills_for_memory()
    backend: Any = find_backend(case.backend)
    ranks, cpus = case.problem.ranks, describe.cores()
    base = launch.worker_environment(case.threads, "none", cpus, os.environ)
    for name in link.LAUNCHED:  # what started us must not stand for what starts the ranks
        base.pop(name, None)
    request = {"case": case.text, "round": round_number, "rules": asdict(rules), "cpus": None}
    try:
        if case.settings["pin"] == "cores":
            if hosts:
                raise Unsupported("pin=cores is for ranks on this machine; launchers on other hosts pin by themselves")
            if ranks > len(cpus):
                raise Unsupported(f"pin=cores wants a core for each of {ranks} ranks, there are {len(cpus)}")
            request["cpus"] = cpus
        processes = backend.processes(case)
        launcher = backend.launcher(processes, hosts)
        used, _ = mpi.spread(processes, hosts)
        environment = {**base, **backend.environment(case)}
    except Unavailable as error:
        return make_record(case, round_number, "unavailable", str(error))
    except Unsupported as error:
        return make_record(case, round_number, "unsupported", str(error))
    address = parent.reachable_address(hosts)
    ending = parent.Hub(processes, request, launcher, environment, timeout_s, address, used).serve()
    if ending.answer is not None and "record" in ending.answer:
        return _fitting(ending.answer["record"], case, round_number)
    if ending.answer is not None:
        return make_record(case, round_number, "unavailable", ending.answer["failed"])
    status: Status = "timeout" if ending.timed_out else "crashed"
    reason = ending.reason
    # Launchers have exit codes of their own for it.
    if not ending.timed_out and (describe.kills_for_memory() or 0) > (kills or 0):
        status, reason = "out_of_memory", f"the kernel killed a rank for memory: {reason}"
    return make_record(case, round_number, status, reason)


def _serve(request: dict[str, Any], threads: int, pin: str, timeout_s: float) -> Ending:
    cpus = describe.cores()
    request = {**request, "cpus": launch.worker_cpus(threads, pin, cpus)}
    environment = launch.worker_environment(threads, pin, cpus, os.environ)
    environment["DEEPBENCH_PARENT"] = str(os.getpid())
    read_end, write_end = os.pipe()
    # A file, not a pipe: nobody reads while the kernel is timed, and a full pipe would stop the library for good.
    with open(read_end, "rb", buffering=0) as pipe, tempfile.TemporaryFile() as output:
        try:
            worker = subprocess.Popen(
                launch.worker_command(write_end),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
                pass_fds=(write_end,),
                start_new_session=True,  # so that a time-out can kill whatever the library started
            )
        finally:
            os.close(write_end)
        try:
            return _listen(worker, request, pipe, output, timeout_s)
        finally:
            _kill_group(worker)


def _listen(
    worker: subprocess.Popen[bytes],
    request: dict[str, Any],
    pipe: IO[bytes],
    output: IO[bytes],
    timeout_s: float,
) -> Ending:
    answer, phase, timed_out = None, "start", False
    assert worker.stdin is not None
    try:
        worker.stdin.write((json.dumps(request) + "\n").encode())
        worker.stdin.close()
    except BrokenPipeError:
        pass  # it died before it read; its exit code tells
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if not selector.select(timeout_s):
                timed_out = True
                break
            chunk = pipe.read(65536)
            if not chunk:
                break
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                message = _message(line)
                phase = message.get("phase", phase)
                if {"record", "library", "unavailable"} & set(message):
                    answer = message
            if answer is not None:
                break  # a child of the library may hold the pipe open for ever
    if timed_out:
        _kill_group(worker)
    try:
        code = worker.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        _kill_group(worker)
        worker.wait()
        code = None
    output.seek(max(0, output.seek(0, os.SEEK_END) - TAIL_BYTES))
    tail = output.read().decode(errors="replace").strip()
    return Ending(answer, phase, timed_out, code, tail)


def _message(line: bytes) -> dict[str, Any]:
    """What the worker says; a library that writes on the private descriptor says nothing."""
    try:
        message = sanitized(from_line(line.decode()))
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _kill_group(worker: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.pid, signal.SIGKILL)  # a new session's group has its leader's number
    worker.wait()


def _cause(ending: Ending, timeout_s: float) -> str:
    """In words: why there is no answer."""
    if ending.timed_out:
        return f"no sign of life for {timeout_s:g} s"
    if ending.exit_code is None:
        return "it closed its pipe without an answer and did not end"
    if ending.exit_code < 0:
        known = -ending.exit_code in set(signal.Signals)
        name = signal.Signals(-ending.exit_code).name if known else f"signal {-ending.exit_code}"
        return f"killed by {name}{_last_words(ending)}"
    return f"it ended without an answer, exit code {ending.exit_code}{_last_words(ending)}"


def _last_words(ending: Ending) -> str:
    lines = ending.output.splitlines()
    return f", last words: {printable(lines[-1][:200])}" if lines else ""
