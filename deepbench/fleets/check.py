"""The check of one host for those who operate it: at most 60 s, one verdict, and nothing left running.

The examination runs in a process of its own (`examination.py`), which gives each kernel a share of the time. This
process only waits for it, and opens no file. When the time is over, it kills the examination and gives the verdict
itself, whatever a library, a driver or a file system does: a process that cannot be killed is left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex

from deepbench.core import exposition
from deepbench.core.errors import BadInput, Unavailable
from deepbench.core.exposition import Gauge, Labels
from deepbench.core.json_lines import from_line, printable, sanitized
from deepbench.fleets.examination import EXIT_CODES, HostCheck
from deepbench.fleets.reference import CHECK_S, START_S
from deepbench.machine.doctor import LoadWatch
from deepbench.machine.system import require_linux
from deepbench.measuring import launch, process

# The examination is killed so long before the end, and then has so long to go.
KILL_S, GONE_S = 3.0, 1.0

# A library that takes so much longer than its share did not even end when it was killed.
STUCK_S = 5.0

# Where workers may write if no folder for temporary files is left.
SHARED_MEMORY = "/dev/shm"

# Bytes that the examination may send.
MOST_MESSAGE_BYTES = 2**20


def check_host(
    reference: Path, history: Path | None = None, command: Sequence[str] = (), limit_s: float = CHECK_S
) -> HostCheck:
    """Check whether this host is as fast as the healthy hosts of its type.

    Args:
        reference: a file, or a folder of them, of which the one for this type of machine is used.
        history: a folder, to which a result file with all records is added.
        command: the words of the command, for the header of this file.
        limit_s: seconds after which this returns, whatever happens.

    Raises nothing: what could not be judged is the status `not judged`, with the reason.
    """
    begin = time.monotonic()
    try:
        require_linux("the check of a host")
        found = _Watch(reference, history, command, begin + limit_s).run()
    except (BadInput, Unavailable, OSError) as error:
        found = HostCheck("not judged", f"the check could not be made: {error}")
    return replace(found, reason=_one_line(found.reason), duration_s=time.monotonic() - begin)


def history_path(folder: Path, host: str, now: datetime) -> Path:
    """A new name in a history: `node07-20261127T210000Z-1f3a.jsonl`."""
    safe = re.sub(r"[^A-Za-z0-9.-]+", "-", host).strip("-.")[:100] or "host"
    return folder / f"{safe}-{now:%Y%m%dT%H%M%SZ}-{token_hex(4)}.jsonl"


@dataclass
class _Watch:
    """An examination in its own process, and what it has said."""

    reference: Path
    history: Path | None
    command: Sequence[str]
    ends: float
    """When everything must be over, in seconds of the monotonic clock."""
    found: HostCheck | None = None
    doing: str = "start"
    since: float = field(default_factory=time.monotonic)
    share_s: float = CHECK_S
    """How long it may do that."""
    last_line: str = ""
    """The last one that is no message, such as an error of Python."""
    is_flooding: bool = False
    """Whether it has sent more than any examination does."""

    def run(self) -> HostCheck:
        """The verdict of the examination, or what is known if it gives none in time."""
        path = history_path(self.history, socket.gethostname(), datetime.now(UTC)) if self.history else None
        request = {
            "parent": os.getpid(),
            "reference": os.fspath(self.reference),
            "history": None if path is None else os.fspath(path),
            "limit_s": max(1.0, self.ends - time.monotonic() - START_S),
            "command": list(self.command),
        }
        command = launch.module_command("deepbench.fleets.examination", json.dumps(request))
        watch = LoadWatch()
        child = process.start(command, _environment(), subprocess.PIPE)
        try:
            self._listen(child)
            if self.found is not None:
                return self.found
            code = child.poll()
            if code is None and time.monotonic() < self.ends - KILL_S:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = child.wait(GONE_S)
        finally:
            _kill(child)
        if self.is_flooding:
            return HostCheck("not judged", f"the examination sent more than {MOST_MESSAGE_BYTES} bytes")
        if code is not None:
            said = f", last output: {self.last_line}" if self.last_line else ""
            reason = f"the examination ended without a verdict, {process.exit_status(code)}, during: {self.doing}{said}"
            return HostCheck("not judged", reason)
        return self._of_one_that_hangs(watch.load(0.0).sentence)

    def _listen(self, child: process.Child) -> None:
        """Read messages until there is a verdict, the examination has ended, or the time is over."""
        assert child.stdout is not None
        incomplete, size = b"", 0
        while self.found is None and (left_s := self.ends - KILL_S - time.monotonic()) > 0:
            if not select.select([child.stdout], [], [], left_s)[0]:
                return
            chunk = os.read(child.stdout.fileno(), 2**16)
            size += len(chunk)
            self.is_flooding = size > MOST_MESSAGE_BYTES
            if not chunk or self.is_flooding:
                return
            *lines, incomplete = (incomplete + chunk).split(b"\n")
            for line in filter(None, lines):
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            message = sanitized(from_line(line))
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self.last_line = printable(line.decode(errors="replace"))[: process.LONGEST_QUOTE]
        elif "found" in message:
            with contextlib.suppress(TypeError):
                self.found = HostCheck(**message["found"])
        else:
            self.doing = message.get("kernel") or message.get("phase") or self.doing
            self.since, self.share_s = time.monotonic(), message.get("share_s", CHECK_S)

    def _of_one_that_hangs(self, busy: str | None) -> HostCheck:
        """The time is over. A kernel that takes much longer than its share could not be ended: its driver hangs."""
        took_s = time.monotonic() - self.since
        reason = f"it was not done in time, after {took_s:.0f} s of: {self.doing}"
        if busy is not None:
            return HostCheck("undecided", f"{reason}; {busy}")
        if took_s > self.share_s + STUCK_S:
            return HostCheck("failed", f"{reason}; its process could not be ended after {self.share_s:.0f} s")
        return HostCheck("undecided", reason)


def _environment() -> dict[str, str]:
    """Of this process, in which Python finds this package, and a folder for temporary files."""
    environment = launch.package_path(os.environ)
    try:
        tempfile.gettempdir()
    except OSError:
        environment["TMPDIR"] = SHARED_MEMORY
    return environment


def _kill(child: process.Child) -> None:
    """Kill the examination, which takes its workers with it. Does not wait for what cannot be killed."""
    if child.stdout is not None:
        child.stdout.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        if child.poll() is None:
            child.terminate()
            child.wait(GONE_S / 2)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GONE_S / 2)


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))[:1000]


def gauges_of(check: HostCheck, now: datetime) -> list[Gauge]:
    """What Prometheus is told of a check. The host is a label that Prometheus adds."""
    ratios: list[tuple[Labels, float | None]] = [({"case": case}, ratio) for case, ratio in check.kernels.items()]
    statuses: list[tuple[Labels, float | None]] = [({"status": s}, int(s == check.status)) for s in EXIT_CODES]
    return [
        Gauge("deepbench_check_status", "The verdict of the last check of this host: 1 for its status.", statuses),
        Gauge("deepbench_check_kernel_time_ratio", "Time of a kernel over that on healthy hosts of this type.", ratios),
        Gauge("deepbench_check_time_ratio", "The same for all kernels together.", [({}, check.overall)]),
        Gauge("deepbench_check_duration_seconds", "How long the last check took.", [({}, check.duration_s)]),
        Gauge("deepbench_check_timestamp_seconds", "When the last check ended.", [({}, now.timestamp())]),
    ]


def write_prometheus(path: Path, check: HostCheck) -> None:
    """Write a file for the textfile collector, as a whole or not at all; `BadInput` where that is impossible."""
    exposition.write(path, gauges_of(check, datetime.now(UTC)))
