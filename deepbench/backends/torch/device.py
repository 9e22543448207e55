"""PyTorch on a device other than the CPU: its name, the copies of arrays, and its queue.

`torch.accelerator` speaks to the device that this build of PyTorch is for: `cuda` (also for AMD's GPUs), `xpu`, `mps`,
or one that a package registers, such as `npu` or `hpu`. Times are those of its events where it has them, else of the
host. Where it can record calls as a graph, the graph is the loop that the host does not slow down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from deepbench.core import devices
from deepbench.core.errors import Unavailable, Unsupported
from deepbench.core.kernel import Kernel, Queue
from deepbench.core.op import Arrays
from deepbench.native.slope import QueueDevice

# Devices that compute when a result is needed, not when an operator is called.
LAZY = ("xla", "hpu", "lazy")

# What an interface raises where it has no events, no graphs, or not of these operators.
MISSING = (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError)


def name_of(torch: Any, kind: str) -> str:
    """Our name of a device that PyTorch calls `cuda`, `xpu` …; PyTorch for AMD calls its own `cuda` too."""
    return "hip" if kind == "cuda" and torch.version.hip else devices.named("torch", kind)


def find(torch: Any, wanted: str) -> Any:
    """PyTorch's device of this name; `Unavailable` if this build does not reach it here."""
    if wanted == devices.CPU:
        return torch.device("cpu")
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        raise Unavailable(f"PyTorch {torch.__version__} has no torch.accelerator", "pip install --upgrade torch")
    found: Any = accelerator.current_accelerator() if accelerator.is_available() else None
    reached = None if found is None else name_of(torch, found.type)
    if reached != devices.base(wanted) or devices.index(wanted) >= accelerator.device_count():
        here = f"{reached} with {accelerator.device_count()} devices" if reached else "no device but the CPU"
        raise Unavailable(
            f"PyTorch {torch.__version__} reaches {here}, not {wanted}", "install a build of PyTorch for this device"
        )
    return torch.device(found.type, devices.index(wanted))


def title_of(torch: Any, place: Any) -> str:
    """What the device calls itself."""
    module = torch.get_device_module(place)
    name = getattr(module, "get_device_name", None)
    return str(name(place)) if name is not None else str(place.type)


def memory_free(torch: Any, place: Any) -> int | None:
    """Free bytes of the device; None if it does not tell."""
    try:
        return int(torch.get_device_module(place).mem_get_info(place)[0])
    except MISSING:
        return None


# How PyTorch says that a device lacks an operator, or takes other types for it.
REFUSALS = (RuntimeError, NotImplementedError, TypeError)
REFUSED = (
    "not implemented for",
    "expected scalar type",
    "is not currently implemented",
    "not supported",
    "Could not run",
)


class Placed:
    """The tensors of a device with the arrays of which they are copies."""

    def __init__(self, torch: Any, place: Any, host_tensor: Callable[[Any], Any]) -> None:
        self._torch, self._place, self._host_tensor = torch, place, host_tensor
        self._pairs: dict[int, tuple[Any, Any]] = {}

    def tensor(self, array: Any) -> Any:
        """A tensor of the device for an array, the same one each time."""
        if id(array) not in self._pairs:
            self._pairs[id(array)] = array, self._host_tensor(array).to(self._place, copy=True)
        return self._pairs[id(array)][1]

    def load(self) -> None:
        """Copy all arrays to the device."""
        for array, there in self._pairs.values():
            there.data.copy_(self._host_tensor(array))  # `data`: autograd need not know that the numbers are set again

    def store(self, arrays: Arrays, outputs: tuple[str, ...]) -> None:
        """Copy the outputs back."""
        for name in outputs:
            if name in arrays and id(arrays[name]) in self._pairs:
                self._host_tensor(arrays[name]).copy_(self._pairs[id(arrays[name])][1])

    def kernel(self, kernel: Kernel, arrays: Arrays, outputs: tuple[str, ...]) -> Kernel:
        """A kernel on tensors of the device, with the copies that it needs, and timed as a queue."""
        run, load, store, torch = kernel.run, kernel.load, kernel.store, self._torch
        assert run is not None, "PyTorch is called from Python"

        def load_all() -> None:
            self.load()
            load()
            torch.accelerator.synchronize(self._place)

        def store_all() -> None:
            store()
            torch.accelerator.synchronize(self._place)
            self.store(arrays, outputs)

        notes = kernel.notes | ({"lazy": True} if self._place.type in LAZY else {})

        def run_or_refuse() -> None:
            try:
                run()
            except REFUSALS as error:
                text = str(error)
                if any(word in text for word in REFUSED):
                    raise Unsupported(f"PyTorch does not serve this on {self._place.type}: {text[:200]}") from None
                raise

        queue = TorchQueue(torch, self._place, run_or_refuse)
        return replace(
            kernel,
            run=run_or_refuse,
            load=load_all,
            store=store_all,
            private_buffers=tuple(arrays),
            keep=(*kernel.keep, self),
            notes=notes,
            device=QueueDevice(queue),
        )


class TorchQueue(Queue):
    """Calls of a Python function that gives PyTorch work on a device."""

    def __init__(self, torch: Any, place: Any, run: Callable[[], object]) -> None:
        self._torch, self._place, self._run = torch, place, run
        self._number = torch.zeros(1, device=place)
        self._events: tuple[Any, Any] | None = None
        try:
            events = [torch.Event(device=place, enable_timing=True) for _ in range(2)]
            for event in events:
                event.record()
            torch.accelerator.synchronize(place)
            events[0].elapsed_time(events[1])
            self._events = events[0], events[1]
        except MISSING:  # then the clock of the host counts
            pass

    def enqueue(self, calls: int) -> None:
        run = self._run
        for _ in range(calls):
            run()

    def wait(self) -> None:
        self._torch.accelerator.synchronize(self._place)

    def fetch(self) -> None:
        """Read a number of the stream in which the calls are."""
        self._number.cpu()

    def elapsed(self, program: Callable[[], object]) -> int:
        if self._events is None:
            return super().elapsed(program)
        start, end = self._events
        start.record()
        program()
        end.record()
        self.wait()
        return round(1e6 * float(start.elapsed_time(end)))

    def empty(self) -> Queue:
        return TorchQueue(self._torch, self._place, lambda: self._number.add_(1))

    def count(self, calls: int) -> int:
        number = self._torch.zeros(1, device=self._place)
        for _ in range(calls):
            number.add_(1)
        return round(float(number.cpu()[0]))

    def loop(self, turns: int) -> Callable[[], object] | None:
        """The calls recorded as a graph, which a device replays by itself."""
        module = self._torch.get_device_module(self._place)
        make, capture = getattr(module, "CUDAGraph", None), getattr(module, "graph", None)
        if make is None or capture is None:
            return None
        try:
            self._run()
            self.wait()
            graph = make()
            with capture(graph):
                for _ in range(turns):
                    self._run()
        except MISSING:  # operators that wait, or allocate otherwise
            return None
        replay: Callable[[], object] = graph.replay
        return replay

    def keeps_loop(self) -> bool:
        """A graph makes the calls that were recorded."""
        return True
