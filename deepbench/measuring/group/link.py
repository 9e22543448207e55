"""A rank's connection to the coordinator, through which ranks exchange everything outside of the timing.

A rank sends who it is, the phase it enters, and its record. `gather` gives every rank the values of all ranks. No
library under test takes part in it.
"""

from __future__ import annotations

import faulthandler
import os
import select
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from deepbench.measuring import leftovers
from deepbench.measuring.wire import Connection, Message, connect

# Where the coordinator is, and the secret that proves that a process is a rank of it: `host:port:secret`.
COORDINATOR = "DEEPBENCH_COORDINATOR"
# The rank of a process that the coordinator has started itself, and the number of ranks.
RANK, RANKS = "DEEPBENCH_RANK", "DEEPBENCH_RANKS"

CONNECT_S = 60.0

# The phase that a rank enters when all ranks have joined the communicator of its library.
JOINED = "inputs"

# The variables in which launchers give a process its rank and the number of ranks.
LAUNCHERS = {
    "deepbench": (RANK, RANKS),
    "openmpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "torchrun": ("RANK", "WORLD_SIZE"),
    "hydra": ("PMI_RANK", "PMI_SIZE"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS"),
}

RANK_VARIABLES = tuple(name for pair in LAUNCHERS.values() for name in pair)
"""All of these variables: a rank must not inherit those of another launcher."""


@dataclass(frozen=True)
class RankInfo:
    """The rank of a process as its launcher gives it."""

    launcher: str
    rank: int
    ranks: int


def rank_info(environment: Mapping[str, str]) -> RankInfo | None:
    """The rank that a launcher set in the environment; None if no launcher has started this process."""
    for launcher, (rank_name, ranks_name) in LAUNCHERS.items():
        if launcher == "slurm" and not _is_step(environment.get("SLURM_STEP_ID", "")):
            continue  # a batch script or the shell of salloc has a PROCID too
        rank, ranks = environment.get(rank_name, ""), environment.get(ranks_name, "")
        if rank.isdecimal() and ranks.isdecimal():
            return RankInfo(launcher, int(rank), int(ranks))
    return None


def _is_step(number: str) -> bool:
    """Whether srun has started the tasks of a step of Slurm with this number.

    The numbers from 0xFFFFFFF0 on stand for batch scripts, for the shell of salloc, and the like.
    """
    return number.isdecimal() and int(number[:20]) < 0xFFFFFFF0


class Group:
    """All ranks, as one of them sees them. Made by `join`."""

    def __init__(self, connection: Connection, info: RankInfo, host: str) -> None:
        self.rank, self.ranks, self.launcher, self.host = info.rank, info.ranks, info.launcher, host
        self._connection = connection
        self.address: str = connection.stream.getsockname()[0]
        """Where others reach this rank."""
        self._deadline_s: float | None = None
        self._shared_memory = leftovers.shared_memory()
        """What was there before any rank has loaded its library: it does so after `exchange_hosts`."""
        self.cpus = sorted(os.sched_getaffinity(0))
        """The CPUs that this rank may use, before it is pinned."""
        self.hosts: list[str] = []
        """The host of every rank, after `exchange_hosts`."""

    def exchange_hosts(self) -> None:
        """Tell every rank the hosts of all."""
        self.hosts = self.gather(self.host)

    @property
    def local_ranks(self) -> int:
        """The number of ranks on this host."""
        return self.hosts.count(self.host)

    @property
    def local_rank(self) -> int:
        """The number of this rank among those on its host."""
        return self.hosts[: self.rank].count(self.host)

    def send(self, message: Message) -> None:
        """Send a message to the coordinator."""
        self._connection.send(message)

    def receive(self) -> Message:
        """The coordinator's next message. Ends this process when the coordinator is gone."""
        message = self._connection.receive()
        if message is None:
            self._leave()
        return message

    def send_once(self, message: Message) -> None:
        """Send a message that is the same on all ranks: rank 0 alone does."""
        if self.rank == 0:
            self.send(message)

    def wait(self) -> Message:
        """The coordinator's next message, however long it takes: rivals may be measured meanwhile."""
        faulthandler.cancel_dump_traceback_later()
        message = self.receive()
        self._restart_watchdog()
        return message

    def phase(self, name: str) -> None:
        """Tell the coordinator that a phase begins, as a sign of life."""
        self.send({"phase": name})
        self._restart_watchdog()

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks in rank order; waits for all of them."""
        self.send({"gather": value})
        values: list[Any] = self.receive()["all"]
        self._restart_watchdog()
        return values

    def watch(self, deadline_s: float) -> None:
        """End this process when the coordinator is gone, or after this time without a sign of life.

        A rank that has stopped or a cut link makes a library wait forever in C, where Python's signal handlers do not
        run. The watchdog of faulthandler is a thread in C.
        """
        self._deadline_s = deadline_s
        self._restart_watchdog()
        threading.Thread(target=self._leave_when_closed, daemon=True).start()

    def _leave_when_closed(self) -> None:
        """Wait, without using the CPU, until the other end is gone."""
        poll = select.poll()
        poll.register(self._connection.stream, select.POLLRDHUP)
        poll.poll()
        self._leave()

    def _leave(self) -> NoReturn:
        """End this process without the destructors of its library, which may hang, and remove what it leaves.

        A coordinator on this host does the same for ranks that are killed. Other hosts have nobody else.
        """
        leftovers.remove(leftovers.made_by(os.getpid(), self._shared_memory))
        os._exit(1)

    def _restart_watchdog(self) -> None:
        if self._deadline_s is not None:
            faulthandler.dump_traceback_later(self._deadline_s, exit=True)


def join(environment: Mapping[str, str]) -> Group:
    """Connect to the coordinator that the environment names, and introduce this rank."""
    address, _, secret = environment[COORDINATOR].rpartition(":")
    host, _, port = address.rpartition(":")
    info = rank_info(environment)
    if info is None:
        raise RuntimeError(f"no launcher gives the rank of this process; it should set {RANK} or a similar variable")
    here = socket.gethostname()
    group = Group(connect((host, int(port)), secret, CONNECT_S), info, here)
    hello = {"rank": info.rank, "ranks": info.ranks, "launcher": info.launcher}
    group.send({"hello": {**hello, "host": here, "pid": os.getpid()}})
    return group
