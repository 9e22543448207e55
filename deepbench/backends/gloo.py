"""Gloo, through PyTorch's `torch.distributed`: what frameworks use between CPUs.

Its all-reduce works in place; out of place the vector is copied first, in the time, as a program would.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from deepbench.core.backend import GroupBackend, kernel
from deepbench.core.collective import products
from deepbench.core.errors import Unavailable, Unsupported
from deepbench.core.kernel import Kernel

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.collective import Group
    from deepbench.core.op import Arrays


SIOCGIFADDR = 0x8915  # linux/sockios.h


def interface_of(address: str) -> str | None:
    """The network interface that has this address, None where it cannot be told."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # it has no address
                answer = fcntl.ioctl(any_socket.fileno(), SIOCGIFADDR, request)
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None


FLOATS = ("f32", "f16", "bf16")


class Gloo(GroupBackend):
    name = "gloo"
    title = "Gloo"
    framework = True
    default = False

    def open(self) -> dict[str, Any]:
        try:
            import torch
            import torch.distributed as distributed
        except ImportError as error:
            raise Unavailable(
                f"Gloo comes with PyTorch, not found ({error})", "pip install 'deepbench-kernels[torch]'"
            ) from None
        if not distributed.is_available() or not distributed.is_gloo_available():
            raise Unavailable("this PyTorch was built without Gloo", "install the build of PyPI or pytorch.org")
        self.torch: Any = torch
        self.distributed: Any = distributed
        return {"name": "Gloo of PyTorch", "version": torch.__version__, "path": torch.__file__}

    def environment(self, case: Case) -> dict[str, str]:
        if case.settings["algorithm"] != "default":
            raise Unsupported("Gloo offers no choice of algorithm (it is a ring); choose algorithm=default")
        return {}

    def settle(self, group: Group) -> None:
        """Gloo asks the name service which interface to take; we know it."""
        name = interface_of(group.address)
        if name is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)

    def join(self, group: Group, case: Case) -> None:
        store = None
        if group.rank == 0:
            store = self._store(group.address, 0, True)
        host, port = group.gather([group.address, store.port] if store else None)[0]
        store = store or self._store(host, port, False)
        self.distributed.init_process_group("gloo", store=store, rank=group.rank, world_size=group.ranks)

    def _store(self, host: str, port: int, serves: bool) -> Any:
        return self.distributed.TCPStore(
            "0.0.0.0" if serves else host, port, is_master=serves, wait_for_workers=False, timeout=timedelta(minutes=1)
        )

    @kernel("all_reduce", precisions=FLOATS)
    def all_reduce(self, case: Case, arrays: Arrays) -> Kernel:
        send, receive = self._tensor(arrays["send"]), self._tensor(arrays["receive"])
        in_place = case.settings["place"] == "in"
        if case.settings["overlap"] == "gemm":
            return self._overlapped(case, send, receive)

        def run() -> None:
            if not in_place:
                receive.copy_(send)
            self.distributed.all_reduce(receive)

        def together() -> None:
            if in_place:
                receive.copy_(send)
            self.distributed.barrier()

        name = "all_reduce" if in_place else "copy_ and all_reduce"
        return Kernel(run=run, barrier=Kernel(run=together), notes={"implementation": name})

    def _overlapped(self, case: Case, send: Any, receive: Any) -> Kernel:
        """Gloo's own threads reduce while this one multiplies."""
        if case.settings["place"] == "in":
            raise Unsupported("overlap is measured out of place; choose place=out")
        multiply = products(send.nbytes, lambda: None)

        def begin() -> Any:
            receive.copy_(send)
            return self.distributed.all_reduce(receive, async_op=True)

        def both() -> None:
            work = begin()
            multiply()
            work.wait()

        barrier = Kernel(run=self.distributed.barrier)
        parts = {
            "all_reduce": Kernel(run=lambda: begin().wait(), barrier=barrier),
            "gemm": Kernel(run=multiply, barrier=barrier),
        }
        name = "copy_ and all_reduce, matmul"
        return Kernel(run=both, barrier=barrier, parts=parts, notes={"implementation": name})

    @kernel("all_gather", precisions=FLOATS)
    def all_gather(self, case: Case, arrays: Arrays) -> Kernel:
        send, receive = self._tensor(arrays["send"]), self._tensor(arrays["receive"])
        return self._kernel("all_gather_into_tensor", receive, send)

    @kernel("all_to_all", precisions=FLOATS)
    def all_to_all(self, case: Case, arrays: Arrays) -> Kernel:
        send, receive = self._tensor(arrays["send"]), self._tensor(arrays["receive"])
        return self._kernel("all_to_all_single", receive, send)

    @kernel("broadcast", precisions=FLOATS)
    def broadcast(self, case: Case, arrays: Arrays) -> Kernel:
        return self._kernel("broadcast", self._tensor(arrays["receive"]), 0)

    @kernel("send_receive", precisions=FLOATS)
    def send_receive(self, case: Case, arrays: Arrays) -> Kernel:
        send, receive, distributed = self._tensor(arrays["send"]), self._tensor(arrays["receive"]), self.distributed
        ranks, rank = case.problem.ranks, distributed.get_rank()

        def run() -> None:
            sent = distributed.isend(send, (rank + 1) % ranks)
            distributed.recv(receive, (rank - 1) % ranks)
            sent.wait()

        return Kernel(run=run, barrier=Kernel(run=distributed.barrier), notes={"implementation": "isend, recv"})

    def _tensor(self, array: Any) -> Any:
        import numpy as np

        if array.dtype.name == "bfloat16":
            return self.torch.from_numpy(array.view(np.int16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(array)

    def _kernel(self, name: str, *arguments: Any) -> Kernel:
        function = getattr(self.distributed, name)
        barrier = Kernel(run=self.distributed.barrier)
        return Kernel(run=lambda: function(*arguments), barrier=barrier, notes={"implementation": name})


BACKEND = Gloo()
