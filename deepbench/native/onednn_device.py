"""oneDNN on an engine that works while the host goes on: the CPU or an Intel GPU through SYCL.

The engine's stream makes calls one after the other, and nothing waits for each of them. So a kernel is a `Queue`, timed
by the clock for devices without events. SYCL has no interface in C, so what follows uses oneDNN's own functions only.

The CPU computes on arrays where they are, because Intel's OpenCL runtime can use any memory of the process. A GPU has
copies in its own memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import replace
from time import sleep
from typing import Any, NamedTuple

import numpy as np

from deepbench.core.kernel import Call, Kernel, Queue
from deepbench.core.op import Arrays
from deepbench.core.operands import full
from deepbench.native import callloop
from deepbench.native import onednn as c
from deepbench.native.library import first_symbol
from deepbench.native.slope import QueueDevice

MEMORY_ALLOCATE = ctypes.c_void_p(-1)  # DNNL_MEMORY_ALLOCATE
# tbb::detail::r1::max_concurrency(const d1::task_arena_base*): the threads of a new arena
TBB_THREADS = ("_ZN3tbb6detail2r115max_concurrencyEPKNS0_2d115task_arena_baseE",)


def count(library: ctypes.CDLL, kind: int) -> int:
    """How many engines of this kind there are."""
    library.dnnl_engine_get_count.restype = ctypes.c_size_t
    return int(library.dnnl_engine_get_count(kind))


class DeviceCopy(NamedTuple):
    """The copy of an array in the memory of the device."""

    array: Any
    """The array itself, which owns its memory on the host."""
    descriptor: c.Handle
    address: int


class OneDNNDevice(c.OneDNN):
    """An engine with a stream whose calls are made one after the other, and which the host waits for at the end only.

    With `copies`, arrays have copies in the memory of the device: `upload` and `download` move their contents.
    """

    def __init__(self, library: ctypes.CDLL, kind: int, index: int, copies: bool) -> None:
        super().__init__(library, kind, index)
        self.copies = copies
        self._places: dict[int, DeviceCopy] = {}
        self._mapped: list[tuple[c.Handle, c.Handle]] = []
        self._zeros: list[Any] = []
        self._one, self._flag = full((1,), "f32", 1.0), full((1,), "f32", 0.0)
        self.smallest = self._copy(self._one, self._flag)
        """The calls of a copy of one number."""

    def threads(self) -> int | None:
        """Threads of TBB, on which a SYCL build computes; None if it has none."""
        threads = first_symbol(self.library, TBB_THREADS)
        return int(threads(None)) if threads is not None and self.kind == c.ENGINE_CPU else super().threads()

    # ---- calls

    def awaited(self, call: Call) -> tuple[Call, ...]:
        """This call alone: `wait` waits for all that were made."""
        return (call,)

    def give(self, calls: Sequence[Call]) -> None:
        """Make these calls once, without waiting."""
        super().run(calls)

    def run(self, calls: Sequence[Call]) -> None:
        """Make these calls once; their work is done when it returns."""
        self.give(calls)
        self.wait()

    def wait(self) -> None:
        """Return when all calls are done."""
        self.call("dnnl_stream_wait", self.stream)

    def zeros(self, array: Any) -> tuple[Call, ...]:
        """The calls that set an array to zero, after those before them: a copy of zeros."""
        self._zeros.append(np.zeros_like(array))
        return self._copy(self._zeros[-1], array)

    def _copy(self, source: Any, target: Any) -> tuple[Call, ...]:
        """The calls that copy an array to another one of its shape."""
        descriptor = self.desc_of(source)
        memories = self.memory(descriptor, source), self.memory(descriptor, target)
        return self.conversion(descriptor, memories[0], descriptor, memories[1], None)

    def counter(self, number: Any) -> tuple[Call, ...]:
        """The calls that add 1 to a number of f32."""
        descriptor, one = self.desc_of(number), ctypes.c_float(1)
        create = "dnnl_eltwise_forward_primitive_desc_create"
        arguments = (c.FORWARD_INFERENCE, c.ELTWISE_LINEAR, descriptor, descriptor, one, one, None)
        primitive = self.create("dnnl_primitive_create", self.create(create, self.engine, *arguments))
        memory = self.memory(descriptor, number)
        return self.execution(primitive, {c.ARG_SRC: memory, c.ARG_DST: memory})

    def fetch(self) -> None:
        """Wait for all calls without the library's wait: until a copy that follows them has reached the host."""
        self._flag[0] = 0
        self.upload([self._flag])
        self.give(self.smallest)
        while not self._flag[0]:
            sleep(0)
            self._read(self._flag)
        self._release()

    # ---- memory of the device

    def address(self, array: Any) -> int:
        """Where the engine finds an array: with `copies` in its copy, which is made now if there is none."""
        if not self.copies:
            return super().address(array)
        owner = _owner(array)
        start = int(owner.ctypes.data)
        if start not in self._places:
            descriptor = self.memory_desc((owner.nbytes,), "u8", (1,))
            memory = self.create("dnnl_memory_create", descriptor, self.engine, MEMORY_ALLOCATE)
            address = self.create_last("dnnl_memory_get_data_handle", memory).value or 0
            self._places[start] = DeviceCopy(owner, descriptor, address)
            self._write(self._places[start])
        return self._places[start].address + int(array.ctypes.data) - start

    def upload(self, arrays: Iterable[Any]) -> None:
        """Copy the arrays that have copies to the device. No call may be under way that uses them."""
        for array in arrays:
            if (place := self._places.get(int(_owner(array).ctypes.data))) is not None:
                self._write(place)

    def download(self, arrays: Iterable[Any]) -> None:
        """Copy arrays from the device, when all calls are done."""
        self.wait()
        for array in arrays:
            self._read(array)
        self._release()

    def _write(self, place: DeviceCopy) -> None:
        memory, there = self._map(place)
        ctypes.memmove(there, place.array.ctypes.data, place.array.nbytes)
        self._unmap(memory, there)

    def _read(self, array: Any) -> None:
        """Copy an array from the device. What is mapped must be released: that would write it back."""
        if (place := self._places.get(int(_owner(array).ctypes.data))) is not None:
            memory, there = self._map(place)
            ctypes.memmove(place.array.ctypes.data, there, place.array.nbytes)
            self._mapped.append((memory, there))

    def _release(self) -> None:
        while self._mapped:
            self._unmap(*self._mapped.pop())

    def _map(self, place: DeviceCopy) -> tuple[c.Handle, c.Handle]:
        """A memory object for a copy, and where the host finds its contents."""
        memory = self.create("dnnl_memory_create", place.descriptor, self.engine, ctypes.c_void_p(place.address))
        return memory, self.create_last("dnnl_memory_map_data", memory)

    def _unmap(self, memory: c.Handle, there: c.Handle) -> None:
        self.call("dnnl_memory_unmap_data", memory, there)
        self.call("dnnl_memory_destroy", memory)


