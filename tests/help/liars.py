"""Libraries that lie, crash, hang and print: each must end in its status, and the run must go on."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

import numpy as np

from deepbench.core.backend import Backend, kernel
from deepbench.core.errors import LibraryError, Unavailable, Unsupported
from deepbench.core.kernel import Kernel


class Liar(Backend):
    """Multiplies honestly in float64; each subclass spoils one thing."""

    default = False

    def open(self):
        return {"name": self.name, "version": "1.0", "path": None}

    @kernel("gemm", precisions=("f32", "i8"))
    def gemm(self, case, arrays):
        return Kernel(run=lambda: self.execute(case, arrays))

    def execute(self, case, arrays):
        arrays["c"][...] = (self.product(arrays) + arrays["c"]).astype(arrays["c"].dtype)

    def product(self, arrays):
        return arrays["b"].astype(np.float64) @ arrays["a"].astype(np.float64)


class Honest(Liar):
    """Nothing is wrong with this one."""


class Lazy(Liar):
    """Returns without computing."""

    def execute(self, case, arrays):
        pass


class FirstOnly(Liar):
    """Computes once, then returns at once."""

    done = False

    def execute(self, case, arrays):
        if not self.done:
            super().execute(case, arrays)
            self.done = True


class Remote(Liar):
    """Honest, on buffers of its own: the harness must load and store them."""

    def gemm(self, case, arrays):
        own = {}

        def load():
            own.update({name: array.copy() for name, array in arrays.items()})

        def store():
            arrays["c"][...] = own["c"]

        return Kernel(run=lambda: self.execute(case, own), load=load, store=store)

    gemm.marks = Liar.gemm.marks


class Forgetful(Liar):
    """On buffers of its own, and computes once: what it finds there later must not be the old answer."""

    done = False
    gemm = Remote.gemm

    def execute(self, case, arrays):
        if not self.done:
            super().execute(case, arrays)
            self.done = True


class Stale(Liar):
    """Gives back the answer of the first call."""

    answer = None

    def execute(self, case, arrays):
        if self.answer is None:
            super().execute(case, arrays)
            self.answer = arrays["c"].copy() * 3
        else:
            arrays["c"][...] = self.answer


class Sneaky(Liar):
    """Computes only when it sees that somebody will look: when C was put back."""

    def execute(self, case, arrays):
        initial = getattr(self, "initial", None)
        if initial is None or arrays["c"][0, 0] == initial:
            self.initial = arrays["c"][0, 0]
            super().execute(case, arrays)


class EverySecond(Liar):
    """Computes in every second call only; C then holds the answer of the call before."""

    calls, period = 0, 2

    def execute(self, case, arrays):
        self.calls += 1
        if self.calls % self.period:
            super().execute(case, arrays)


class EverySixteenth(EverySecond):
    """Leaves out one call in sixteen."""

    period = 16


class InARow(Liar):
    """Computes only if some time has passed since the call before: as long as nobody calls it in a loop."""

    last_s = 0.0

    def execute(self, case, arrays):
        if time.perf_counter() - self.last_s > 20e-6:
            super().execute(case, arrays)
        self.last_s = time.perf_counter()


class Rememberer(Liar):
    """Remembers the product of the matrices at the same addresses, and adds it to C again and again."""

    def execute(self, case, arrays):
        if not hasattr(self, "known"):
            self.known = self.product(arrays)
        arrays["c"][...] = (self.known + arrays["c"]).astype(arrays["c"].dtype)


class Skipper(Liar):
    """Leaves one element out."""

    def execute(self, case, arrays):
        kept = arrays["c"][-1, -1]
        super().execute(case, arrays)
        arrays["c"][-1, -1] = kept


class Overwriter(Liar):
    """Forgets to add the old C: beta = 0 where 1 was asked."""

    def execute(self, case, arrays):
        arrays["c"][...] = self.product(arrays)


class NotANumber(Liar):
    """Leaves NaN."""

    def execute(self, case, arrays):
        arrays["c"][...] = np.nan if arrays["c"].dtype.kind == "f" else 7


class Vandal(Liar):
    """Right answer, but it scribbles on an input."""

    def execute(self, case, arrays):
        super().execute(case, arrays)
        arrays["a"].flat[0] += 1


class Crasher(Liar):
    """Dies of a signal."""

    def execute(self, case, arrays):
        print("about to touch address 0")
        sys.stdout.flush()
        ctypes.string_at(0)


class Illegal(Liar):
    """Dies as a library does on a CPU without its instructions."""

    def execute(self, case, arrays):
        os.kill(os.getpid(), signal.SIGILL)


class Hanger(Liar):
    """Never comes back, and leaves a child behind that keeps the pipe's other end."""

    def execute(self, case, arrays):
        subprocess.Popen(["sleep", "1000"])
        time.sleep(1000)


