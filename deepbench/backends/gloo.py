"""Gloo through PyTorch's `torch.distributed`: what frameworks use between CPUs.

Its all-reduce works in place. For an out-of-place result the vector is copied first, which is part of the time.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

from deepbench.backends.torch import import_torch, tensor
from deepbench.core.backend import GroupBackend, kernel
from deepbench.core.case import Case
from deepbench.core.collective import FLOATS, RankGroup, products
from deepbench.core.errors import Unavailable, Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.machine import describe


class Gloo(GroupBackend):
    name = "gloo"
    title = "Gloo"
    framework = True
    default = False
    overlaps = True
    tuning_variables = ("GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT")

    def open(self) -> dict[str, Any]:
        self.torch = torch = import_torch()
        distributed = self.distributed = torch.distributed
        if not distributed.is_available() or not distributed.is_gloo_available():
            raise Unavailable("this PyTorch was built without Gloo", "pip install torch, or a build from pytorch.org")
        return {"name": "Gloo of PyTorch", "version": torch.__version__, "path": torch.__file__}

    def settle(self, group: RankGroup) -> None:
        """Name the network interface; otherwise Gloo asks the name service for it."""
        name = next((n for n, a in describe.network_addresses().items() if a == group.address), None)
        if name is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)

    def join(self, group: RankGroup, case: Case) -> None:
        store = None
        if group.rank == 0:
            # A store listens on all interfaces, unless it is given a socket, which its older server can use.
            listener = socket.create_server((group.address, 0), backlog=max(128, group.ranks))
            port = listener.getsockname()[1]
            store = self._store(
                group.address, port, is_master=True, use_libuv=False, master_listen_fd=listener.detach()
            )
        host, port = group.gather([group.address, store.port] if store else None)[0]
        store = store or self._store(host, port, is_master=False)
        self.distributed.init_process_group("gloo", store=store, rank=group.rank, world_size=group.ranks)

    def _store(self, host: str, port: int, **options: Any) -> Any:
        return self.distributed.TCPStore(host, port, wait_for_workers=False, timeout=timedelta(minutes=1), **options)

    @kernel("all_reduce", precisions=FLOATS)
    def all_reduce(self, case: Case, arrays: Arrays) -> Kernel:
        send, receive = self._tensors(arrays)
        in_place = case.settings["place"] == "in"
        if case.settings["overlap"] == "gemm":
            return self._overlapped(case, send, receive)

        def run() -> None:
            if not in_place:
                receive.copy_(send)
            self.distributed.all_reduce(receive)

        def barrier() -> None:
            if in_place:
                receive.copy_(send)
            self.distributed.barrier()

        name = "all_reduce" if in_place else "copy_ and all_reduce"
        return Kernel(run=run, barrier=Kernel(run=barrier), notes={"implementation": name})

    def _overlapped(self, case: Case, send: Any, receive: Any) -> Kernel:
        """Gloo's own threads reduce while this thread multiplies."""
        if case.settings["place"] == "in":
            raise Unsupported("overlap is measured out of place; choose place=out")
        multiply = products(send.nbytes, lambda: None)

        def start() -> Any:
            receive.copy_(send)
            return self.distributed.all_reduce(receive, async_op=True)

        def both() -> None:
            work = start()
            multiply()
            work.wait()

        barrier = Kernel(run=self.distributed.barrier)
        parts = {
            "all_reduce": Kernel(run=lambda: start().wait(), barrier=barrier),
            "gemm": Kernel(run=multiply, barrier=barrier),
        }
        name = "copy_ and all_reduce, matmul"
        return Kernel(run=both, barrier=barrier, parts=parts, notes={"implementation": name})

    @kernel("all_gather", precisions=FLOATS)
    def all_gather(self, case: Case, arrays: Arrays) -> Kernel:
        send, receive = self._tensors(arrays)
        return self._kernel("all_gather_into_tensor", receive, send)

    @kernel("all_to_all", precisions=FLOATS)
    def all_to_all(self, case: Case, arrays: Arrays) -> Kernel:
        send, receive = self._tensors(arrays)
        return self._kernel("all_to_all_single", receive, send)

    @kernel("broadcast", precisions=FLOATS)
    def broadcast(self, case: Case, arrays: Arrays) -> Kernel:
        return self._kernel("broadcast", self._tensors(arrays)[1], 0)

    @kernel("send_receive", precisions=FLOATS)
    def send_receive(self, case: Case, arrays: Arrays) -> Kernel:
        (send, receive), distributed = self._tensors(arrays), self.distributed
        ranks, rank = case.problem.ranks, distributed.get_rank()

        def run() -> None:
            request = distributed.isend(send, (rank + 1) % ranks)
            distributed.recv(receive, (rank - 1) % ranks)
            request.wait()

        return Kernel(run=run, barrier=Kernel(run=distributed.barrier), notes={"implementation": "isend, recv"})

    def _tensors(self, arrays: Arrays) -> tuple[Any, Any]:
        return tensor(self.torch, arrays["send"]), tensor(self.torch, arrays["receive"])

    def _kernel(self, name: str, *arguments: Any) -> Kernel:
        function = getattr(self.distributed, name)
        barrier = Kernel(run=self.distributed.barrier)
        return Kernel(run=lambda: function(*arguments), barrier=barrier, notes={"implementation": name})


BACKEND = Gloo()
