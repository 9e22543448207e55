"""One GPU: its libraries, memory, stream and errors. Nothing is ever set on the card."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np

from deepbench.core.errors import DeepBenchError, LibraryError, OutOfMemory, Unavailable, Unsupported
from deepbench.native import library
from deepbench.native.gpu import functions, telemetry
from deepbench.native.gpu.timing import DeviceTimer, GroupTimer
from deepbench.native.gpu.vendor import Cuda

Array = np.ndarray[Any, Any]

# What libraries get beside the operands. cuBLAS asks for 32 MiB on Hopper, and no more than this makes it faster.
WORKSPACE_BYTES = 64 * 2**20

# The names of our types in libraries' enumerations.
TYPES = {
    "f32": "R_32F",
    "f16": "R_16F",
    "bf16": "R_16BF",
    "s8": "R_8I",
    "s32": "R_32I",
    "f8e4m3": "R_8F_E4M3",
    "f8e5m2": "R_8F_E5M2",
}


class Gpu:
    """One card, the first that this process may use unless another `number` is asked for, by one vendor's libraries.

    `CUDA_VISIBLE_DEVICES` and `HIP_VISIBLE_DEVICES` choose which that is, as everywhere.
    """

    _current: ClassVar[Gpu | None] = None
    """Whose memory and events are made now: the runtime has one current device a thread."""

    def __init__(self, vendor: Cuda, number: int = 0) -> None:
        self.vendor, self.number = vendor, number
        self._libraries: dict[str, ctypes.CDLL] = {}
        self._functions: dict[str, Any] = {}
        self._start()
        stream = ctypes.c_void_p()
        self.call("cudaStreamCreateWithFlags", ctypes.byref(stream), vendor.STREAM_NON_BLOCKING)
        self.stream = stream
        self._workspace: tuple[int, int] | None = None

    def _start(self) -> None:
        """Find runtime and card, or say in one sentence what is missing."""
        vendor, count = self.vendor, ctypes.c_int()
        try:
            self.library("driver")
        except Unavailable as error:
            raise Unavailable(
                f"no {vendor.maker} GPU here: {error.reason}",
                f"run where there is one, or name its driver in {vendor.libraries['driver'].variable}",
            ) from None
        self.library("runtime")
        status = self.function("cudaGetDeviceCount")(ctypes.byref(count))
        if status or not count.value:
            raise Unavailable(
                f"no {vendor.maker} GPU can be used: {self.text_of('cudaGetDeviceCount', status)}",
                f"check that the driver sees one and is new enough for {self.library('runtime')._name}",
            )
        self.count = count.value
        if self.number >= self.count:
            raise Unsupported(f"card {self.number + 1} is asked for, this process may use {self.count}")
        self.activate()

    def activate(self) -> None:
        """Make it the current device."""
        if Gpu._current is not self:
            self.expect("cudaSetDevice", self.function("cudaSetDevice")(self.number))
            Gpu._current = self

    # ---- functions

    def library(self, part: str) -> ctypes.CDLL:
        """One of the vendor's libraries (`runtime`, `blas` …), loaded when first asked for; `Unavailable` without."""
        if part in self._libraries:
            return self._libraries[part]
        if part not in self.vendor.libraries:
            raise Unavailable(f"{self.vendor.maker} has no library of this kind: {part}", "use another one")
        described = self.vendor.libraries[part]
        for other in described.before:
            self.library(other)
        needs = [self.vendor.symbol(n) for n in functions.FUNCTIONS if functions.part_of(n) == part]
        remedy = f"name the file in {described.variable}"
        if self.vendor.extra:
            remedy = f"pip install 'deepbench-kernels[{self.vendor.extra}]', or {remedy}"
        loaded = library.load(described.title, described.variable, described.patterns, needs, remedy)
        self._libraries[part] = loaded
        return loaded

    def function(self, name: str) -> Any:
        """A function by its CUDA name, with the types of the table; `Unsupported` where this release has none."""
        if name not in self._functions:
            symbol = self.vendor.symbol(name)
            found = getattr(self.library(functions.part_of(name)), symbol, None)
            if found is None:
                raise Unsupported(f"this {self.vendor.libraries[functions.part_of(name)].title} has no {symbol}")
            self._functions[name] = functions.declare(found, name, self.vendor.OTHER_ARGUMENTS.get(name))
        return self._functions[name]

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function and raise for every status but success."""
        if Gpu._current is not None:  # not yet at the very first
            self.activate()
        self.expect(name, self.function(name)(*arguments))

    def expect(self, name: str, status: int) -> None:
        """Turn a status into `OutOfMemory`, `Unsupported` or `LibraryError`."""
        if status == 0:
            return
        part = functions.part_of(name)
        memory, missing = self.vendor.MEANINGS.get(part, ((), ()))
        described = f"{self.vendor.symbol(name)}: {self.text_of(name, status)}"
        if status in memory:
            raise OutOfMemory(described)
        if status in missing:
            raise Unsupported(described)
        raise LibraryError(self.vendor.libraries[part].title, self.vendor.symbol(name), status, described)

    def explained(self, error: LibraryError) -> DeepBenchError:
        """An error of a timed call, which knows only a symbol and a number, as `expect` would have raised it."""
        for name in functions.FUNCTIONS:
            if self.vendor.symbol(name) == error.call:
                try:
                    self.expect(name, error.status)
                except DeepBenchError as found:
                    return found
        return error

    def text_of(self, name: str, status: int) -> str:
        """A status in the library's own words, where it has some."""
        teller = self.vendor.TELLERS.get(functions.part_of(name))
        text = self.function(teller)(status) if teller else None
        found = f"{text.decode(errors='replace')} ({status})" if text else f"status {status}"
        if functions.part_of(name) == "dnn" and self.vendor.TELLERS.get("dnn"):
            why = ctypes.create_string_buffer(512)
            self.function("cudnnGetLastErrorString")(why, len(why))
            found += f": {why.value.decode(errors='replace')}" if why.value else ""
        return found

    # ---- memory

    def allocate(self, count: int, what: str = "memory") -> int:
        """The address of so many bytes on the card; `OutOfMemory` with the numbers. Freed with the process."""
        address = ctypes.c_void_p()
        try:
            self.call("cudaMalloc", ctypes.byref(address), max(count, 1))
        except OutOfMemory:
            self.function("cudaGetLastError")()
            free = self.memory()[0]
            raise OutOfMemory(f"{what} needs {count} bytes on the GPU, {free} are free") from None
        return address.value or 0

    def free(self, address: int) -> None:
        """Give memory back."""
        self.call("cudaFree", address)

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def workspace(self, wanted: int = WORKSPACE_BYTES) -> tuple[int, int]:
        """Address and bytes of scratch memory that all kernels of a process share; at least what is wanted."""
        if self._workspace is None or self._workspace[1] < wanted:
            if self._workspace is not None:
                self.synchronize()
                self.free(self._workspace[0])
                self._workspace = None
            self._workspace = (self.allocate(wanted, "the workspace"), wanted)
        return self._workspace

    def upload(self, address: int, array: Array) -> None:
        """Copy a contiguous array to the card, and wait. In our stream: no other one is in order with it."""
        self.call("cudaMemcpyAsync", address, array.ctypes.data, array.nbytes, self.vendor.TO_DEVICE, self.stream)
        self.synchronize()

    def download(self, array: Array, address: int) -> None:
        """Copy from the card into a contiguous array, and wait."""
        self.call("cudaMemcpyAsync", array.ctypes.data, address, array.nbytes, self.vendor.TO_HOST, self.stream)
        self.synchronize()

    def synchronize(self) -> None:
        """Wait until the stream is empty; raises what went wrong in it."""
        self.call("cudaStreamSynchronize", self.stream)

    def type(self, name: str) -> int:
        """The number of a type of ours (`f32`, `s8` …) in cudaDataType."""
        if name not in TYPES:
            raise Unsupported(f"{self.vendor.maker}'s libraries have no type {name}")
        number: int = getattr(self.vendor, TYPES[name])
        return number

    # ---- time

    def other(self, number: int) -> Gpu:
        """Another card of this process."""
        return open_gpu(self.vendor, number)

    def timer(self, enqueue: Any, calls: int) -> DeviceTimer:
        """A timer on the card's clock for what `enqueue(repeats)` puts into the stream, `calls` a time."""
        return DeviceTimer(self, enqueue, calls)

    def each_timer(self, kernel: Any) -> GroupTimer:
        """A timer for the calls of a group's kernel, behind its barrier."""
        return GroupTimer([self, *kernel.others], kernel)

    def conditions(self) -> dict[str, Any] | None:
        """Clocks, throttling, power, temperature and other processes now; None where nothing can be read."""
        return None if self.sensors is None else self.sensors.conditions()

    def warnings(self, seen: dict[str, Any]) -> list[tuple[str, str]]:
        """What the conditions before and after, and the clock that was used, say against a measurement."""
        found = telemetry.warnings(seen["before"], seen["after"])
        if seen["fallback"] is not None:
            found.append(("plain_clock", f"launching is in the time of short kernels: {seen['fallback']}"))
        return found

    def energy_mj(self) -> float | None:
        """Millijoules that the card has used since its driver was loaded, None where it does not count."""
        return None if self.sensors is None else self.sensors.energy_mj()

    # ---- facts

    @property
    def cache_bytes(self) -> int:
        """Bytes of the L2 cache."""
        return self.attribute("L2_BYTES") or 0

    def attribute(self, name: str) -> int | None:
        """A device attribute by the name that `vendor.py` gives its number; None where the card has none."""
        value = ctypes.c_int()
        number = getattr(self.vendor, name)
        return (
            None if self.function("cudaDeviceGetAttribute")(ctypes.byref(value), number, self.number) else value.value
        )

    def facts(self) -> dict[str, Any]:
        """What a reader must know of the card, for the record of each library."""
        clock, processors = self.attribute("CLOCK_KHZ"), self.attribute("PROCESSORS")
        capability = (self.attribute("CAPABILITY_MAJOR") or 0, self.attribute("CAPABILITY_MINOR") or 0)
        sensors = self.sensors
        boost = (sensors and sensors.highest_clock_mhz()) or (clock or 0) / 1000
        lanes = self.vendor.F32_LANES.get(capability)
        peak = 2.0 * lanes * processors * boost * 1e6 if lanes and processors and boost else None
        memory_clock, bus = self.attribute("MEMORY_CLOCK_KHZ"), self.attribute("MEMORY_BUS_BITS")
        return {
            "vendor": self.vendor.maker,
            "name": self._text("cuDeviceGetName", 256),
            "capability": "{}.{}".format(*capability),
            "processors": processors,
            "clock_mhz": boost or None,
            "memory_bytes": self.memory()[1],
            # Two transfers a clock, as every memory on cards has.
            "memory_bytes_per_s": 2e3 * memory_clock * bus / 8 if memory_clock and bus else None,
            "cache_bytes": self.cache_bytes or None,
            "peak_f32_flop_per_s": peak,
            "bus_id": self.bus_id,
            "cards": self.count,
            "runtime": self._number("cudaRuntimeGetVersion"),
            "driver": (sensors and sensors.driver_version()) or self._number("cudaDriverGetVersion"),
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES", os.environ.get("HIP_VISIBLE_DEVICES")),
            "tf32_override": os.environ.get("NVIDIA_TF32_OVERRIDE"),
        }

    @property
    def bus_id(self) -> str:
        """PCI address of the card, such as `0000:3B:00.0`."""
        text = ctypes.create_string_buffer(64)
        self.call("cudaDeviceGetPCIBusId", text, len(text), self.number)
        return text.value.decode(errors="replace")

    def _text(self, name: str, size: int) -> str | None:
        text = ctypes.create_string_buffer(size)
        return None if self.function(name)(text, size, self.number) else text.value.decode(errors="replace")

    def _number(self, name: str) -> str | None:
        """`13000` → `13.0`."""
        value = ctypes.c_int()
        if self.function(name)(ctypes.byref(value)):
            return None
        return f"{value.value // 1000}.{value.value % 1000 // 10}"

    @cached_property
    def stall(self) -> Stall:
        """The stall of this card's stream, made when first asked for."""
        return Stall(self)

    @cached_property
    def sensors(self) -> telemetry.Sensors | None:
        """Its clocks, power and temperature; None where nothing can be read."""
        return telemetry.sensors(self)


