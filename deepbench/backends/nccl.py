"""NCCL: all-reduce and its kin between GPUs, one process a GPU."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deepbench.core.backend import GroupBackend, kernel
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.native.gpu.functions import UniqueId
from deepbench.native.gpu.library import GpuBackend

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.collective import Group
    from deepbench.core.op import Arrays

# ncclDataType_t and ncclRedOp_t of nccl.h; the same in RCCL
TYPES = {"f16": 6, "f32": 7, "bf16": 9}
SUM, ROOT = 0, 0
FLOATS = ("f32", "f16", "bf16")

# NCCL_ALGO; by default the library chooses by size.
ALGORITHMS = {"ring": "Ring", "tree": "Tree", "nvls": "NVLS", "collnet": "CollnetDirect"}

VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "hip": "HIP_VISIBLE_DEVICES"}


class NCCL(GroupBackend, GpuBackend):
    name = "nccl"
    title = "NCCL"
    part = "ccl"

    def environment(self, case: Case) -> dict[str, str]:
        wanted = case.settings["algorithm"]
        if case.settings.get("overlap", "none") != "none":
            raise Unsupported("overlap is measured on CPUs only so far; choose overlap=none")
        if wanted != "default" and case.op != "all_reduce":
            raise Unsupported("algorithms are chosen for all_reduce only; choose algorithm=default")
        if wanted == "default":
            return {}
        if wanted not in ALGORITHMS:
            raise Unsupported(f"{self.title} has no algorithm {wanted}; there are default, {', '.join(ALGORITHMS)}")
        return {"NCCL_ALGO": ALGORITHMS[wanted]}

    def processes(self, case: Case) -> int:
        return 1 if case.settings.get("processes") == "one" else int(case.problem.ranks)

    def settle(self, group: Group) -> None:
        """The n-th rank of a host takes the n-th card that the process may use, and sees no other."""
        if group.ranks == 1:  # one process has all cards
            return
        variable = VISIBLE[self.device]
        mine = group.local_rank
        allowed = [w for w in os.environ.get(variable, "").split(",") if w]
        if os.environ.get(variable) == "":
            raise Unsupported(f"{variable} is empty, so no card may be used")
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
        self.rank = group.rank
        if group.ranks == 1:
            self._join_alone(case.problem.ranks)
            return
        gpu, made = self.gpu, UniqueId()
        if group.rank == 0:
            gpu.call("ncclGetUniqueId", ctypes.byref(made))
        text = group.gather(bytes(made.internal).hex() if group.rank == 0 else None)[0]
        made = UniqueId.from_buffer_copy(bytes.fromhex(text))
        self.communicator = ctypes.c_void_p()
        gpu.call("ncclCommInitRank", ctypes.byref(self.communicator), group.ranks, made, group.rank)
        self.cards = group.gather(f"{gpu.facts()['name']} at {gpu.bus_id}")

    def _join_alone(self, ranks: int) -> None:
        """One process drives the first so many cards."""
        self.gpus = [self.gpu.other(number) for number in range(ranks)]
        made = (ctypes.c_void_p * ranks)()
        self.gpu.call("ncclCommInitAll", made, ranks, (ctypes.c_int * ranks)(*range(ranks)))
        self.communicators = [ctypes.c_void_p(c) for c in made]
        self.cards = [f"{gpu.facts()['name']} at {gpu.bus_id}" for gpu in self.gpus]

    def prepare_ranks(self, case: Case, parts: dict[int, Arrays]) -> Kernel:
        """With one process for all: the calls of all ranks in one group."""
        if len(parts) == 1:
            return super().prepare_ranks(case, parts)
        from deepbench.native.gpu.device import Buffers

        inside = case.settings["place"] == "in"
        buffers, calls, meet = [], list[Call](), list[Call]()
        for rank, arrays in parts.items():
            gpu, communicator = self.gpus[rank], self.communicators[rank]
            own = Buffers(gpu, arrays, ("receive",))
            buffers.append(own)
            one, (source, target) = gpu.allocate(4, "a number"), (own.address["send"], own.address["receive"])
            last = communicator, gpu.stream
            count, kind = case.problem.n, _type(case)
            calls.append(self.enqueue("ncclAllReduce", target if inside else source, target, count, kind, SUM, *last))
            meet.append(self.enqueue("ncclAllReduce", one, one, 1, TYPES["f32"], SUM, *last))

        def load() -> None:
            for own in buffers:
                own.load()

        def store() -> None:
            for own in buffers:
                own.store()

        return Kernel(
            calls=tuple(self._together(calls)),
            load=load,
            store=store,
            private_buffers=("send", "receive"),
            keep=tuple(buffers),
            notes={"implementation": "ncclAllReduce, one process"},
            device=self.gpu,
            others=tuple(self.gpus[1:]),
            barrier=Kernel(calls=tuple(self._together(meet)), device=self.gpu),
        )

    def group_facts(self) -> dict[str, Any]:
        return {"cards": self.cards}

    @kernel("all_reduce", precisions=FLOATS)
    def all_reduce(self, case: Case, arrays: Arrays) -> Kernel:
        """In place nothing is put back between calls: numbers grow without bounds, which takes no other time."""
        at, made = self._buffers(case, arrays)
        source = at["receive" if case.settings["place"] == "in" else "send"]
        return made("ncclAllReduce", self._call("AllReduce", source, at["receive"], case.problem.n, _type(case), SUM))

    @kernel("reduce_scatter", precisions=FLOATS)
    def reduce_scatter(self, case: Case, arrays: Arrays) -> Kernel:
        at, made = self._buffers(case, arrays)
        part = arrays["receive"].size
        call = self._call("ReduceScatter", at["send"], at["receive"], part, _type(case), SUM)
        return made("ncclReduceScatter", call)

    @kernel("all_gather", precisions=FLOATS)
    def all_gather(self, case: Case, arrays: Arrays) -> Kernel:
        at, made = self._buffers(case, arrays)
        return made(
            "ncclAllGather", self._call("AllGather", at["send"], at["receive"], arrays["send"].size, _type(case))
        )

    @kernel("broadcast", precisions=FLOATS)
    def broadcast(self, case: Case, arrays: Arrays) -> Kernel:
        at, made = self._buffers(case, arrays)
        here, count = at["receive"], case.problem.n
        return made("ncclBroadcast", self._call("Broadcast", here, here, count, _type(case), ROOT))

    @kernel("all_to_all", precisions=FLOATS)
    def all_to_all(self, case: Case, arrays: Arrays) -> Kernel:
        """A send to and a receive from every rank, in one group."""
        ranks, (at, made) = case.problem.ranks, self._buffers(case, arrays)
        part, width = case.problem.n // ranks, arrays["send"].itemsize
        calls = []
        for r in range(ranks):
            calls.append(self._call("Send", at["send"] + r * part * width, part, _type(case), r))
            calls.append(self._call("Recv", at["receive"] + r * part * width, part, _type(case), r))
        return made("ncclSend, ncclRecv", *self._together(calls))

    @kernel("send_receive", precisions=FLOATS)
    def send_receive(self, case: Case, arrays: Arrays) -> Kernel:
        ranks, (at, made) = case.problem.ranks, self._buffers(case, arrays)
        right, left = (self.rank + 1) % ranks, (self.rank - 1) % ranks
        count = case.problem.n
        send = self._call("Send", at["send"], count, _type(case), right)
        receive = self._call("Recv", at["receive"], count, _type(case), left)
        return made("ncclSend, ncclRecv", *self._together([send, receive]))

    def _buffers(self, case: Case, arrays: Arrays) -> tuple[dict[str, int], Callable[..., Kernel]]:
        """Where the arrays are on the card, and what makes a kernel of calls on them."""
        buffers = self.buffers(case, arrays)

        def made(name: str, *calls: Call) -> Kernel:
            kernel = self.kernel(calls, buffers, arrays, {"implementation": name})
            one = self.gpu.allocate(4, "a number")
            kernel.barrier = Kernel(calls=(self._call("AllReduce", one, one, 1, TYPES["f32"], SUM),), device=self.gpu)
            return kernel

        return buffers.address, made

    def _call(self, name: str, *arguments: Any) -> Call:
        return self.enqueue(f"nccl{name}", *arguments, self.communicator, self.gpu.stream)

    def _together(self, calls: list[Call]) -> list[Call]:
        return [self.enqueue("ncclGroupStart"), *calls, self.enqueue("ncclGroupEnd")]


def _type(case: Case) -> int:
    return TYPES[case.precision.data]


BACKEND = NCCL()
