"""One run on many hosts: a window of connections, what each host sends, and how each connection ends.

A host gets its request over the standard input of its carrier and then a sign of life every few seconds. It answers
each, and sends its result file back over standard output, so nothing listens for others (`remote.py`).
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deepbench.core.errors import BadInput, Unavailable
from deepbench.core.json_lines import from_line, printable
from deepbench.fleets.file import HostRun, lines_of
from deepbench.measuring import awake, launch, process
from deepbench.measuring.carriers import Carrier
from deepbench.measuring.remote import LOST_S, SIGN_S

# How long a host may take to answer, and how many are asked at the same time.
WAIT_S, FANOUT = 60.0, 64

# Open files of a connection (its input, its output, and a handle of its process), and those of everything else.
FILES_PER_HOST, OTHER_FILES = 3, 40

# What a host may send in one run. The results of a large suite have some megabytes.
LARGEST_ANSWER_BYTES = 2**26

# A connection ends in steps: the end of its input, SIGTERM, SIGKILL. Each has so much time. A carrier that is killed
# tells nobody at the other end.
STEP_S = 2.0


@dataclass(frozen=True)
class Reach:
    """How hosts are reached."""

    carrier: Carrier
    python: str | None = None
    """The interpreter there; None: the same path as here."""
    fanout: int = FANOUT
    """How many hosts measure at the same time."""
    wait_s: float = WAIT_S
    """How long a host may take to answer."""

    def start(self, address: str, words: Sequence[str]) -> tuple[process.Child, bytes]:
        """Start `deepbench run` with these words on a host: the carrier, and what to write to its input."""
        if self.python is None:
            environment = launch.package_path(os.environ)
        else:
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
        command = launch.module_command("deepbench", "run", *words, "-o", python=self.python)
        line, request = launch.on_host(
            address, environment, command, carrier=self.carrier, python=self.python, returns_file=True
        )
        return process.start(line, environment, subprocess.PIPE, request=b""), request


def require_files(hosts: int, reach: Reach) -> None:
    """`BadInput` where this process may not open so many connections at the same time."""
    at_once, most = min(hosts, reach.fanout), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    wanted = FILES_PER_HOST * at_once + OTHER_FILES
    if most != resource.RLIM_INFINITY and wanted > most:
        raise BadInput(
            f"{at_once} hosts at the same time need {wanted} open files, and the limit is {most}; "
            f"raise it (ulimit -n {wanted}), or use a smaller --fanout"
        )


def run_once(addresses: Mapping[str, str], run: int, words: Sequence[str], reach: Reach) -> Iterator[HostRun]:
    """One run on all these hosts; yields each when it ends. A window of them measures at the same time."""
    waiting, asked = deque(addresses), set[_Asked]()
    again = set[str]()
    next_sign = awake.now() + SIGN_S
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or asked:
                while waiting and len(asked) < reach.fanout:
                    host = waiting.popleft()
                    try:
                        asked.add(_Asked(host, *reach.start(addresses[host], words), reach.wait_s, selector))
                    except Unavailable as error:
                        yield HostRun(host, run, "missing", str(error))
                step_s = awake.step(min([next_sign, *(one.due for one in asked)]) - awake.now(), LOST_S)
                with awake.waiting(step_s):
                    events = selector.select(step_s)
                for key, _ in events:
                    key.data()
                now = awake.now()
                for one in asked:
                    if now > one.due:
                        one.end()
                    elif now >= next_sign:
                        one.sign()
                if now >= next_sign:
                    next_sign = now + SIGN_S
                for one in [one for one in asked if one.is_gone]:
                    asked.remove(one)
                    one.close()
                    result = one.result(run, reach.wait_s)
                    if result.status != "ok" and one.was_stopped and one.host not in again:
                        again.add(one.host)
                        waiting.append(one.host)
                    else:
                        with awake.waiting(0.0):  # a caller that waits for a terminal must not be blamed on hosts
                            yield result
        finally:
            process.end((one.child for one in asked), STEP_S, STEP_S)
            for one in asked:
                one.close()


class _Asked:
    """A host that was asked to measure, and what it has sent."""

    def __init__(
        self, host: str, child: process.Child, request: bytes, wait_s: float, selector: selectors.BaseSelector
    ) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self.host, self.child = host, child
        self.due = awake.now() + wait_s
        """When it is given up, or when the next step of its end follows, in seconds of `awake.now`."""
        self.has_begun = self.has_ended = False
        self.answer: dict[str, Any] | None = None
        self.last_line = b""
        """The last one that is no message: an error of the carrier or of Python."""
        self._unsent, self._selector = request, selector
        self._input, self._output = child.stdin.fileno(), child.stdout.fileno()
        self._steps_of_end, self._pidfd = 0, -1
        self._received_bytes, self._incomplete = 0, bytearray()
        self._stopped_before_s = _stopped_s()
        os.set_blocking(self._input, False)  # a carrier that does not read must not stop this process
        selector.register(self._input, selectors.EVENT_WRITE, self._send)
        selector.register(self._output, selectors.EVENT_READ, self._read)

    @property
    def is_gone(self) -> bool:
        """Whether its connection has ended."""
        return self._steps_of_end > 0 and self.child.returncode is not None

    @property
    def was_stopped(self) -> bool:
        """Whether this process was stopped meanwhile, perhaps for so long that the host took it for gone."""
        return _stopped_s() - self._stopped_before_s > SIGN_S

    def _send(self) -> None:
        """Write what is left of the request."""
        if self._steps_of_end:  # what it sent at the same moment has ended it
            return
        try:
            self._unsent = self._unsent[os.write(self._input, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:  # it has ended, and its exit code tells why
            self._unsent = b""
        if not self._unsent:
            self._selector.unregister(self._input)

    def sign(self) -> None:
        """Tell the host that this process lives."""
        if not self._unsent and not self._steps_of_end:
            with contextlib.suppress(OSError):
                os.write(self._input, b"\n")

    def _read(self) -> None:
        """Read once."""
        chunk = os.read(self._output, 2**20)
        self._received_bytes += len(chunk)
        self._incomplete += chunk
        self.has_ended = not chunk or self._received_bytes > LARGEST_ANSWER_BYTES
        if b"\n" in chunk or not chunk:
            *lines, self._incomplete = self._incomplete.split(b"\n") if chunk else [self._incomplete, bytearray()]
            for line in filter(None, map(bytes.strip, map(bytes, lines))):
                self._take(line)
        if self.has_begun:
            self.due = awake.now() + LOST_S
        if self.has_ended:
            self.end()

    def _take(self, line: bytes) -> None:
        try:
            message = from_line(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self.last_line = line[: process.LONGEST_QUOTE]
        elif "started" in message:
            self.has_begun = True
        elif isinstance(message.get("lines"), str):
            self.answer, self.has_ended = message, True

    def end(self) -> None:
        """The next step of its end."""
        if self._steps_of_end == 0:
            if self._unsent:
                self._selector.unregister(self._input)
            self._selector.unregister(self._output)
            assert self.child.stdin is not None
            self.child.stdin.close()
            self._pidfd = os.pidfd_open(self.child.pid)  # exists: nobody has waited for it
            self._selector.register(self._pidfd, selectors.EVENT_READ, self.child.poll)
        elif self._steps_of_end == 1:
            self.child.terminate()
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child.pid, signal.SIGKILL)
        self._steps_of_end += 1
        self.due = awake.now() + STEP_S

    def close(self) -> None:
        """Close everything that belongs to it, and kill what its carrier has left."""
        if self._pidfd >= 0:
            self._selector.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        process.end([self.child])

    def result(self, run: int, wait_s: float) -> HostRun:
        """What came of it."""
        if self.answer is not None:
            return _host_run(self.host, run, self.answer)
        if self._received_bytes > LARGEST_ANSWER_BYTES:
            return HostRun(self.host, run, "failed", f"it sent more than {LARGEST_ANSWER_BYTES} bytes")
        if self.has_ended:
            reason = f"the connection ended without a result, {process.exit_status(self.child.returncode)}"
        else:
            reason = f"no sign of life for {LOST_S if self.has_begun else wait_s:g} s"
        quote = printable(self.last_line.decode(errors="replace"))
        reason += f", last output: {quote}" if quote else ""
        return HostRun(self.host, run, "failed" if self.has_begun else "missing", reason)


def _stopped_s() -> float:
    """Seconds in which this process was stopped, so far."""
    return time.monotonic() - awake.now()


def _host_run(host: str, run: int, answer: Mapping[str, Any]) -> HostRun:
    """The result that a host returned, which may be anything."""
    *complete, _ = answer["lines"].split("\n")
    try:
        lines = lines_of("".join(f"{line}\n" for line in complete))
    except (ValueError, RecursionError) as error:
        reason = printable(str(error).strip().partition("\n")[0][:200])
        return HostRun(host, run, "failed", f"it returned no result file: {reason}")
    code, last_line = answer.get("exit_code"), answer.get("last_output")
    if not lines or code not in (0, 1):
        reason = printable(str(last_line)[: process.LONGEST_QUOTE]) if last_line else f"exit code {str(code)[:20]}"
        return HostRun(host, run, "failed", reason, lines)
    return HostRun(host, run, "ok", None, lines)
