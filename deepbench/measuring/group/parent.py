"""The parent of a group: it starts the ranks, carries their messages, and ends them.

A `Coordinator` is to a group what `Worker` is to one process, and answers the same messages. However a rank ends (an
exit, a signal, a lost host, a time-out), the reason names it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import selectors
import signal
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from deepbench.core.backend import GroupBackend
from deepbench.core.errors import DeepBenchError, Unsupported
from deepbench.core.json_lines import sanitized
from deepbench.machine import describe
from deepbench.measuring import awake, launch, leftovers, process
from deepbench.measuring.group import link
from deepbench.measuring.wire import Connection, Listener, Message
from deepbench.native import mpi

# Launchers and remote shells are asked to end before they are killed, so that they can clean up.
GRACE_S = 2.0

# A rank finds the address of the coordinator in its environment.
RANK_COMMAND = launch.module_command("deepbench.measuring.group.rank")

# How often processes are checked while no message comes, and how long to wait for exit codes: a rank that fails before
# it connects sends nothing.
CHECK_S = 1.0


def start_group(request: launch.Request, hosts: Sequence[str], inherited: Mapping[str, str]) -> Coordinator:
    """Start the ranks of a case on `hosts`; without hosts on this machine.

    A `DeepBenchError` where the library or the system cannot start them.
    """
    if not sys.platform.startswith("linux"):
        raise Unsupported(f"groups of processes need Linux, and this is {platform.system() or sys.platform}")
    case, cores = request.case, describe.cores()
    backend = cast(GroupBackend, case.library)
    if case.settings["pin"] == "cores":
        if hosts:
            raise Unsupported("pin=cores works for ranks on this machine only; launchers pin ranks on other hosts")
        if case.problem.ranks > len(cores):
            raise Unsupported(
                f"pin=cores needs one core for each of {case.problem.ranks} ranks, there are {len(cores)}"
            )
        request = replace(request, cpus=cores)
    count = backend.processes(case)
    launcher = backend.launcher(count, hosts)
    used_hosts, _ = mpi.spread(count, hosts)
    variables = launch.worker_environment(case.threads, "none", cores, inherited)
    environment = {k: v for k, v in variables.items() if k not in link.RANK_VARIABLES} | backend.environment(case)
    address = reachable_address(hosts)
    return Coordinator(count, request.message, request.timeout_s, launcher, environment, address, used_hosts)


@dataclass
class Rank:
    """What is known of one rank."""

    connection: Connection
    number: int = -1
    host: str = ""
    pid: int = 0
    phase: str = "start"
    value: Any = None
    """What it has sent to be gathered."""
    is_waiting: bool = False
    """Whether it waits for the values of all ranks."""

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine: in another namespace the number may belong to any process."""
        if self.host != socket.gethostname() or self.pid <= 1:
            return False
        with contextlib.suppress(OSError):
            return b"\0deepbench." in Path(f"/proc/{self.pid}/cmdline").read_bytes()
        return False


