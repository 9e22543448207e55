"""Processes that this package starts: begin a group, end it, and say how it ended."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from deepbench.core.errors import NO_MEMORY, Unavailable
from deepbench.core.json_lines import printable
from deepbench.measuring.wire import Message
from deepbench.results.record import Status

Child = subprocess.Popen[bytes]

# No library prints more, unless it prints forever, which would fill the disk.
LARGEST_OUTPUT_BYTES = 2**30

# How much of the end of the output is read to quote its last line, and how much of that line is quoted.
TAIL_BYTES, LONGEST_QUOTE = 4000, 200

# What to do where the system does not start a process.
REMEDIES = dict.fromkeys((errno.EMFILE, errno.ENFILE), "raise the limit: ulimit -n 1024")
REMEDIES[errno.ENOMEM] = "free some memory"

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


@dataclass(frozen=True)
class Ending:
    """How a worker or a group ended: with an answer, or with a status and its reason."""

    answer: Message | None = None
    status: Status = "crashed"
    reason: str = ""
    was_killed: bool = False
    """Whether the system may have killed it to free memory."""


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    output: IO[Any] | int,
    pass_fds: Sequence[int] = (),
    standard_input: int = subprocess.DEVNULL,
    request: bytes | None = None,
) -> Child:
    """Start a command as the leader of a new process group, so that `end` reaches everything it starts.

    `request` is what the command reads from its standard input. This pipe stays open until `end`, or until this process
    dies: no other child inherits it. `Unavailable` where the system does not start the command.
    """
    length = len(request or b"")
    try:
        child = subprocess.Popen(
            command,
            stdin=standard_input if request is None else subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT if output == subprocess.PIPE else output,
            env=environment,
            pass_fds=pass_fds,
            start_new_session=True,
            pipesize=length if length > select.PIPE_BUF else -1,  # so that writing does not wait for the reader
        )
    except BlockingIOError:
        raise Unavailable(
            f"the system lets this user start no further process ({command[0]})",
            "end other programs, or raise the limit (ulimit -u, or pids.max of the container)",
        ) from None
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0, "check that this program exists and runs")
        raise Unavailable(f"cannot start {command[0]}: {error.strerror}", remedy) from None
    if child.stdin is not None and request is not None:
        with contextlib.suppress(BrokenPipeError):  # it has ended, and its exit code tells why
            os.write(child.stdin.fileno(), request)
    return child


def end(children: Iterable[Child], grace_s: float = 0.0, term_s: float = 0.0) -> None:
    """Wait up to `grace_s` seconds for all of them together, then kill their groups: a leader may leave others.

    The end of the standard input asks those that read it to end. With `term_s` those that are left get SIGTERM, and so
    much more time.
    """
    children = list(children)
    for child in children:
        if child.stdin is not None:
            child.stdin.close()
    _wait(children, grace_s)
    if term_s:
        for child in children:
            child.terminate()
        _wait(children, term_s)
    for child in children:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def _wait(children: Iterable[Child], most_s: float) -> None:
    """Wait up to so many seconds for all of them together."""
    deadline = time.monotonic() + most_s
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, deadline - time.monotonic()))


def exit_status(code: int) -> str:
    """`exit code 7` or `killed by SIGKILL`, from `Popen.returncode`."""
    if code >= 0:
        return f"exit code {code}"
    known = -code in set(signal.Signals)
    return f"killed by {signal.Signals(-code).name if known else f'signal {-code}'}"


def last_output(output: IO[bytes]) -> str:
    """`, last output: …` with the last line that a process printed; empty if it printed nothing."""
    line = last_line(output)
    return f", last output: {line}" if line else ""


def last_line(output: IO[bytes]) -> str:
    """The last line that a process printed, shortened and printable; empty if it printed nothing."""
    lines = _tail(output).splitlines()
    return printable(lines[-1][:LONGEST_QUOTE]) if lines else ""


def failure(reason: str, output: IO[bytes], was_killed: bool = False) -> Ending:
    """How a process ended that gave no answer: `crashed`, or `out_of_memory` if it said so before."""
    status: Status = "out_of_memory" if NO_MEMORY.search(_tail(output)) else "crashed"
    return Ending(status=status, reason=reason + last_output(output), was_killed=was_killed)


def _tail(output: IO[bytes]) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - TAIL_BYTES))
    return output.read().decode(errors="replace").strip()


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies for any reason (Linux)."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent and os.getppid() != parent:  # the parent died before the call
        os._exit(1)


def adopt_orphans() -> None:
    """Ask the kernel to make this process the parent of all orphans below it, so that `kill_children` finds them."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_children() -> None:
    """Kill everything that this process has started or adopted. For processes with one thread."""
    with contextlib.suppress(OSError):  # not every kernel lists children
        while children := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            for child in map(int, children):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def limit_output() -> None:
    """Stop this process when it writes a file larger than `LARGEST_OUTPUT_BYTES`."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    most = LARGEST_OUTPUT_BYTES if hard == resource.RLIM_INFINITY else min(hard, LARGEST_OUTPUT_BYTES)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))


@contextlib.contextmanager
def unlimited_files() -> Iterator[None]:
    """Let this process write larger files for a while, after `limit_output`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
