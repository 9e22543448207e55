"""One rank of a training run: it joins the others, and trains its share of every batch in PyTorch."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from deepbench.applications.training import checkpoint as checkpoints
from deepbench.applications.training import worker
from deepbench.applications.training.application import Setup
from deepbench.core.errors import BadInput
from deepbench.core.files import read_regular
from deepbench.machine import describe
from deepbench.measuring import process
from deepbench.measuring.group import link

# Longer than an evaluation: rank 0 evaluates while the others wait.
WAIT = timedelta(minutes=30)


def main() -> None:
    """Serve the one run that the coordinator sends."""
    process.limit_output()
    group = link.join(os.environ)
    request = group.receive()
    group.watch(WAIT.total_seconds())
    group.exchange_hosts()
    setup, places = Setup(**request["setup"]), worker.Places(Path(request["checkpoints"]), request["run"])
    if setup.device == "cuda":
        setup = replace(setup, device=f"cuda:{group.local_rank}")
    received: list[bytes] = []

    def emit(message: dict[str, Any]) -> None:
        """Rank 0 tells everything; another one what it does, and how it failed."""
        if "phase" in message:
            group.phase(message["phase"])
        elif group.rank == 0:
            group.send(message)
        elif "end" in message and message["end"]["status"] != "ok":
            reason = f"rank {group.rank} on {group.host}: {message['end']['reason']}"
            group.send({"end": {**message["end"], "reason": reason}})
        elif "stopped" in message:
            group.send({"stopped": f"rank {group.rank} on {group.host}: {message['stopped']}"})

    def join() -> int:
        _join(group, setup.device)
        if request["samples"]:
            received.append(_spread(group, places.path(request["samples"])))
        return group.rank

    def read(path: Path) -> dict[str, Any]:
        return checkpoints.read(path, received[0] or None)  # where rank 0 could not read it, nobody can

    worker.guarded(lambda: worker.train(setup, places, request["samples"], emit, join, read), emit)
    group.receive()  # ends this process with the coordinator: destructors of libraries may hang


def _join(group: link.Group, device: str) -> None:
    """Initialise `torch.distributed`: Gloo on CPUs, NCCL on GPUs of NVIDIA and AMD."""
    import torch
    from torch import distributed

    name = next((n for n, a in describe.network_addresses().items() if a == group.address), None)
    if name is not None:  # otherwise Gloo asks the name service
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    if device != "cpu":
        torch.cuda.set_device(device)
    options = {"wait_for_workers": False, "timeout": timedelta(minutes=1)}
    store = None
    if group.rank == 0:
        # A store listens on all interfaces, unless it is given a socket, which its older server can use.
        listener = socket.create_server((group.address, 0), backlog=max(128, group.ranks))
        port, descriptor = listener.getsockname()[1], listener.detach()
        store = distributed.TCPStore(
            group.address, port, is_master=True, use_libuv=False, master_listen_fd=descriptor, **options
        )
    host, port = group.gather([group.address, store.port] if store else None)[0]
    store = store or distributed.TCPStore(host, port, is_master=False, **options)
    library = "gloo" if device == "cpu" else "nccl"
    distributed.init_process_group(library, store=store, rank=group.rank, world_size=group.ranks, timeout=WAIT)


def _spread(group: link.Group, checkpoint: Path) -> bytes:
    """The checkpoint of rank 0, which other hosts do not have; empty where it cannot be read."""
    import torch
    from torch import distributed

    device = "cpu" if distributed.get_backend() == "gloo" else f"cuda:{torch.cuda.current_device()}"
    read = b""
    if group.rank == 0:
        with contextlib.suppress(BadInput):
            read = read_regular(checkpoint, checkpoints.MOST_BYTES, "a checkpoint")
    size = torch.tensor([len(read)], device=device)
    distributed.broadcast(size, 0)
    if not int(size):
        return b""
    content = torch.frombuffer(bytearray(read or int(size)), dtype=torch.uint8).to(device)
    distributed.broadcast(content, 0)
    return bytes(content.cpu().numpy().tobytes())


if __name__ == "__main__":
    main()
