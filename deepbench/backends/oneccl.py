"""oneCCL, the heir of the MLSL that the original measured: its C interface, on host memory, over Intel MPI."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deepbench.core.backend import GroupBackend, kernel
from deepbench.core.errors import LibraryError, Unavailable, Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.native.mpi import hydra_words, refill

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.collective import Group
    from deepbench.core.op import Arrays

PREFIX = "DEEPBENCH_ONECCL_PREFIX"
# They ask for each other by name, so each is loaded before the one that wants it. The last one serves CPUs.
FILES = ("libfabric.so.1", "libmpi.so.12", "libccl.so.2", "libccl.so.1", "libccl_legacy_cpu.so")
REMEDY = f"python3 -m venv P && P/bin/pip install oneccl==2022.1.2, and name P in {PREFIX}"

# onecclDataType_t and onecclRedOp_t of oneapi/ccl.h
TYPES = {"f16": 6, "f32": 7, "bf16": 9}
SUM = 0
# CCL_ALLREDUCE
ALGORITHMS = {
    "direct": "direct",
    "ring": "ring",
    "rabenseifner": "rabenseifner",
    "recursive_doubling": "recursive_doubling",
    "tree": "double_tree",
}
FLOATS = ("f32", "f16", "bf16")


class UniqueId(ctypes.Structure):
    """onecclUniqueId: 4096 bytes, by value."""

    _fields_ = (("internal", ctypes.c_byte * 4096),)


def prefix() -> str:
    """Where it is; `Unavailable` says which file is missing."""
    named = os.environ.get(PREFIX)
    for folder in [named] if named else [sys.prefix]:
        missing = [name for name in FILES if not os.path.isfile(os.path.join(folder, "lib", name))]
        if not missing:
            return folder
    raise Unavailable(f"oneCCL not found (no {missing[0]} in {PREFIX}={named or sys.prefix})", REMEDY)


class OneCCL(GroupBackend):
    name = "oneccl"
    title = "oneCCL"
    ALGORITHMS = {"all_reduce": ALGORITHMS}  # noqa: RUF012  (as MPI libraries have it)

    @property
    def default(self) -> bool:  # type: ignore[override]  # an attribute elsewhere
        """Where it is."""
        try:
            return bool(prefix())
        except Unavailable:
            return False

    def open(self) -> dict[str, Any]:
        folder = os.path.join(prefix(), "lib")
        try:
            for name in FILES:
                loaded = ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL)
                if name == "libccl.so.2":
                    self.library = loaded
        except OSError as error:
            raise Unavailable(f"oneCCL does not load ({error})", REMEDY) from None
        number = ctypes.c_int()
        self._expect("onecclGetVersion", ctypes.byref(number))
        return {
            "name": self.title,
            "version": f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}",
            "path": os.path.realpath(os.path.join(folder, "libccl.so.2")),
        }

    def launcher(self, ranks: int, hosts: Sequence[str]) -> list[str] | None:
        return hydra_words(os.path.join(prefix(), "bin", "mpiexec.hydra"), ranks, hosts)

    def environment(self, case: Case) -> dict[str, str]:
        """It finds Intel MPI by these. Each rank has a thread beside it: without a core for both, both must yield."""
        if case.settings.get("overlap", "none") != "none":
            raise Unsupported("overlap is measured with MPI and Gloo; choose overlap=none")
        lib, wanted = os.path.join(prefix(), "lib"), case.settings["algorithm"]
        found = {
            "CCL_PLUGIN": "ONECCL_LEGACY_CPU",
            "CCL_MPI_LIBRARY_PATH": os.path.join(lib, "libmpi.so.12"),
            "FI_PROVIDER_PATH": lib,
            "I_MPI_ROOT": prefix(),
            "I_MPI_PIN": "0",
        }
        if 2 * case.problem.ranks > len(os.sched_getaffinity(0)):
            found |= {"CCL_YIELD": "sched_yield", "CCL_SPIN_COUNT": "1"}
        if wanted == "default":
            return found
        if wanted not in ALGORITHMS or case.op != "all_reduce":
            there_are = ", ".join(["default", *(ALGORITHMS if case.op == "all_reduce" else ())])
            raise Unsupported(f"oneCCL has no algorithm {wanted} for {case.op}; there are {there_are}")
        return {**found, "CCL_ALLREDUCE": ALGORITHMS[wanted]}

    def join(self, group: Group, case: Case) -> None:
        made = UniqueId()
        if group.rank == 0:
            self._expect("onecclGetUniqueId", ctypes.byref(made))
        text = group.gather(bytes(made.internal).hex() if group.rank == 0 else None)[0]
        made = UniqueId.from_buffer_copy(bytes.fromhex(text))
        self.communicator = ctypes.c_void_p()
        self._expect("onecclCommInitRank", ctypes.byref(self.communicator), group.ranks, made, group.rank)

    @kernel("all_reduce", precisions=FLOATS)
    def all_reduce(self, case: Case, arrays: Arrays) -> Kernel:
        send, receive, inside = arrays["send"], arrays["receive"], case.settings["place"] == "in"
        before = [refill(receive, send)] if inside else []
        call = self._reduce("AllReduce", receive if inside else send, receive, send.size, case)
        return self._kernel("onecclAllReduce", call, before)

    @kernel("reduce_scatter", precisions=FLOATS)
    def reduce_scatter(self, case: Case, arrays: Arrays) -> Kernel:
        send, receive = arrays["send"], arrays["receive"]
        return self._kernel("onecclReduceScatter", self._reduce("ReduceScatter", send, receive, receive.size, case))

    @kernel("all_gather", precisions=FLOATS)
    def all_gather(self, case: Case, arrays: Arrays) -> Kernel:
        send, kind = arrays["send"], TYPES[case.precision.data]
        call = self._call("AllGather", send, arrays["receive"], send.size, kind, self.communicator, 0)
        return self._kernel("onecclAllGather", call)

    def _reduce(self, name: str, send: Any, receive: Any, count: int, case: Case) -> Call:
        return self._call(name, send, receive, count, TYPES[case.precision.data], SUM, self.communicator, 0)

    def _call(self, name: str, *arguments: Any) -> Call:
        """No stream: the call returns when the result is there."""
        return Call(self.library[f"oneccl{name}"], *arguments, status=True)

    def _kernel(self, name: str, call: Call, before: Sequence[Call] = ()) -> Kernel:
        one = ctypes.create_string_buffer(64)
        meet = self._call("AllReduce", one, one, 1, TYPES["f32"], SUM, self.communicator, 0)
        return Kernel(calls=(call,), barrier=Kernel(calls=(*before, meet)), notes={"implementation": name})

    def _expect(self, name: str, *arguments: Any) -> None:
        status = self.library[name](*arguments)
        if status:
            raise LibraryError(self.title, name, status, "see oneapi/ccl.h")


BACKEND = OneCCL()