class Stall:
    """Holds the stream back until the host says go, so that nothing the host does is in the time.

    The card waits for a word in the host's memory. `usable` turns False, with the reason, where it cannot.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._turn = 0
        self.reason: str | None = None
        address, seen = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            gpu.call("cudaHostAlloc", ctypes.byref(address), 64, gpu.vendor.HOST_MAPPED)
            gpu.call("cudaHostGetDevicePointer", ctypes.byref(seen), address, 0)
            gpu.function("cuStreamWaitValue32_v2")
        except (LibraryError, Unsupported) as error:
            self.reason = str(error)
            return
        self._word = ctypes.c_uint32.from_address(address.value or 0)
        self._word.value = 0
        self._seen = seen

    @property
    def usable(self) -> bool:
        """Whether it worked until now."""
        return self.reason is None

    def begin(self) -> bool:
        """Hold the stream back; False, with a `reason`, where the card cannot."""
        if not self.usable:
            return False
        vendor, self._turn = self._gpu.vendor, self._turn + 1
        mask = vendor.WAIT_MASK
        function = self._gpu.function("cuStreamWaitValue32_v2")
        status = function(self._gpu.stream, self._seen.value, self._turn, vendor.WAIT_VALUE_GEQ, *mask)
        if status:
            self.reason = f"{vendor.symbol('cuStreamWaitValue32_v2')} returned {status}"
            self._gpu.function("cudaGetLastError")()
            return False
        return True

    def release(self) -> None:
        """Let the stream go."""
        self._word.value = self._turn

    def give_up(self, reason: str) -> None:
        """Let the stream go, and never hold it back again."""
        self.reason = reason
        self.release()


class Memory:
    """Bytes on the card that are given back with this object."""

    def __init__(self, gpu: Gpu, count: int, what: str) -> None:
        self._gpu, self.bytes = gpu, count
        self.address = gpu.allocate(count, what)

    def __del__(self) -> None:
        if hasattr(self, "address"):  # it was allocated
            self._gpu.free(self.address)


class Buffers:
    """Arrays of a case on the card. `load` copies all of them there, `store` copies the outputs back.

    `leading` gives arrays whose rows must begin at multiples of so many elements; rows are padded with zeros there.
    `views` gives what is stored instead of an array, such as its transpose: a function of the array.
    """

    def __init__(
        self,
        gpu: Gpu,
        arrays: Mapping[str, Array],
        outputs: tuple[str, ...],
        leading: Mapping[str, int] | None = None,
        views: Mapping[str, Any] | None = None,
    ) -> None:
        self._gpu, self._arrays = gpu, arrays
        self._outputs = [name for name in outputs if name in arrays]
        self._views = views or {}
        self.leading = {}
        self._rows: dict[str, tuple[int, int]] = {}
        self.address = {}
        for name, array in arrays.items():
            seen = self._seen(name)
            columns = seen.shape[-1]
            multiple = (leading or {}).get(name, 1)
            self.leading[name] = -(-columns // multiple) * multiple
            self._rows[name] = (seen.size // columns, columns)
            count = self._rows[name][0] * self.leading[name] * array.itemsize
            self.address[name] = gpu.allocate(count, f"array {name}")

    def _seen(self, name: str) -> Array:
        array: Array = self._arrays[name]
        return self._views[name](array) if name in self._views else array

    def load(self) -> None:
        """Copy every array to the card."""
        self._gpu.synchronize()
        for name in self._arrays:
            array = np.ascontiguousarray(self._seen(name))
            rows, columns = self._rows[name]
            if self.leading[name] != columns:
                padded = np.zeros((rows, self.leading[name]), array.dtype)
                padded[:, :columns] = array.reshape(rows, columns)
                array = padded
            self._gpu.upload(self.address[name], array)

    def store(self) -> None:
        """Copy the outputs back."""
        self._gpu.synchronize()
        for name in self._outputs:
            array = self._arrays[name]
            assert name not in self._views, "outputs are stored as they are"
            rows, columns = self._rows[name]
            if self.leading[name] == columns:
                self._gpu.download(array, self.address[name])
            else:
                padded = np.empty((rows, self.leading[name]), array.dtype)
                self._gpu.download(padded, self.address[name])
                array.reshape(rows, columns)[...] = padded[:, :columns]


@cache
def open_gpu(vendor: Cuda, number: int = 0) -> Gpu:
    """A GPU of this process; `Unavailable` says what is missing."""
    return Gpu(vendor, number)
