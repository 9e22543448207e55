"""One GPU through its vendor's C libraries: functions, errors, memory and a stream.

No setting of the GPU is ever changed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

from deepbench.core.errors import DeepBenchError, LibraryError, OutOfMemory, Unavailable, Unsupported
from deepbench.core.op import Array
from deepbench.native import library
from deepbench.native.gpu import functions
from deepbench.native.gpu.vendor import Cuda

# Workspace of a library. cuBLAS recommends 32 MiB on Hopper; more than 64 MiB did not make it faster.
WORKSPACE_BYTES = 64 * 2**20

# The only size of signal memory that HIP allocates.
SIGNAL_BYTES = 8

# Our type names → their names in `vendor.py`.
TYPES = {
    **{"f32": "R_32F", "f16": "R_16F", "bf16": "R_16BF", "s8": "R_8I", "s32": "R_32I"},
    **{"f8e4m3": "R_8F_E4M3", "f8e5m2": "R_8F_E5M2"},
}


class Runtime:
    """One GPU of this process, `number` 0 being the first one visible, with one stream.

    `CUDA_VISIBLE_DEVICES` and `HIP_VISIBLE_DEVICES` choose which GPUs are visible.
    """

    _current: ClassVar[Runtime | None] = None
    """The GPU that is current: CUDA and HIP have one current device per thread."""

    def __init__(self, vendor: Cuda, number: int = 0) -> None:
        self.vendor, self.number = vendor, number
        self._libraries: dict[str, ctypes.CDLL] = {}
        self._functions: dict[str, Any] = {}
        self._start()
        self.stream = ctypes.c_void_p()
        self.call("cudaStreamCreateWithFlags", ctypes.byref(self.stream), vendor.STREAM_NON_BLOCKING)
        self._workspace: tuple[int, int] | None = None

    def _start(self) -> None:
        """Load driver and runtime and select the GPU; `Unavailable` says what is missing."""
        vendor, count = self.vendor, ctypes.c_int()
        try:
            self.library("driver")
        except Unavailable as error:
            raise Unavailable(
                f"no {vendor.maker} GPU here: {error.reason}",
                f"run on a machine with a GPU, or name its driver in {vendor.libraries['driver'].variable}",
            ) from None
        self.library("runtime")
        status = self.function("cudaGetDeviceCount")(ctypes.byref(count))
        if status or not count.value:
            raise Unavailable(
                f"no {vendor.maker} GPU can be used: {self.status_text('cudaGetDeviceCount', status)}",
                f"check that the driver detects a GPU and is new enough for {self.library('runtime')._name}",
            )
        self.count = count.value
        if self.number >= self.count:
            raise Unsupported(f"GPU number {self.number + 1} is needed, this process may use {self.count}")
        if status := self.function("cudaSetDevice")(self.number):
            raise Unavailable(
                f"the {vendor.maker} GPU cannot be used: {self.status_text('cudaSetDevice', status)}",
                "end other programs that use it: in exclusive mode it takes one process at a time",
            )
        Runtime._current = self

    def activate(self) -> None:
        """Make this GPU the current device."""
        if Runtime._current is not self:
            self.check("cudaSetDevice", self.function("cudaSetDevice")(self.number))
            Runtime._current = self

    # ---- functions

    def library(self, part: str) -> ctypes.CDLL:
        """One of the vendor's libraries (`runtime`, `blas` …), loaded on first use; `Unavailable` if missing."""
        if part in self._libraries:
            return self._libraries[part]
        if part not in self.vendor.libraries:
            raise Unavailable(f"{self.vendor.maker} has no library of this kind: {part}", "use another library")
        entry = self.vendor.libraries[part]
        for other in entry.before:
            self.library(other)
        needs = [self.vendor.symbol(n) for n in functions.FUNCTIONS if functions.part_of(n) == part]
        remedy = ", or ".join(filter(None, (self.vendor.install, f"name the file in {entry.variable}")))
        self._libraries[part] = library.load(entry.title, entry.variable, entry.patterns, needs, remedy)
        return self._libraries[part]

    def function(self, name: str) -> Any:
        """A function by its CUDA name, with declared types; `Unsupported` if this release does not have it."""
        if name not in self._functions:
            part, symbol = functions.part_of(name), self.vendor.symbol(name)
            function = getattr(self.library(part), symbol, None)
            if function is None:
                raise Unsupported(f"this {self.vendor.libraries[part].title} has no {symbol}")
            self._functions[name] = functions.declare(function, name, self.vendor.OTHER_ARGUMENTS.get(name))
        return self._functions[name]

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raise if its status is not success."""
        if Runtime._current is not None:  # None only during the very first calls
            self.activate()
        self.check(name, self.function(name)(*arguments))

    def check(self, name: str, status: int) -> None:
        """Raise `OutOfMemory`, `Unsupported` or `LibraryError` if a function's status is not success."""
        if status == 0:
            return
        part = functions.part_of(name)
        no_memory, not_supported = self.vendor.STATUSES.get(part, ((), ()))
        text = f"{self.vendor.symbol(name)}: {self.status_text(name, status)}"
        if status in no_memory:
            raise OutOfMemory(text)
        if status in not_supported:
            raise Unsupported(text)
        raise LibraryError(self.vendor.libraries[part].title, self.vendor.symbol(name), status, text)

    def explain(self, error: LibraryError) -> DeepBenchError:
        """The error that `check` would have raised. Timed calls report only a symbol and a status."""
        for name in functions.FUNCTIONS:
            if self.vendor.symbol(name) == error.call:
                try:
                    self.check(name, error.status)
                except DeepBenchError as explained:
                    return explained
        return error

    def status_text(self, name: str, status: int) -> str:
        """The library's own text for a status of this function, if it has one."""
        part = functions.part_of(name)
        describe = self.vendor.STATUS_TEXT.get(part)
        text = self.function(describe)(status) if describe else None
        result = f"{text.decode(errors='replace')} ({status})" if text else f"status {status}"
        if part == "dnn" and describe:
            detail = ctypes.create_string_buffer(512)
            self.function("cudnnGetLastErrorString")(detail, len(detail))
            result += f": {detail.value.decode(errors='replace')}" if detail.value else ""
        return result

    def data_type(self, name: str) -> int:
        """The cudaDataType of one of our types (`f32`, `s8` …)."""
        if name not in TYPES:
            raise Unsupported(f"{self.vendor.maker}'s libraries have no type {name}")
        number: int = getattr(self.vendor, TYPES[name])
        return number

    @property
    def bus_id(self) -> str:
        """PCI address of the GPU, such as `0000:3B:00.0`."""
        text = ctypes.create_string_buffer(64)
        self.call("cudaDeviceGetPCIBusId", text, len(text), self.number)
        return text.value.decode(errors="replace")

    # ---- memory

    def allocate(self, count: int, what: str = "memory") -> int:
        """The address of `count` bytes on the GPU; `OutOfMemory` gives the numbers. Freed when the process ends."""
        address = ctypes.c_void_p()
        try:
            self.call("cudaMalloc", ctypes.byref(address), max(count, 1))
        except OutOfMemory:
            self.function("cudaGetLastError")()
            free = self.memory_info()[0]
            raise OutOfMemory(f"{what} needs {count} bytes on the GPU, {free} are free") from None
        return address.value or 0

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def workspace(self, least: int = WORKSPACE_BYTES) -> tuple[int, int]:
        """Address and bytes of a workspace that all kernels of the process share, `least` bytes or more."""
        if self._workspace is None or self._workspace[1] < least:
            if self._workspace is not None:
                self.synchronize()
                self.call("cudaFree", self._workspace[0])
                self._workspace = None
            self._workspace = (self.allocate(least, "the workspace"), least)
        return self._workspace

    def upload(self, address: int, array: Array) -> None:
        """Copy a contiguous array to the GPU, and wait. Uses our stream, so that it is in order with the kernels."""
        self.call("cudaMemcpyAsync", address, array.ctypes.data, array.nbytes, self.vendor.TO_DEVICE, self.stream)
        self.synchronize()

    def download(self, array: Array, address: int) -> None:
        """Copy from the GPU into a contiguous array, and wait."""
        self.call("cudaMemcpyAsync", array.ctypes.data, address, array.nbytes, self.vendor.TO_HOST, self.stream)
        self.synchronize()

    # ---- stream and events

    def synchronize(self) -> None:
        """Wait until the stream is empty; raises errors of the work in it."""
        self.call("cudaStreamSynchronize", self.stream)

    def new_event(self) -> ctypes.c_void_p:
        """A new event that records the time."""
        event = ctypes.c_void_p()
        self.call("cudaEventCreateWithFlags", ctypes.byref(event), 0)
        return event

    def record(self, event: ctypes.c_void_p) -> None:
        """Record an event in the stream."""
        self.call("cudaEventRecord", event, self.stream)

    def elapsed_ns(self, start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        """Wait for the second event; nanoseconds between both."""
        self.call("cudaEventSynchronize", end)
        milliseconds = ctypes.c_float()
        self.call("cudaEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value * 1e6

    @cached_property
    def stall(self) -> Stall:
        """The stall of this stream."""
        return Stall(self)


class Stall:
    """Holds the stream back until the host releases it, so that launching is not part of the time.

    The stream waits for a word in host memory. `reason` says why, once the stall can no longer be used.
    """

    def __init__(self, gpu: Runtime) -> None:
        self._gpu = gpu
        self._turn = 0
        self.reason: str | None = None
        try:
            host, device = self._allocate()
            gpu.function("cuStreamWaitValue32_v2")
        except (LibraryError, Unsupported) as error:
            self.reason = str(error)
            return
        self._word = ctypes.c_uint32.from_address(host.value or 0)
        self._word.value = 0
        self._device_address = device.value

    def _allocate(self) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
        """A word that host and stream see: its address for each."""
        gpu, host, device = self._gpu, ctypes.c_void_p(), ctypes.c_void_p()
        if gpu.vendor.SIGNAL_MEMORY is not None:
            # HIP's documentation requires this kind of memory, which some GPUs do not have.
            status = gpu.function("hipExtMallocWithFlags")(ctypes.byref(host), SIGNAL_BYTES, gpu.vendor.SIGNAL_MEMORY)
            if status == 0:
                return host, host
            gpu.function("cudaGetLastError")()
        gpu.call("cudaHostAlloc", ctypes.byref(host), 64, gpu.vendor.HOST_MAPPED)
        gpu.call("cudaHostGetDevicePointer", ctypes.byref(device), host, 0)
        return host, device

    @property
    def usable(self) -> bool:
        """Whether it has worked so far."""
        return self.reason is None

    def begin(self) -> bool:
        """Hold the stream back; False if the GPU cannot, with the `reason`."""
        if not self.usable:
            return False
        vendor, self._turn = self._gpu.vendor, self._turn + 1
        wait = self._gpu.function("cuStreamWaitValue32_v2")
        status = wait(self._gpu.stream, self._device_address, self._turn, vendor.WAIT_VALUE_GEQ, *vendor.WAIT_MASK)
        if status:
            self.reason = f"{vendor.symbol('cuStreamWaitValue32_v2')} returned {status}"
            self._gpu.function("cudaGetLastError")()
            return False
        return True

    def release(self, for_good_because: str | None = None) -> None:
        """Let the stream run; with a reason, never hold it back again."""
        self.reason = for_good_because or self.reason
        self._word.value = self._turn


class DeviceMemory:
    """Bytes on the GPU that are freed with this object."""

    def __init__(self, gpu: Runtime, count: int, what: str) -> None:
        self._gpu, self.bytes = gpu, count
        self.address = gpu.allocate(count, what)

    def __del__(self) -> None:
        if hasattr(self, "address"):  # missing if the allocation failed
            self._gpu.call("cudaFree", self.address)


class DeviceBuffers:
    """The arrays of a case on the GPU. `load` copies all of them there, `store` copies the outputs back.

    `leading` gives, by array, a number of elements: rows are padded with zeros so that each begins at a multiple of it.
    `views` gives, by array, a function whose result is stored instead of the array, such as its transpose.
    """

    def __init__(
        self,
        gpu: Runtime,
        arrays: Mapping[str, Array],
        outputs: tuple[str, ...],
        leading: Mapping[str, int] | None = None,
        views: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> None:
        self._gpu, self._arrays, self._views = gpu, arrays, views or {}
        self._outputs = [name for name in outputs if name in arrays]
        self.leading: dict[str, int] = {}
        """Elements from the start of one row to the next."""
        self.address: dict[str, int] = {}
        self._shape: dict[str, tuple[int, int]] = {}
        for name, array in arrays.items():
            view = self._view(name)
            columns = view.shape[-1]
            multiple = (leading or {}).get(name, 1)
            self.leading[name] = -(-columns // multiple) * multiple
            self._shape[name] = (view.size // columns, columns)
            count = self._shape[name][0] * self.leading[name] * array.itemsize
            self.address[name] = gpu.allocate(count, f"array {name}")

    def _view(self, name: str) -> Array:
        array: Array = self._arrays[name]
        return self._views[name](array) if name in self._views else array

    def load(self) -> None:
        """Copy every array to the GPU."""
        import numpy as np

        self._gpu.synchronize()
        for name in self._arrays:
            array = np.ascontiguousarray(self._view(name))
            rows, columns = self._shape[name]
            if self.leading[name] != columns:
                padded = np.zeros((rows, self.leading[name]), array.dtype)
                padded[:, :columns] = array.reshape(rows, columns)
                array = padded
            self._gpu.upload(self.address[name], array)

    def store(self) -> None:
        """Copy the outputs back."""
        import numpy as np

        self._gpu.synchronize()
        for name in self._outputs:
            array = self._arrays[name]
            assert name not in self._views, "outputs must be stored as they are"
            rows, columns = self._shape[name]
            if self.leading[name] == columns:
                self._gpu.download(array, self.address[name])
            else:
                padded = np.empty((rows, self.leading[name]), array.dtype)
                self._gpu.download(padded, self.address[name])
                array.reshape(rows, columns)[...] = padded[:, :columns]
