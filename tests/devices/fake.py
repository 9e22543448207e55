"""The make-believe asynchronous device of `fake.c`, as a queue."""

import ctypes
import shutil
import subprocess
from pathlib import Path

from deepbench.core.kernel import Queue

CALL, EMPTY, ADD, LOOP = range(4)
FAULTS = {
    name: number + 1
    for number, name in enumerate(
        ["waits early", "waits not", "merges pairs", "merges all", "blocks", "hoists", "overlaps"]
    )
}


def compiled(folder: Path) -> ctypes.CDLL:
    """The device, compiled into this folder."""
    path, compiler = folder / "fake-device.so", shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        import pytest

        pytest.skip("needs a C compiler")
    source = Path(__file__).with_name("fake.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    library = ctypes.CDLL(str(path))
    library.device_open.restype = ctypes.c_void_p
    library.device_open.argtypes = [ctypes.c_int64] * 5
    for name in ("close", "wait", "fetch", "now"):
        getattr(library, f"device_{name}").argtypes = [ctypes.c_void_p]
    library.device_now.restype = ctypes.c_int64
    library.device_enqueue.argtypes = [ctypes.c_void_p, *[ctypes.c_int64] * 3]
    library.device_wait.restype = library.device_fetch.restype = ctypes.c_int64
    return library


class FakeQueue(Queue):
    """Calls of this many nanoseconds; with `has_loop`, also as one program."""

    def __init__(
        self,
        library,
        call_ns,
        fault=None,
        *,
        empty_ns=300,
        noise=2000,
        gap=0,
        loop=False,
        kept=None,
        kind=CALL,
        device=None,
    ):
        self.library, self.kind, self.has_loop, self.kept = library, kind, loop, kept
        self.device = device or library.device_open(call_ns, empty_ns, FAULTS[fault] if fault else 0, noise, gap)

    def now(self):
        return self.library.device_now(self.device)

    def enqueue(self, calls):
        self.library.device_enqueue(self.device, self.kind, calls, 1)

    def wait(self):
        self.library.device_wait(self.device)

    def fetch(self):
        return self.library.device_fetch(self.device)

    def empty(self):
        return FakeQueue(self.library, 0, kind=EMPTY, device=self.device)

    def count(self, calls):
        before = self.fetch()
        self.library.device_enqueue(self.device, ADD, calls, 1)
        return self.fetch() - before

    def loop(self, turns):
        if not self.has_loop:
            return None
        return lambda: self.library.device_enqueue(self.device, LOOP, 1, turns)

    def keeps_loop(self):
        return self.kept

    def close(self):
        self.library.device_close(self.device)