class Hungry(Liar):
    """Asks for more memory than any machine has."""

    def execute(self, case, arrays):
        np.ones(2**43)  # 64 TiB


class Leaver(Liar):
    """Ends the process politely in the middle."""

    def execute(self, case, arrays):
        os._exit(0)


class Buggy(Liar):
    """Has a bug of its own."""

    def execute(self, case, arrays):
        raise ZeroDivisionError("a bug in somebody's backend")


class Printer(Liar):
    """Prints a megabyte on both streams, with a fake record and terminal codes in it."""

    def execute(self, case, arrays):
        if not hasattr(self, "printed"):
            self.printed = True
            for stream in (1, 2):
                os.write(stream, b'{"record": {"status": "ok"}}\n\x1b[31m' + b"x" * 2**20)
        super().execute(case, arrays)


class Closer(Liar):
    """Closes every descriptor, the private pipe among them, and goes on."""

    def execute(self, case, arrays):
        os.closerange(3, 256)
        time.sleep(1000)


class Refuser(Liar):
    """Finds out too late that this case is not for it."""

    def gemm(self, case, arrays):
        raise Unsupported("k must be divisible by 7")

    gemm.marks = Liar.gemm.marks


class Failing(Liar):
    """A C function returns a bad status."""

    def execute(self, case, arrays):
        raise LibraryError("libfoo", "foo_gemm", 42, "internal error")


class Absent(Liar):
    """A library that is not here."""

    def open(self):
        raise Unavailable("libabsent.so not found", "pip install absent")


class Scribbler(Liar):
    """Writes rubbish on the private descriptor before it answers."""

    def execute(self, case, arrays):
        for descriptor in range(3, 64):
            with contextlib.suppress(OSError):
                os.write(descriptor, b"warning: not JSON\n[1]\n")
        super().execute(case, arrays)


class Daemon(Liar):
    """Leaves a child behind that holds the private descriptor, and answers all the same."""

    def execute(self, case, arrays):
        if not hasattr(self, "child"):
            self.child = os.fork()
            if self.child == 0:
                time.sleep(1000)
        super().execute(case, arrays)


class SlowStart(Liar):
    """Loads something in its first call, as a framework does."""

    started = False

    def execute(self, case, arrays):
        if not self.started:
            time.sleep(0.6)
            self.started = True
        super().execute(case, arrays)


class RealTime(Liar):
    """Dies of a signal without a name."""

    def execute(self, case, arrays):
        os.kill(os.getpid(), 35)


class Misfit(Liar):
    """Says things of itself that no record has."""

    def open(self):
        return {"name": self.name, "version": 1.2, "path": None}


class Disobedient(Liar):
    """Uses another number of threads than the case has."""

    def threads_in_use(self):
        return 7


class CrashAtLoad(Liar):
    """Dies while it is loaded."""

    def open(self):
        os.kill(os.getpid(), signal.SIGSEGV)


LIARS = {cls.__name__.lower(): cls for cls in [Honest, *Liar.__subclasses__(), EverySixteenth]}
