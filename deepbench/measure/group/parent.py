"""The parent of a group: starts its ranks, passes on what they tell each other, and ends them all.

However a rank ends (an exit, a signal, a host that is gone, a time-out), what comes back says which one it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from deepbench.core.json_lines import from_line, printable, sanitized
from deepbench.measure import launch
from deepbench.measure.group import link

# Ranks are told to end before they are killed: a launcher cleans up its shared memory then.
GRACE_S = 2.0

# A rank started by a launcher on another host writes what went wrong before it could connect; after its launcher has
# ended nothing more comes.
AFTER_LAUNCHER_S = 1.0


# Nothing libraries write is larger, but for one that prints for ever: it would fill the disk.
LARGEST_OUTPUT_BYTES = 2**30


@dataclass
class Rank:
    """One rank as its messages show it."""

    line: socket.socket
    number: int = -1
    host: str = ""
    pid: int = 0
    phase: str = "start"
    said: Any = None
    waits: bool = False
    """It has asked for what all others say."""
    buffer: bytes = b""


@dataclass(frozen=True)
class GroupEnding:
    """How a group ended."""

    answer: dict[str, Any] | None
    reason: str
    """Why there is no answer."""
    timed_out: bool


@dataclass
class Hub:
    """All ranks of one case. `serve` is the one thing to call."""

    ranks: int
    request: dict[str, Any]
    launcher: Sequence[str] | None
    environment: Mapping[str, str]
    timeout_s: float
    address: str = "127.0.0.1"
    """Where ranks reach this process."""
    hosts: Sequence[str] = ()
    """Where the ranks run, which do not have this machine's folders; none: here."""
    _seen: dict[int, Rank] = field(default_factory=dict)
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def serve(self) -> GroupEnding:
        """Start the ranks, pass messages on, and end them; never raises for what they do."""
        token = secrets.token_hex(16)
        try:
            with (
                socket.create_server((self.address, 0), backlog=max(128, self.ranks)) as listener,
                # Launchers leave folders of their sessions behind when they are killed.
                tempfile.TemporaryDirectory(prefix="deepbench-", ignore_cleanup_errors=True) as scratch,
                tempfile.TemporaryFile() as output,
            ):
                try:
                    self._start(listener, token, scratch, output)
                    return self._listen(listener, token, output)
                finally:
                    self._end()
        except OSError as error:
            return GroupEnding(None, f"a group cannot be started from {self.address}: {error}", False)

    def _start(self, listener: socket.socket, token: str, scratch: str, output: IO[bytes]) -> None:
        hub = f"{self.address}:{listener.getsockname()[1]}:{token}"
        command = launch.rank_command()
        for rank in range(self.ranks if self.launcher is None else 1):
            own = {**self.environment, link.HUB: hub, **({} if self.hosts else {"TMPDIR": scratch})}
            words = command
            if self.launcher is None:
                own |= {link.RANK: str(rank), link.RANKS: str(self.ranks)}
                if self.hosts:
                    words = launch.on_host(self.hosts[rank * len(self.hosts) // self.ranks], own, command)
            else:
                words = [*self.launcher, *command]
            self._processes.append(
                subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=own, start_new_session=True
                )
            )

    def _listen(self, listener: socket.socket, token: str, output: IO[bytes]) -> GroupEnding:
        last_sign = time.monotonic()
        meet_by: float | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            while True:
                # Now and then a look at the processes: one that ends before it connects says nothing.
                left = last_sign + self.timeout_s - time.monotonic()
                events = selector.select(max(0.0, min(AFTER_LAUNCHER_S, left)))
                if events:
                    last_sign = time.monotonic()
                for key, _ in events:
                    if key.fileobj is listener:
                        line, _ = listener.accept()
                        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        selector.register(line, selectors.EVENT_READ, Rank(line))
                        continue
                    rank: Rank = key.data
                    messages = _read(rank)
                    if messages is None:
                        selector.unregister(rank.line)
                        rank.line.close()
                        if rank.number in self._seen:
                            reason = f"{self._name(rank)} ended during: {rank.phase}"
                            return self._ended(reason, output, rank.number)
                        continue
                    for message in messages:
                        if rank.number not in self._seen and not self._welcome(rank, message, token):
                            selector.unregister(rank.line)  # a stranger
                            rank.line.close()
                            break
                        answer = self._message(rank, message)
                        if answer is not None:
                            return GroupEnding(answer, "", False)
                if not events:
                    codes = [p.poll() for p in self._processes]
                    early = [c for c in codes if c is not None]
                    if early and (len(early) == len(codes) or any(early)):
                        who = "the launcher" if self.launcher else f"rank {codes.index(early[0])}"
                        return self._ended(f"{who} ended", output)
                if os.fstat(output.fileno()).st_size > LARGEST_OUTPUT_BYTES:
                    reason = f"the ranks printed more than {LARGEST_OUTPUT_BYTES} bytes"
                    return GroupEnding(None, reason, False)
                now = time.monotonic()
                if meet_by is None and self._seen:
                    meet_by = now + min(self.timeout_s, link.CONNECT_S)
                late = meet_by is not None and now > meet_by and len(self._seen) < self.ranks
                if late or now - last_sign >= self.timeout_s:
                    words = _last_words(output) if len(self._seen) < self.ranks else ""
                    waited = min(self.timeout_s, link.CONNECT_S) if late else self.timeout_s
                    reason = self._silence(waited) + (f", last words: {words}" if words else "")
                    return GroupEnding(None, reason, True)

    def _welcome(self, rank: Rank, message: dict[str, Any], token: str) -> bool:
        """Whether this is a rank of ours that says who it is."""
        hello = message.get("hello")
        if not isinstance(hello, dict) or hello.get("token") != token:
            return False
        number, pid = hello.get("rank"), hello.get("pid")
        if not isinstance(number, int) or not isinstance(pid, int) or not number >= 0 or number in self._seen:
            return False
        rank.number, rank.host, rank.pid = number, str(hello.get("host")), pid
        self._seen[number] = rank
        return True

    def _message(self, rank: Rank, message: dict[str, Any]) -> dict[str, Any] | None:
        """Do what a message asks for; returns a record that ends the case."""
        if "hello" in message:
            hello = message["hello"]
            if hello.get("ranks") != self.ranks:
                sizes = f"groups of {hello['ranks']} ranks, wanted {self.ranks}"
                found = f"the launcher started {sizes}; is it that of another MPI?"
                return {"failed": found}
            _send(rank, {**self.request, "timeout_s": self.timeout_s})
        elif "phase" in message:
            rank.phase = str(message["phase"])
        elif "gather" in message:
            rank.said, rank.waits = message["gather"], True
            if len(self._seen) == self.ranks and all(r.waits for r in self._seen.values()):
                everything = {"all": [self._seen[i].said for i in range(self.ranks)]}
                for r in self._seen.values():
                    r.waits = False
                    _send(r, everything)
        elif "record" in message:
            return message
        return None

    def _ended(self, reason: str, output: IO[bytes], rank: int | None = None) -> GroupEnding:
        """Wait a moment for exit codes, which tell why: that of this rank, where it was started from here."""
        own = self._processes[rank : rank + 1] if rank is not None and self.launcher is None else self._processes
        until = time.monotonic() + AFTER_LAUNCHER_S
        while time.monotonic() < until and not any(p.poll() not in (None, 0) for p in own):
            time.sleep(0.02)
        codes = [c for c in (p.poll() for p in own) if c is not None]
        first = next((c for c in codes if c), None)
        if first is not None and first < 0:
            known = -first in set(signal.Signals)
            reason += f", killed by {signal.Signals(-first).name if known else f'signal {-first}'}"
        elif first is not None:
            reason += f", exit code {first}"
        words = _last_words(output)
        return GroupEnding(None, reason + (f", last words: {words}" if words else ""), False)

    def _silence(self, waited_s: float) -> str:
        """Who is waited for."""
        missing = [i for i in range(self.ranks) if i not in self._seen]
        if missing:
            whom = f"rank {missing[0]}, which has not connected"
        else:
            busy = [r for r in self._seen.values() if not r.waits]
            waiting = sorted(busy, key=lambda r: r.number)
            whom = f"{self._name(waiting[0])}, during: {waiting[0].phase}" if waiting else "nobody"
            if len(waiting) > 1:
                whom += f", and {len(waiting) - 1} more"
        return f"no sign of life for {waited_s:g} s, waiting for {whom}"

    def _name(self, rank: Rank) -> str:
        return f"rank {rank.number} on {rank.host}"

    def _end(self) -> None:
        """End everything that was started, here at once and elsewhere by the broken line."""
        for rank in self._seen.values():
            rank.line.close()
        here = socket.gethostname()
        for rank in self._seen.values():
            if rank.host == here and rank.pid > 1 and _is_ours(rank.pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(rank.pid, signal.SIGKILL)
        until = time.monotonic() + (GRACE_S if self.launcher else 0.0)
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _is_ours(pid: int) -> bool:
    """Whether a process of that number is a rank: in another namespace the number would be somebody else's."""
    try:
        return b"deepbench.measure.group.rank" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _read(rank: Rank) -> list[dict[str, Any]] | None:
    """Whole messages that have come in; None when the rank has gone."""
    try:
        chunk = rank.line.recv(1 << 20)
    except OSError:
        return None
    if not chunk:
        return None
    *lines, rank.buffer = (rank.buffer + chunk).split(b"\n")
    found = []
    for line in lines:
        try:
            message = sanitized(from_line(line.decode()))
        except (ValueError, RecursionError):
            continue
        if isinstance(message, dict):
            found.append(message)
    return found


def _send(rank: Rank, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # it has just gone; that will be seen
        rank.line.sendall((json.dumps(message) + "\n").encode())


def _last_words(output: IO[bytes], most: int = 600) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - most))
    lines = output.read().decode(errors="replace").strip().splitlines()
    return printable(lines[-1][:200]) if lines else ""


def reachable_address(hosts: Sequence[str]) -> str:
    """An address of this machine at which ranks elsewhere reach it; without other hosts the loopback."""
    if not hosts:
        return "127.0.0.1"
    addresses = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for host in hosts:
            with contextlib.suppress(OSError):
                probe.connect((host, 9))  # sends nothing: it only chooses the way
                addresses.append(str(probe.getsockname()[0]))
    return next((a for a in addresses if not a.startswith("127.")), "127.0.0.1" if addresses else socket.gethostname())
