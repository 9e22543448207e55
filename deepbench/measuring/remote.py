"""The far end of a command that runs on another host: ssh starts `python -P -m deepbench.measuring.remote` there.

Its standard input carries one line of JSON with the environment and the command (`launch.on_host`). They are not
arguments, because every user of a host can read those. Afterwards the input stays open for as long as the near end
lives. When it ends, the command is killed. The command is also killed if this process is.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from deepbench.core.json_lines import printable, to_line
from deepbench.measuring import process
from deepbench.measuring.group.launcher import without_launcher

# Longer than any environment that is carried.
LONGEST_REQUEST_BYTES = 2**20

# How often the far end of a command that returns a file gives a sign of life.
SIGN_S = 5.0


class NearEndGone(Exception):
    """The process that asked for the command has ended, or its connection has."""


def main() -> int:
    """Run the command of one request; its exit code."""
    process.die_with_parent(0)
    process.adopt_orphans()
    line = sys.stdin.buffer.readline(LONGEST_REQUEST_BYTES)
    try:
        request = json.loads(line if line.endswith(b"\n") else b"")
        command, environment = request["command"], without_launcher(os.environ) | request["environment"]
        returns_file = request["returns_file"]
    except (ValueError, KeyError, TypeError):
        found = f"{len(line)} bytes: {printable(line[:60].decode(errors='replace'))}" if line else "nothing"
        print(f"deepbench: expected a request of another host on standard input, found {found}", file=sys.stderr)
        return 64
    try:
        if returns_file:
            return _return_file(command, environment)
        with _running(command, environment, None) as child:
            return _exit_code(child)
    except NearEndGone:
        return 1


def _return_file(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command with the path of a file as its last argument, and print what it wrote there in one message."""
    _send({"started": True})
    # The command keeps all its temporary files here, so that none are left when it is killed.
    with tempfile.TemporaryDirectory(prefix="deepbench-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "out.jsonl")
        with (
            tempfile.TemporaryFile(dir=folder) as output,
            _running([*command, str(path)], {**environment, "TMPDIR": folder}, output) as child,
        ):
            code = _exit_code(child, SIGN_S)
            content = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
            answer = {"lines": content, "exit_code": code, "last_output": process.last_line(output)}
    _send(answer)
    return 0


@contextlib.contextmanager
def _running(
    command: Sequence[str], environment: Mapping[str, str], output: IO[bytes] | None
) -> Iterator[process.Child]:
    """A command that runs until the context ends."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment,
        start_new_session=True,
        preexec_fn=functools.partial(process.die_with_parent, os.getpid()),  # this process has one thread
    )
    try:
        yield child
    finally:
        process.end([child])
        process.kill_children()


def _exit_code(child: process.Child, sign_s: float | None = None) -> int:
    """Wait for the end of the command; as shells do, 128 + N stands for signal N. `NearEndGone` if that comes first."""
    poll, pidfd = select.poll(), os.pidfd_open(child.pid)
    try:
        poll.register(pidfd, select.POLLIN)
        poll.register(sys.stdin, select.POLLIN)
        while True:
            ready = dict(poll.poll(None if sign_s is None else sign_s * 1000))
            if pidfd in ready:
                code = child.wait()
                return code if code >= 0 else 128 - code
            if ready and not os.read(sys.stdin.fileno(), 65536):
                raise NearEndGone
            if sign_s is not None:
                _write(b"\n")
    finally:
        os.close(pidfd)


def _send(message: Mapping[str, Any]) -> None:
    """Print a message as a line of its own, even if a shell has printed the beginning of another line."""
    _write(b"\n" + to_line(message).encode(errors="replace"))


def _write(data: bytes) -> None:
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(sys.stdout.fileno(), left) :]
    except OSError:
        raise NearEndGone from None


if __name__ == "__main__":
    sys.exit(main())
