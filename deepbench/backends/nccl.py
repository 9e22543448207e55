"""NCCL: all-reduce between GPUs, one process a GPU."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

from deepbench.backend import GroupBackend, Kernel, kernel
from deepbench.errors import Unsupported
from deepbench.native.gpu.functions import UniqueId
from deepbench.native.gpu.library import GpuBackend

if TYPE_CHECKING:
    from deepbench.case import Case
    from deepbench.group import Group
    from deepbench.op import Arrays

# ncclDataType_t and ncclRedOp_t of nccl.h; the same in RCCL
TYPES = {"f16": 6, "f32": 7, "bf16": 9}
SUM = 0

# NCCL_ALGO; by default the library chooses by size.
ALGORITHMS = {"ring": "Ring", "tree": "Tree", "nvls": "NVLS", "collnet": "CollnetDirect"}

VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "hip": "HIP_VISIBLE_DEVICES"}


class NCCL(GroupBackend, GpuBackend):
    name = "nccl"
    title = "NCCL"
    part = "ccl"

    def environment(self, case: Case, rank: int | None) -> dict[str, str]:
        wanted = case.settings["algorithm"]
        if wanted == "default":
            return {}
        if wanted not in ALGORITHMS:
            raise Unsupported(f"{self.title} has no algorithm {wanted}; there are default, {', '.join(ALGORITHMS)}")
        return {"NCCL_ALGO": ALGORITHMS[wanted]}

    def settle(self, group: Group) -> None:
        """The n-th rank of a host takes the n-th card that the process may use, and sees no other."""
        variable = VISIBLE[self.device]
        mine = group.local_rank
        allowed = [w for w in os.environ.get(variable, "").split(",") if w]
        if allowed:
            if mine >= len(allowed):
                raise Unsupported(f"{group.local_ranks} ranks here, and {variable} allows {len(allowed)} cards")
            os.environ[variable] = allowed[mine]
        else:
            os.environ[variable] = str(mine)

    def start(self) -> None:
        """Nothing: the communicator is made when the group joins."""

    def version(self) -> str | None:
        number = ctypes.c_int()
        self.gpu.call("ncclGetVersion", ctypes.byref(number))
        return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"

    def join(self, group: Group, case: Case) -> None:
        gpu, made = self.gpu, UniqueId()
        if group.rank == 0:
            gpu.call("ncclGetUniqueId", ctypes.byref(made))
        text = group.gather(bytes(made.internal).hex() if group.rank == 0 else None)[0]
        made = UniqueId.from_buffer_copy(bytes.fromhex(text))
        self.communicator = ctypes.c_void_p()
        gpu.call("ncclCommInitRank", ctypes.byref(self.communicator), group.ranks, made, group.rank)
        self.cards = group.gather(f"{gpu.facts()['name']} at {gpu.bus_id}")

    def group_facts(self) -> dict[str, Any]:
        return {"cards": self.cards}

    @kernel("all_reduce", precisions=("f32", "f16", "bf16"))
    def all_reduce(self, case: Case, arrays: Arrays) -> Kernel:
        """In place nothing is put back between calls: numbers grow without bounds, which takes no other time."""
        buffers = self.buffers(case, arrays)
        at, count, kind = buffers.address, case.problem.n, TYPES[case.precision.data]
        source = at["receive" if case.settings["place"] == "in" else "send"]
        call = self._all_reduce(source, at["receive"], count, kind)
        made = self.kernel([call], buffers, arrays, {"implementation": "ncclAllReduce"})
        one = self.gpu.allocate(4, "a number")
        made.barrier = Kernel(calls=(self._all_reduce(one, one, 1, TYPES["f32"]),), device=self.gpu)
        return made

    def _all_reduce(self, source: int, target: int, count: int, kind: int) -> Any:
        return self.enqueue("ncclAllReduce", source, target, count, kind, SUM, self.communicator, self.gpu.stream)


BACKEND = NCCL()
