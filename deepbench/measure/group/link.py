"""A rank's line to the process that started it: what ranks tell each other outside of any timing goes through there.

Every message is a line of JSON. A rank says who it is, in which phase it is, what it found; `gather` gives every rank
what all of them said. No library under test has a part in it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Where the hub is: `host:port:token`.
HUB = "DEEPBENCH_HUB"
# The rank of a process that the hub has started itself, and how many there are.
RANK, RANKS = "DEEPBENCH_RANK", "DEEPBENCH_RANKS"

CONNECT_S = 60.0

# What launchers tell a process: rank and ranks. Slurm's numbers mean something inside a step only.
FAMILIES = {
    "deepbench": (RANK, RANKS),
    "openmpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "torchrun": ("RANK", "WORLD_SIZE"),
    "hydra": ("PMI_RANK", "PMI_SIZE"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS"),
}


@dataclass(frozen=True)
class Place:
    """Which of how many ranks a process is, by the word of what started it."""

    launcher: str
    rank: int
    ranks: int


LAUNCHED = tuple(name for pair in FAMILIES.values() for name in pair)
"""Variables that would tell a rank of ours that it is somebody else's."""


def place(environment: Mapping[str, str]) -> Place | None:
    """What a launcher says in the environment, None where none has started this process."""
    for launcher, (rank, ranks) in FAMILIES.items():
        if launcher == "slurm" and "SLURM_STEP_ID" not in environment:
            continue  # a batch script has a PROCID too
        if rank in environment and ranks in environment:
            rank_text, ranks_text = environment[rank], environment[ranks]
            if not (rank_text.isdecimal() and ranks_text.isdecimal()):
                continue
            return Place(launcher, int(rank_text), int(ranks_text))
    return None


class Group:
    """All ranks, as one of them sees them. Made by `join`."""

    def __init__(self, line: socket.socket, where: Place, host: str) -> None:
        self.rank, self.ranks, self.place, self.host = where.rank, where.ranks, where, host
        self._line = line
        self.address: str = line.getsockname()[0]
        """Where others reach this rank."""
        self._read = line.makefile("r", encoding="utf-8")
        self._deadline_s: float | None = None
        self.cpus = sorted(os.sched_getaffinity(0))
        """That this rank may use, before it is pinned."""
        self.hosts: list[str] = []
        """The host of every rank; known after `meet`."""

    def meet(self) -> None:
        """Tell every rank where the others are."""
        self.hosts = self.gather(self.host)

    @property
    def local_ranks(self) -> int:
        """Ranks on this host."""
        return self.hosts.count(self.host)

    @property
    def local_rank(self) -> int:
        """Which of them this is."""
        return self.hosts[: self.rank].count(self.host)

    def send(self, message: dict[str, Any]) -> None:
        """One message to the hub."""
        self._line.sendall((json.dumps(message, allow_nan=False) + "\n").encode())

    def receive(self) -> dict[str, Any]:
        """The hub's next message. When it has gone this process ends: there is nobody to tell."""
        text = self._read.readline()
        if not text:
            os._exit(1)
        message: dict[str, Any] = json.loads(text)
        return message

    def phase(self, name: str) -> None:
        """A sign of life."""
        self.send({"phase": name})
        self._arm()

    def gather(self, value: Any) -> list[Any]:
        """What every rank said, in their order; waits for all of them."""
        self.send({"gather": value})
        found: list[Any] = self.receive()["all"]
        self._arm()
        return found

    def watch(self, deadline_s: float) -> None:
        """End this process when the hub goes away, or after so many seconds without a sign of life, in C too.

        A peer that has stopped and a cut link make any library wait for ever, and signal handlers of Python do not run
        meanwhile: the watchdog of faulthandler is a thread in C.
        """
        self._deadline_s = deadline_s
        self._arm()
        threading.Thread(target=_end_with, args=(self._line,), daemon=True).start()

    def _arm(self) -> None:
        if self._deadline_s is not None:
            faulthandler.dump_traceback_later(self._deadline_s, exit=True)


def join(environment: Mapping[str, str]) -> Group:
    """Connect to the hub that the environment names, and say who this is."""
    address, _, token = environment[HUB].rpartition(":")
    host, _, port = address.rpartition(":")
    where = place(environment)
    if where is None:
        raise RuntimeError(f"no launcher says which rank this is; it should set {RANK} or the like")
    line = socket.create_connection((host, int(port)), timeout=CONNECT_S)
    line.settimeout(None)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    here = socket.gethostname()
    group = Group(line, where, here)
    hello = {"rank": where.rank, "ranks": where.ranks, "launcher": where.launcher}
    group.send({"hello": {**hello, "token": token, "host": here, "pid": os.getpid()}})
    return group


def _end_with(line: socket.socket) -> None:
    """Wait, without using the CPU, until the other end has gone."""
    poll = select.poll()
    poll.register(line, select.POLLRDHUP)
    poll.poll()
    os._exit(1)
