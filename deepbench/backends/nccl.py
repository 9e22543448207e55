"""NCCL: collectives between GPUs, one process per GPU, or one process for all."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deepbench.core.backend import GroupBackend, kernel
from deepbench.core.case import Case
from deepbench.core.collective import FLOATS, RankGroup
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Arrays
from deepbench.native.gpu.functions import UniqueId
from deepbench.native.gpu.library import GpuBackend
from deepbench.native.gpu.runtime import DeviceBuffers
from deepbench.native.library import version_text

if TYPE_CHECKING:
    from deepbench.native.gpu.device import Gpu

# ncclDataType_t and ncclRedOp_t of nccl.h; the same in RCCL
TYPES = {"f16": 6, "f32": 7, "bf16": 9}
SUM, ROOT = 0, 0
# Values of NCCL_ALGO. By default the library chooses by size.
NAMES = {"ring": "Ring", "tree": "Tree", "nvls": "NVLS", "collnet": "CollnetDirect"}
ALGORITHMS = {"all_reduce": {ours: {"NCCL_ALGO": theirs} for ours, theirs in NAMES.items()}}

VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "hip": "HIP_VISIBLE_DEVICES"}


class NCCL(GroupBackend, GpuBackend):
    name = "nccl"
    title = "NCCL"
    part = "ccl"
    tuning_variables = ("NCCL_*",)
    algorithms = ALGORITHMS

    def processes(self, case: Case) -> int:
        return 1 if case.settings.get("processes") == "one" else int(case.problem.ranks)

    def settle(self, group: RankGroup) -> None:
        """Rank n of a host uses only the n-th of the visible GPUs."""
        if group.ranks == 1:  # one process uses all GPUs
            return
        variable, rank = VISIBLE[self.device], group.local_rank
        if os.environ.get(variable) == "":
            raise Unsupported(f"{variable} is empty, so no GPU may be used")
        visible = [gpu for gpu in os.environ.get(variable, "").split(",") if gpu]
        if visible and rank >= len(visible):
            raise Unsupported(f"this host has {group.local_ranks} ranks, but {variable} allows {len(visible)} GPUs")
        os.environ[variable] = visible[rank] if visible else str(rank)

    def version(self) -> str:
        return version_text(self.number("ncclGetVersion"))

    def join(self, group: RankGroup, case: Case) -> None:
        self.rank = group.rank
        if group.ranks == 1:
            self._join_in_one_process(case.problem.ranks)
            return
        unique_id = UniqueId()
        if group.rank == 0:
            self.gpu.call("ncclGetUniqueId", ctypes.byref(unique_id))
        text = group.gather(bytes(unique_id.internal).hex() if group.rank == 0 else None)[0]
        unique_id = UniqueId.from_buffer_copy(bytes.fromhex(text))
        self.communicator = self.create("ncclCommInitRank", group.ranks, unique_id, group.rank)
        self.cards = group.gather(_describe(self.gpu))

    def _join_in_one_process(self, ranks: int) -> None:
        """One process drives the first `ranks` GPUs."""
        from deepbench.native.gpu.device import open_gpu

        self.gpus = [open_gpu(self.vendor, number) for number in range(ranks)]
        communicators = (ctypes.c_void_p * ranks)()
        self.gpu.call("ncclCommInitAll", communicators, ranks, (ctypes.c_int * ranks)(*range(ranks)))
        self.communicators = [ctypes.c_void_p(c) for c in communicators]
        self.cards = [_describe(gpu) for gpu in self.gpus]

    def prepare_ranks(self, case: Case, parts: dict[int, Arrays]) -> Kernel:
        """With one process: the calls of all ranks in one NCCL group."""
        if len(parts) == 1:
            return super().prepare_ranks(case, parts)
        in_place = case.settings["place"] == "in"
        buffers, calls, barrier = [], list[Call](), list[Call]()
        for rank, arrays in parts.items():
            gpu, communicator = self.gpus[rank], self.communicators[rank]
            rank_buffers = DeviceBuffers(gpu, arrays, ("receive",))
            buffers.append(rank_buffers)
            send, receive = rank_buffers.address["send"], rank_buffers.address["receive"]
            source, one = receive if in_place else send, gpu.allocate(4, "a number")
            last = SUM, communicator, gpu.stream
            calls.append(self.prepare_call("ncclAllReduce", source, receive, case.problem.n, _type(case), *last))
            barrier.append(self.prepare_call("ncclAllReduce", one, one, 1, TYPES["f32"], *last))

        def load() -> None:
            for rank_buffers in buffers:
                rank_buffers.load()

        def store() -> None:
            for rank_buffers in buffers:
                rank_buffers.store()

        return Kernel(
            calls=tuple(self._grouped(calls)),
            load=load,
            store=store,
            private_buffers=("send", "receive"),
            keep=tuple(buffers),
            notes={"implementation": "ncclAllReduce, one process"},
            device=self.gpu,
            others=tuple(self.gpus[1:]),
            barrier=Kernel(calls=tuple(self._grouped(barrier)), device=self.gpu),
        )

    def group_facts(self) -> dict[str, Any]:
        return {"cards": self.cards}

    @kernel("all_reduce", precisions=FLOATS)
    def all_reduce(self, case: Case, arrays: Arrays) -> Kernel:
        """In place, repeated calls add up without bounds. The values do not change the time."""
        source = "receive" if case.settings["place"] == "in" else "send"
        return self._one_call(case, arrays, "AllReduce", case.problem.n, SUM, source=source)

    @kernel("reduce_scatter", precisions=FLOATS)
    def reduce_scatter(self, case: Case, arrays: Arrays) -> Kernel:
        return self._one_call(case, arrays, "ReduceScatter", arrays["receive"].size, SUM)

    @kernel("all_gather", precisions=FLOATS)
    def all_gather(self, case: Case, arrays: Arrays) -> Kernel:
        return self._one_call(case, arrays, "AllGather", arrays["send"].size)

    @kernel("broadcast", precisions=FLOATS)
    def broadcast(self, case: Case, arrays: Arrays) -> Kernel:
        return self._one_call(case, arrays, "Broadcast", case.problem.n, ROOT, source="receive")

    @kernel("all_to_all", precisions=FLOATS)
    def all_to_all(self, case: Case, arrays: Arrays) -> Kernel:
        """A send to and a receive from every rank, in one NCCL group."""
        ranks, (at, kernel) = case.problem.ranks, self._buffers(case, arrays)
        count, width = case.problem.n // ranks, arrays["send"].itemsize
        calls = []
        for r in range(ranks):
            calls.append(self._call("Send", at["send"] + r * count * width, count, _type(case), r))
            calls.append(self._call("Recv", at["receive"] + r * count * width, count, _type(case), r))
        return kernel("ncclSend, ncclRecv", *self._grouped(calls))

    @kernel("send_receive", precisions=FLOATS)
    def send_receive(self, case: Case, arrays: Arrays) -> Kernel:
        ranks, (at, kernel) = case.problem.ranks, self._buffers(case, arrays)
        right, left = (self.rank + 1) % ranks, (self.rank - 1) % ranks
        count = case.problem.n
        send = self._call("Send", at["send"], count, _type(case), right)
        receive = self._call("Recv", at["receive"], count, _type(case), left)
        return kernel("ncclSend, ncclRecv", *self._grouped([send, receive]))

    def _buffers(self, case: Case, arrays: Arrays) -> tuple[dict[str, int], Callable[..., Kernel]]:
        """The addresses of the arrays on the GPU, and a function that makes a kernel of calls on them."""
        buffers = self.buffers(case, arrays)

        def from_calls(name: str, *calls: Call) -> Kernel:
            kernel = self.kernel(calls, buffers, arrays, {"implementation": name})
            one = self.gpu.allocate(4, "a number")
            kernel.barrier = Kernel(calls=(self._call("AllReduce", one, one, 1, TYPES["f32"], SUM),), device=self.gpu)
            return kernel

        return buffers.address, from_calls

    def _one_call(self, case: Case, arrays: Arrays, name: str, count: int, *more: int, source: str = "send") -> Kernel:
        """A kernel of one function, from the array `source` to `receive`."""
        at, kernel = self._buffers(case, arrays)
        return kernel(f"nccl{name}", self._call(name, at[source], at["receive"], count, _type(case), *more))

    def _call(self, name: str, *arguments: Any) -> Call:
        return self.prepare_call(f"nccl{name}", *arguments, self.communicator, self.gpu.stream)

    def _grouped(self, calls: list[Call]) -> list[Call]:
        return [self.prepare_call("ncclGroupStart"), *calls, self.prepare_call("ncclGroupEnd")]


def _type(case: Case) -> int:
    return TYPES[case.precision.data]


def _describe(gpu: Gpu) -> str:
    return f"{gpu.facts()['name']} at {gpu.bus_id}"


BACKEND = NCCL()