def _owner(array: Any) -> Any:
    """The array whose memory this one is a part of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class CallQueue(Queue):
    """Calls of oneDNN on an engine."""

    def __init__(self, dnn: OneDNNDevice, calls: Sequence[Call]) -> None:
        self._dnn, self.on_host = dnn, dnn.kind == c.ENGINE_CPU
        self._give, _ = callloop.host_timer(Kernel(calls=tuple(calls)))

    def enqueue(self, calls: int) -> None:
        self._give(calls)

    def wait(self) -> None:
        self._dnn.wait()

    def fetch(self) -> None:
        self._dnn.fetch()

    def empty(self) -> Queue:
        return CallQueue(self._dnn, self._dnn.smallest)

    def count(self, calls: int) -> int:
        number = full((1,), "f32", 0.0)
        CallQueue(self._dnn, self._dnn.counter(number)).enqueue(calls)
        self._dnn.download([number])
        return round(float(number[0]))


def queued(dnn: OneDNNDevice, kernel: Kernel, arrays: Arrays, outputs: Iterable[str]) -> Kernel:
    """The kernel of these arrays as a queue of calls, with the copies that the device needs."""

    def load() -> None:
        dnn.upload(arrays.values())
        kernel.load()

    def store() -> None:
        kernel.store()
        dnn.download(arrays[name] for name in outputs if name in arrays)

    return replace(
        kernel,
        load=load,
        store=store,
        private_buffers=tuple(arrays) if dnn.copies else kernel.private_buffers,
        keep=(*kernel.keep, dnn),
        device=QueueDevice(CallQueue(dnn, kernel.calls)),
    )
