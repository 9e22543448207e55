"""Libraries for groups that lie, crash and hang on one rank: the group must end in a status that says which."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

import numpy as np

from deepbench.core.backend import GroupBackend, kernel
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel

BAD_RANK = 1


class GroupLiar(GroupBackend):
    """Adds honestly, in the order of ranks, what it gets through the hub; each subclass spoils one thing."""

    default = False

    def open(self):
        return {"name": self.name, "version": "1.0", "path": None}

    def join(self, group, case):
        self.group = group

    @kernel("all_reduce", precisions=("f32",))
    def all_reduce(self, case, arrays):
        self.calls = 0
        barrier = Kernel(run=lambda: self.group.gather(None))
        return Kernel(run=lambda: self.execute(arrays["send"], arrays["receive"]), barrier=barrier)

    def execute(self, send, receive):
        self.calls += 1
        if self.group.rank == BAD_RANK:
            self.spoil()
        receive[...] = self.total(self.everything(send))

    def everything(self, send):
        return [np.array(v, np.float32) for v in self.group.gather(send.tolist())]

    def total(self, vectors):
        return np.add.reduce(vectors)

    def spoil(self):
        pass


class GroupHonest(GroupLiar):
    pass


class GroupDier(GroupLiar):
    """A rank is killed in the middle of the measurement."""

    def spoil(self):
        if self.calls == 3:
            os.kill(os.getpid(), signal.SIGKILL)


class GroupLeaver(GroupLiar):
    def spoil(self):
        if self.calls == 3:
            os._exit(7)


class GroupStopper(GroupLiar):
    """A rank is stopped, as one on a machine that is frozen."""

    def spoil(self):
        if self.calls == 3:
            os.kill(os.getpid(), signal.SIGSTOP)


class GroupHanger(GroupLiar):
    """A rank waits in C for ever, where no signal handler of Python runs."""

    def spoil(self):
        if self.calls == 3:
            ctypes.CDLL(None).pause()


class GroupHungry(GroupLiar):
    def all_reduce(self, case, arrays):
        if self.group.rank == BAD_RANK:
            raise MemoryError("unable to allocate 9 TiB")
        return super().all_reduce(case, arrays)

    all_reduce.marks = GroupLiar.all_reduce.marks


class GroupRefuser(GroupLiar):
    def join(self, group, case):
        super().join(group, case)
        if group.rank == BAD_RANK:
            raise Unsupported("no network here")


class GroupAbsent(GroupLiar):
    """A rank crashes before it says a word."""

    def settle(self, group):
        if group.rank == BAD_RANK:
            os.kill(os.getpid(), signal.SIGSEGV)


class GroupWrong(GroupLiar):
    """One element of one rank is off."""

    def execute(self, send, receive):
        super().execute(send, receive)
        if self.group.rank == BAD_RANK:
            receive[3] += np.float32(0.01)


class GroupStale(GroupLiar):
    """Does nothing from the fourth call on: two are checked, and at least one is timed."""

    def execute(self, send, receive):
        if self.calls < 3:
            super().execute(send, receive)
        else:
            self.everything(send)


class GroupEverySixth(GroupLiar):
    """Every sixth call leaves what the receive buffers held."""

    def execute(self, send, receive):
        kept = receive.copy()
        super().execute(send, receive)
        if self.calls % 6 == 0:
            receive[...] = kept


class GroupArrival(GroupLiar):
    """All ranks add in the order in which they arrive: they agree, but the next call gives other bits."""

    def everything(self, send):
        told = self.group.gather([time.monotonic_ns(), send.tolist()])
        return [np.array(v, np.float32) for _, v in sorted(told)]


class GroupSelfish(GroupLiar):
    """Every rank adds from itself on: ranks disagree."""

    def total(self, vectors):
        own = self.group.rank
        return np.add.reduce(vectors[own:] + vectors[:own])


class GroupPrinter(GroupLiar):
    def spoil(self):
        print("x" * 2**20, flush=True)
        print("y" * 2**20, file=sys.stderr, flush=True)


GROUP_LIARS = {c.__name__.lower(): c for c in GroupLiar.__subclasses__()}
