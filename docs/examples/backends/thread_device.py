"""A make-believe device, an example of a new one: a thread that computes while the host goes on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deepbench.core.backend import DeviceBackend, FoundDevice, kernel
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel, Queue

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays

NAME = "thread_device:thread"


class Driver:
    """What the maker of a device has: orders are made one after the other, and `wait` returns when all are done."""

    def __init__(self) -> None:
        self.orders: queue.Queue[tuple[Callable[[], object], int]] = queue.Queue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            order, times = self.orders.get()
            for _ in range(times):
                order()
            self.orders.task_done()

    def give(self, order: Callable[[], object], times: int = 1) -> None:
        self.orders.put((order, times))

    def wait(self) -> None:
        self.orders.join()


class ThreadQueue(Queue):
    """The calls of a kernel. `read` copies some of its result, and is an order like the others."""

    on_host = True  # other programs use this device too: the processors of the host

    def __init__(self, driver: Driver, call: Callable[[], object], read: Callable[[], object]) -> None:
        self.driver, self.call, self.read = driver, call, read

    def enqueue(self, calls: int) -> None:
        self.driver.give(self.call, calls)

    def wait(self) -> None:
        self.driver.wait()

    def fetch(self) -> None:
        done = threading.Event()
        self.driver.give(self.read)
        self.driver.give(done.set)
        done.wait()

    def empty(self) -> Queue:
        return ThreadQueue(self.driver, lambda: None, lambda: None)

    def count(self, calls: int) -> int:
        made: list[int] = []
        ThreadQueue(self.driver, lambda: made.append(1), lambda: None).enqueue(calls)
        self.driver.wait()
        return len(made)


class ThreadDevice(DeviceBackend):
    name = "thread_device"
    title = "Thread device"
    device = NAME
    reaches_shared = ()
    default = False

    def candidates(self) -> list[str]:
        return ["threading"]  # such as the files of drivers; nothing is loaded yet

    def probe(self, candidate: str) -> list[FoundDevice]:
        return [FoundDevice(NAME, "a thread of Python", f"Python's {candidate}")]

    def open(self) -> dict[str, Any]:
        self.driver = Driver()
        return {"name": self.title, "version": "1.0", "path": None, "device": "a thread of Python"}

    @kernel("gemm", precisions=("f32",))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.native.slope import QueueDevice

        if case.settings["weights"] == "packed":
            raise Unsupported("this device packs no weights")
        p, keeps, own = case.problem, case.settings["beta"] == "1", dict[str, Any]()

        def load() -> None:  # to the memory of the device; not timed
            own.update({name: array.copy() for name, array in arrays.items()})

        def store() -> None:  # and back
            arrays["c"][...] = own["c"]

        def multiply() -> None:
            product = (own["b"].T if p.b_t else own["b"]) @ (own["a"].T if p.a_t else own["a"])
            own["c"][...] = own["c"] + product if keeps else product

        load()
        calls = ThreadQueue(self.driver, multiply, lambda: own["c"][0, 0])
        return Kernel(
            load=load,
            store=store,
            private_buffers=tuple(arrays),
            notes={"implementation": "NumPy"},
            device=QueueDevice(calls),
        )


BACKEND = ThreadDevice()
