"""Gloo, through PyTorch's `torch.distributed`: what frameworks use between CPUs.

Its all-reduce works in place; out of place the vector is copied first, in the time, as a program would.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from deepbench.backend import GroupBackend, Kernel, kernel
from deepbench.errors import Unavailable, Unsupported

if TYPE_CHECKING:
    from deepbench.case import Case
    from deepbench.group import Group
    from deepbench.op import Arrays


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

    def environment(self, case: Case, rank: int | None) -> dict[str, str]:
        if case.settings["algorithm"] != "default":
            raise Unsupported("Gloo offers no choice of algorithm (it is a ring); choose algorithm=default")
        return {}

    def join(self, group: Group, case: Case) -> None:
        store = None
        if group.rank == 0:
            store = self._store(group.host, 0, True)
        host, port = group.gather([group.host, store.port] if store else None)[0]
        store = store or self._store(host, port, False)
        self.distributed.init_process_group("gloo", store=store, rank=group.rank, world_size=group.ranks)

    def _store(self, host: str, port: int, serves: bool) -> Any:
        return self.distributed.TCPStore(
            "0.0.0.0" if serves else host, port, is_master=serves, wait_for_workers=False, timeout=timedelta(minutes=1)
        )

    @kernel("all_reduce", precisions=("f32", "f16", "bf16"))
    def all_reduce(self, case: Case, arrays: Arrays) -> Kernel:
        import numpy as np

        torch, distributed = self.torch, self.distributed

        def tensor(array: Any) -> Any:
            if array.dtype.name == "bfloat16":
                return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
            return torch.from_numpy(array)

        send, receive = tensor(arrays["send"]), tensor(arrays["receive"])
        in_place = case.settings["place"] == "in"

        def run() -> None:
            if not in_place:
                receive.copy_(send)
            distributed.all_reduce(receive)

        def together() -> None:
            if in_place:
                receive.copy_(send)
            distributed.barrier()

        name = "all_reduce" if in_place else "copy_ and all_reduce"
        return Kernel(run=run, barrier=Kernel(run=together), notes={"implementation": name})


BACKEND = Gloo()
