"""The far end of a command that runs on another host: a carrier starts `python -P -m deepbench.measuring.remote` there.

Its standard input carries one line of JSON with the environment and the command (`launch.on_host`). They are not
arguments, because every user of a host can read those. Afterwards the input stays open for as long as the near end
lives. When it ends, the command does. The command is also killed if this process is.

Not every carrier closes the input when the near end is gone. So the near end of a command that returns a file gives a
sign of life every `SIGN_S` seconds, and each is answered: both ends notice when the other is gone.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from deepbench.core.json_lines import printable, to_line
from deepbench.measuring import awake, process
from deepbench.measuring.group.launcher import without_launcher

# Longer than any environment that is carried.
LONGEST_REQUEST_BYTES = 2**20

# How often the near end gives a sign of life, and the silence after which an end takes the other for gone.
SIGN_S = 5.0
LOST_S = 3 * SIGN_S

# How long the command may take to end after SIGTERM.
TERM_S = 2.0


class NearEndGone(Exception):
    """The process that asked for the command has ended, or its connection has."""


def main() -> int:
    """Run the command of one request; its exit code."""
    process.die_with_parent(0)
    process.adopt_orphans()
    signal.alarm(round(LOST_S))  # ends this process where no request comes
    line = sys.stdin.buffer.readline(LONGEST_REQUEST_BYTES)
    signal.alarm(0)
    try:
        request = json.loads(line if line.endswith(b"\n") else b"")
        command, returns_file = request["command"], request["returns_file"]
        # A launcher may start its tasks without PATH.
        environment = {"PATH": os.defpath, **without_launcher(os.environ), **request["environment"]}
    except (ValueError, KeyError, TypeError):
        found = f"{len(line)} bytes: {printable(line[:60].decode(errors='replace'))}" if line else "nothing"
        print(f"deepbench: expected a request of another host on standard input, found {found}", file=sys.stderr)
        return 64
    try:
        signal.signal(signal.SIGTERM, _leave)
        if returns_file:
            return _return_file(command, environment)
        with _running(command, environment, None) as child:
            return _exit_code(child, _NearEnd(gives_signs=False))
    except NearEndGone as error:
        with contextlib.suppress(OSError):
            os.write(2, f"deepbench: {error}\n".encode())
        return 1
    finally:
        process.kill_children()


def _leave(*_: object) -> NoReturn:
    """The answer to SIGTERM."""
    raise NearEndGone("ended by SIGTERM")


class _NearEnd:
    """The process that asked for the command, at the other end of standard input and output."""

    def __init__(self, gives_signs: bool) -> None:
        self._gives_signs, self._heard = gives_signs, time.monotonic()

    def wait(self, descriptor: int, event: int) -> bool:
        """Wait for a descriptor or a sign of life: whether the descriptor is ready. `NearEndGone` if neither comes."""
        poll, here = select.poll(), sys.stdin.fileno()
        poll.register(here, select.POLLIN)
        poll.register(descriptor, event)
        begin = time.monotonic()
        most_s = max(0.0, self._heard + LOST_S - begin)
        ready = dict(poll.poll(math.ceil(1000 * most_s) if self._gives_signs else None))
        now = time.monotonic()
        if here in ready:
            if not os.read(here, 65536):
                raise NearEndGone("the connection has ended")
            self._heard = now
        elif not ready:
            if now < begin + most_s + awake.LATE_S:
                raise NearEndGone(f"no sign of life of the command that measures for {LOST_S:g} s")
            self._heard = now  # this process was stopped, perhaps together with the near end
        return descriptor in ready

    def answer(self) -> None:
        """Give a sign of life where the near end does."""
        if self._gives_signs:
            self.write(b"\n")

    def write(self, data: bytes) -> None:
        """Write to standard output; `NearEndGone` if nobody reads it."""
        left = memoryview(data)
        try:
            while left:
                # A pipe that is ready takes so much at once, so this process never waits in `write`.
                if self.wait(sys.stdout.fileno(), select.POLLOUT):
                    left = left[os.write(sys.stdout.fileno(), left[: select.PIPE_BUF]) :]
        except OSError:
            raise NearEndGone("the connection has ended") from None

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a message as a line of its own, even if a shell has written the beginning of another line."""
        self.write(b"\n" + to_line(message).encode(errors="replace"))


def _return_file(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command with the path of a file as its last argument, and send what it wrote there in one message."""
    near_end = _NearEnd(gives_signs=True)
    near_end.send({"started": True})
    # The command keeps all its temporary files here, so that none are left when it is killed.
    with tempfile.TemporaryDirectory(prefix="deepbench-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "out.jsonl")
        with (
            tempfile.TemporaryFile(dir=folder) as output,
            _running([*command, str(path)], {**environment, "TMPDIR": folder}, output) as child,
        ):
            code = _exit_code(child, near_end)
            content = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
            answer = {"lines": content, "exit_code": code, "last_output": process.last_line(output)}
    near_end.send(answer)
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
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # nothing may interrupt this
        process.end([child], term_s=TERM_S)
        process.kill_children()


def _exit_code(child: process.Child, near_end: _NearEnd) -> int:
    """Wait for the end of the command; as shells do, 128 + N stands for signal N. `NearEndGone` if that comes first."""
    pidfd = os.pidfd_open(child.pid)
    try:
        while not near_end.wait(pidfd, select.POLLIN):
            near_end.answer()
        code = child.wait()
        return code if code >= 0 else 128 - code
    finally:
        os.close(pidfd)


if __name__ == "__main__":
    sys.exit(main())