class Coordinator:
    """The processes of one case and their messages. Use as a context manager: the ranks end with the context."""

    def __init__(
        self,
        ranks: int,
        request: Message,
        timeout_s: float,
        launcher: Sequence[str] | None,
        environment: Mapping[str, str],
        address: str,
        hosts: Sequence[str],
        command: Sequence[str] = RANK_COMMAND,
    ) -> None:
        """Start the ranks on `hosts`, or on this machine if there are none; they reach this process at `address`."""
        self.ranks, self.request, self.launcher, self.hosts = ranks, request, launcher, hosts
        self._timeout_s, self._command = timeout_s, command
        self._ranks: dict[int, Rank] = {}
        self._unread: deque[tuple[Rank, Message]] = deque()
        self._children: list[process.Child] = []
        self._last_sign = awake.now()
        self._connect_by: float | None = None
        secret = secrets.token_hex(32)
        with contextlib.ExitStack() as stack:
            try:
                listening = stack.enter_context(socket.create_server((address, 0), backlog=max(128, ranks)))
                self._scratch = stack.enter_context(leftovers.scratch())
                self._output = stack.enter_context(tempfile.TemporaryFile())
                stack.callback(self._end)
                self._start({**environment, link.COORDINATOR: f"{address}:{listening.getsockname()[1]}:{secret}"})
                self._listener = stack.enter_context(Listener([listening], secret, ranks))
                self._selector = stack.enter_context(selectors.DefaultSelector())
            except OSError as error:
                raise DeepBenchError(f"cannot start a group from {address}: {error}") from None
            self._selector.register(self._listener, selectors.EVENT_READ)
            self.close = stack.pop_all().close

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, message: Message, answers: set[str], timeout_s: float) -> process.Ending:
        """Send a message to all ranks, and carry messages between them until one answers; see `Worker.ask`.

        Ranks that have not connected yet get the request instead.
        """
        self._last_sign = awake.now()
        for rank in self._ranks.values():
            _send(rank, message)
        return self._serve(answers, timeout_s)

    def listen(self, answers: set[str], timeout_s: float) -> process.Ending:
        """Carry messages between the ranks until one of them sends an answer; see `Worker.listen`."""
        self._last_sign = awake.now()
        return self._serve(answers, timeout_s)

    def pause(self) -> None:
        """Nothing to do: ranks that wait for a message sleep."""

    def go_on(self) -> None:
        """Nothing to do."""

    def cpu_s(self) -> float:
        """0: ranks do not look for what other programs use."""
        return 0.0

    def _start(self, shared: dict[str, str]) -> None:
        """Start one launcher, or every rank by itself."""
        if not self.hosts:
            shared["TMPDIR"] = str(self._scratch.folder)  # launchers that are killed leave folders behind
        if self.launcher is not None:
            self._children = [process.start([*self.launcher, *self._command], shared, self._output)]
            return
        for rank in range(self.ranks):
            environment = {**shared, link.RANK: str(rank), link.RANKS: str(self.ranks)}
            if self.hosts:
                host = self.hosts[rank * len(self.hosts) // self.ranks]
                command, request = launch.on_host(host, environment, self._command)
                child = process.start(command, environment, self._output, request=request)
            else:
                child = process.start(self._command, environment, self._output)
            self._children.append(child)

    def _serve(self, answers: set[str], timeout_s: float) -> process.Ending:
        """Carry messages until one is an answer, or the group has failed."""
        checked = awake.now()
        while True:
            if (ending := self._handle_unread(answers)) is not None:
                return ending
            step_s = min(CHECK_S, awake.step(self._last_sign + timeout_s - awake.now(), timeout_s))
            with awake.waiting(step_s):
                events = self._selector.select(step_s)
            heard: list[Rank] = [key.data for key, _ in events if key.fileobj is not self._listener]
            for rank in heard:
                messages = rank.connection.receive_available()
                accepted = self._receive(rank, messages or [])
                ending = self._handle_unread(answers)
                if rank.phase == link.JOINED and rank.is_local:
                    self._scratch.look(rank.pid)
                if ending is None and messages is None and rank.number in self._ranks:
                    ending = self._ended(f"{_name(rank)} ended during: {rank.phase}", rank.number)
                if ending is not None:
                    return ending
                if messages is None or not accepted:
                    self._selector.unregister(rank.connection.stream)
                    rank.connection.close()
            if (connection := self._listener.accept()) is not None:
                connection.stream.settimeout(timeout_s)
                self._selector.register(connection.stream, selectors.EVENT_READ, Rank(connection))
            now = awake.now()
            if heard:
                checked = now
            ending = None
            if not events or now - checked > CHECK_S:  # strangers may cause events all the time
                ending, checked = self._check_processes(), now
            ending = ending or self._check_limits(timeout_s)
            if ending is not None:
                return ending

    def _receive(self, rank: Rank, messages: Sequence[Message]) -> bool:
        """Keep messages until they are handled: whether their sender belongs to the group."""
        for message in map(sanitized, messages):
            if rank.number not in self._ranks and not self._accept(rank, message):
                return False
            self._last_sign = awake.now()
            self._unread.append((rank, message))
        return True

    def _handle_unread(self, answers: set[str]) -> process.Ending | None:
        """Do what messages ask for, up to an answer; those behind it wait until somebody listens again."""
        while self._unread:
            rank, message = self._unread.popleft()
            if (ending := self._answer(rank, message, answers)) is not None:
                return ending
        return None

    def _accept(self, rank: Rank, message: Message) -> bool:
        """Whether the first message of a connection makes it a rank of this group."""
        hello = message.get("hello")
        if not isinstance(hello, dict):
            return False
        number, pid = hello.get("rank"), hello.get("pid")
        if not isinstance(number, int) or not isinstance(pid, int) or not number >= 0 or number in self._ranks:
            return False
        rank.number, rank.host, rank.pid = number, str(hello.get("host")), pid
        self._ranks[number] = rank
        if self._connect_by is None:
            self._connect_by = awake.now() + min(self._timeout_s, link.CONNECT_S)
        return True

    def _answer(self, rank: Rank, message: Message, answers: set[str]) -> process.Ending | None:
        """Answer one message of a rank; how the case ends, if it does."""
        if isinstance(hello := message.get("hello"), dict):
            if (ranks := hello.get("ranks")) != self.ranks:
                reason = f"the launcher started groups of {ranks} ranks, wanted {self.ranks}"
                return process.Ending(status="unavailable", reason=f"{reason}; does it belong to another MPI?")
            _send(rank, self.request)
        elif "phase" in message:
            rank.phase = str(message["phase"])
        elif "gather" in message:
            rank.value, rank.is_waiting = message["gather"], True
            if len(self._ranks) == self.ranks and all(r.is_waiting for r in self._ranks.values()):
                everything = {"all": [self._ranks[i].value for i in range(self.ranks)]}
                for r in self._ranks.values():
                    r.is_waiting = False
                    _send(r, everything)
        elif answers & set(message):
            return process.Ending(message)
        return None

    def _check_processes(self) -> process.Ending | None:
        """An ending if a process failed, or all ended, without a message."""
        codes = [child.poll() for child in self._children]
        ended = [code for code in codes if code is not None]
        if not ended or (len(ended) < len(codes) and not any(ended)):
            return None
        who = "the launcher" if self.launcher else f"rank {codes.index(next(filter(None, ended), ended[0]))}"
        return self._ended(f"{who} ended")

    def _check_limits(self, timeout_s: float) -> process.Ending | None:
        """An ending if the ranks printed too much, did not all connect, or gave no sign of life for too long."""
        if os.fstat(self._output.fileno()).st_size > process.LARGEST_OUTPUT_BYTES:
            return process.Ending(reason=f"the ranks printed more than {process.LARGEST_OUTPUT_BYTES} bytes")
        now, waited_s = awake.now(), timeout_s
        incomplete = len(self._ranks) < self.ranks
        late = incomplete and self._connect_by is not None and now > self._connect_by
        if late:
            waited_s = min(waited_s, link.CONNECT_S)
        elif now - self._last_sign < timeout_s:
            return None
        reason = f"no sign of life for {waited_s:g} s, waiting for {self._awaited()}"
        return process.Ending(
            status="timeout", reason=reason + (process.last_output(self._output) if incomplete else "")
        )

    def _awaited(self) -> str:
        """The ranks that all others wait for."""
        missing = [i for i in range(self.ranks) if i not in self._ranks]
        if missing:
            return f"rank {missing[0]}, which has not connected"
        busy = [self._ranks[i] for i in sorted(self._ranks) if not self._ranks[i].is_waiting]
        if not busy:
            return "no rank"
        more = f", and {len(busy) - 1} more" if len(busy) > 1 else ""
        return f"{_name(busy[0])}, during: {busy[0].phase}{more}"

    def _ended(self, reason: str, rank: int | None = None) -> process.Ending:
        """Wait a moment for exit codes: that of this rank, if it was started from here; else that of any process."""
        children = self._children[rank : rank + 1] if rank is not None and self.launcher is None else self._children
        until = time.monotonic() + CHECK_S
        while time.monotonic() < until and not any(child.poll() for child in children):
            time.sleep(0.02)
        code = next((child.returncode for child in children if child.returncode), None)
        if code is not None:
            reason += f", {process.exit_status(code)}"
        return process.failure(reason, self._output, was_killed=True)

    def _end(self) -> None:
        """End all ranks: those on this machine at once, others through the closed connection."""
        local = [rank for rank in self._ranks.values() if rank.is_local]
        for rank in local:
            self._scratch.look(rank.pid)
        for rank in self._ranks.values():
            rank.connection.close()
        for rank in local:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(rank.pid, signal.SIGKILL)
        process.end(self._children, GRACE_S if self.launcher or self.hosts else 0.0)


def _name(rank: Rank) -> str:
    return f"rank {rank.number} on {rank.host}"


def _send(rank: Rank, message: Message) -> None:
    with contextlib.suppress(OSError):  # the rank is gone, which its connection will show
        rank.connection.send(message)


def reachable_address(hosts: Sequence[str]) -> str:
    """An address of this machine that these hosts reach; without hosts the loopback."""
    if not hosts:
        return "127.0.0.1"
    addresses = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for host in hosts:
            with contextlib.suppress(OSError):
                probe.connect((host, 9))  # sends nothing: the system only chooses the interface
                addresses.append(str(probe.getsockname()[0]))
    return next((a for a in addresses if not a.startswith("127.")), "127.0.0.1" if addresses else socket.gethostname())
