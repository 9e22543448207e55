"""oneCCL, the successor of the MLSL that the original measured: its C interface, on host memory, over Intel MPI."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from typing import Any

from deepbench.core.backend import GroupBackend, kernel
from deepbench.core.case import Case
from deepbench.core.collective import FLOATS, RankGroup
from deepbench.core.errors import LibraryError, Unavailable, not_loaded
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Arrays
from deepbench.native import mpi
from deepbench.native.library import version_text

PREFIX = "DEEPBENCH_ONECCL_PREFIX"
# In the order of loading, because later files refer to earlier ones by name. The last one is for CPUs.
FILES = ("libfabric.so.1", "libmpi.so.12", "libccl.so.2", "libccl.so.1", "libccl_legacy_cpu.so")
REMEDY = f"python3 -m venv P && P/bin/pip install oneccl==2022.1.2, and name P in {PREFIX}"

# onecclDataType_t and onecclRedOp_t of oneapi/ccl.h
TYPES = {"f16": 6, "f32": 7, "bf16": 9}
SUM = 0  # Values of CCL_ALLREDUCE.
NAMES = {
    "direct": "direct",
    "ring": "ring",
    "rabenseifner": "rabenseifner",
    "recursive_doubling": "recursive_doubling",
    "tree": "double_tree",
}
ALGORITHMS = {"all_reduce": {ours: {"CCL_ALLREDUCE": theirs} for ours, theirs in NAMES.items()}}


class OneCclUniqueId(ctypes.Structure):
    """onecclUniqueId: 4096 bytes, by value."""

    _fields_ = (("internal", ctypes.c_byte * 4096),)


def prefix() -> str:
    """Where it is installed; `Unavailable` names the missing file."""
    folder = os.environ.get(PREFIX) or sys.prefix
    for name in FILES:
        if not os.path.isfile(os.path.join(folder, "lib", name)):
            raise Unavailable(f"oneCCL not found (no {name} in {PREFIX}={folder})", REMEDY)
    return folder


class OneCCL(GroupBackend):
    name = "oneccl"
    title = "oneCCL"
    algorithms = ALGORITHMS
    tuning_variables = ("CCL_*",)

    @property
    def default(self) -> bool:  # type: ignore[override]  # an attribute elsewhere
        """If it is installed."""
        try:
            return bool(prefix())
        except Unavailable:
            return False

    def open(self) -> dict[str, Any]:
        folder = os.path.join(prefix(), "lib")
        try:
            loaded = {name: ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL) for name in FILES}
        except OSError as error:
            raise not_loaded("oneCCL", error, REMEDY) from None
        self.library = loaded["libccl.so.2"]
        number = ctypes.c_int()
        self._expect("onecclGetVersion", ctypes.byref(number))
        path = os.path.realpath(os.path.join(folder, "libccl.so.2"))
        return {"name": self.title, "version": version_text(number.value), "path": path}

    def launcher(self, ranks: int, hosts: Sequence[str]) -> list[str] | None:
        return mpi.hydra(os.path.join(prefix(), "bin", "mpiexec.hydra"), ranks, hosts)

    def environment(self, case: Case) -> dict[str, str]:
        """The first five variables configure Intel MPI. Each rank has a second thread; on too few cores both yield."""
        lib = os.path.join(prefix(), "lib")
        variables = {
            "CCL_PLUGIN": "ONECCL_LEGACY_CPU",
            "CCL_MPI_LIBRARY_PATH": os.path.join(lib, "libmpi.so.12"),
            "FI_PROVIDER_PATH": lib,
            "I_MPI_ROOT": prefix(),
            "I_MPI_PIN": "0",
        }
        if 2 * case.problem.ranks > len(os.sched_getaffinity(0)):
            variables |= {"CCL_YIELD": "sched_yield", "CCL_SPIN_COUNT": "1"}
        return variables | super().environment(case)

    def join(self, group: RankGroup, case: Case) -> None:
        unique_id = OneCclUniqueId()
        if group.rank == 0:
            self._expect("onecclGetUniqueId", ctypes.byref(unique_id))
        text = group.gather(bytes(unique_id.internal).hex() if group.rank == 0 else None)[0]
        unique_id = OneCclUniqueId.from_buffer_copy(bytes.fromhex(text))
        self.communicator = ctypes.c_void_p()
        self._expect("onecclCommInitRank", ctypes.byref(self.communicator), group.ranks, unique_id, group.rank)

    @kernel("all_reduce", precisions=FLOATS)
    def all_reduce(self, case: Case, arrays: Arrays) -> Kernel:
        send, receive, in_place = arrays["send"], arrays["receive"], case.settings["place"] == "in"
        before = [mpi.refill(receive, send)] if in_place else []
        call = self._reduce("AllReduce", receive if in_place else send, receive, send.size, case)
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
        """Without a stream, the call returns when the result is complete."""
        return Call(self.library[f"oneccl{name}"], *arguments, status=True)

    def _kernel(self, name: str, call: Call, before: Sequence[Call] = ()) -> Kernel:
        one = ctypes.create_string_buffer(64)
        barrier = self._call("AllReduce", one, one, 1, TYPES["f32"], SUM, self.communicator, 0)
        return Kernel(calls=(call,), barrier=Kernel(calls=(*before, barrier)), notes={"implementation": name})

    def _expect(self, name: str, *arguments: Any) -> None:
        status = self.library[name](*arguments)
        if status:
            raise LibraryError(self.title, name, status, "see oneapi/ccl.h")


BACKEND = OneCCL()
