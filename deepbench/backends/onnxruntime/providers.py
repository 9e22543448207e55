"""Plug-in providers of ONNX Runtime: files that offer devices, each with memory of its own.

Their devices are asynchronous. `RunWithBinding` only enqueues, and on WebGPU (0.4.0) `SynchronizeBoundOutputs` does
not wait either: only a copy of an output to the host does. So a call here enqueues, and `PluginQueue.wait` copies.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepbench.backends.onnxruntime.library import TITLE, OnnxRuntime
from deepbench.backends.onnxruntime.model import element_type
from deepbench.backends.onnxruntime.session import bound_kernel, host_tensor, open_session
from deepbench.core.case import parse_case
from deepbench.core.errors import LibraryError, Unavailable, Unsupported
from deepbench.core.kernel import Queue
from deepbench.core.operands import copy
from deepbench.native import callloop

if TYPE_CHECKING:
    from deepbench.backends.onnxruntime.model import OnnxGraph
    from deepbench.core.kernel import Kernel
    from deepbench.core.op import Array

PROVIDERS_VARIABLE = "DEEPBENCH_ONNXRUNTIME_PROVIDERS"
"""Names files of providers, with a colon between them. Otherwise those of packages `onnxruntime_ep_*` are used."""

# Kinds of hardware by their numbers.
KINDS = {0: "cpu", 1: "gpu", 2: "npu"}

# Where a provider reports memory of a device.
DEFAULT_MEMORY = 0

# Rows and columns of the product that counts calls.
ADDING = 16


@dataclass(frozen=True)
class PluginDevice:
    """A device of a provider."""

    name: str
    provider: str
    """The provider's own name, such as `WebGpuExecutionProvider`."""
    version: str | None
    """Of the provider; None if it does not say."""
    vendor: str
    """Who made the provider."""
    kind: str
    """`cpu`, `gpu` or `npu`: what the provider runs on."""
    path: str
    """The provider's file."""
    index: int
    """Which of the provider's devices, from 0."""

    @property
    def platform(self) -> str:
        """`webgpu` of `WebGpuExecutionProvider`."""
        return self.provider.removesuffix("ExecutionProvider").lower()


def provider_paths() -> list[str]:
    """Files that the variable names, else those of installed packages."""
    named = os.environ.get(PROVIDERS_VARIABLE)
    if named is not None:
        return [os.path.abspath(path) for path in named.split(os.pathsep) if path]
    pattern = os.path.join("onnxruntime_ep_*", "**", "libonnxruntime_providers_*.so")
    folders = [folder for folder in dict.fromkeys(sys.path) if folder]
    found = [p for folder in folders for p in glob.iglob(os.path.join(glob.escape(folder), pattern), recursive=True)]
    return sorted({os.path.realpath(path) for path in found})


# Files of providers that this process has loaded, with the addresses of their devices.
_registered: dict[str, list[int]] = {}


def register(ort: OnnxRuntime, path: str) -> list[int]:
    """Load a provider into this process; the addresses of its devices."""
    if path not in _registered:
        before = set(ort.listed("GetEpDevices", ort.environment))
        try:
            name = f"deepbench{len(_registered)}".encode()
            ort("RegisterExecutionProviderLibrary", ort.environment, name, os.fsencode(path))
        except LibraryError as error:
            raise Unavailable(
                f"{path} is no provider for {TITLE} {ort.version} ({error})", "name another file"
            ) from None
        devices = [d for d in ort.listed("GetEpDevices", ort.environment) if d not in before]
        _registered[path] = devices
    return _registered[path]


def devices_of(ort: OnnxRuntime, path: str) -> list[PluginDevice]:
    """The devices of a provider; `Unavailable` if it is none, or has none here."""
    if not os.path.isfile(path):
        raise Unavailable(f"{path} does not exist", f"name files of providers in {PROVIDERS_VARIABLE}")
    found = [describe(ort, path, i, address) for i, address in enumerate(register(ort, path))]
    if not found:
        raise Unavailable(f"{path} offers no device on this machine", "install the driver of its device")
    return found


def describe(ort: OnnxRuntime, path: str, index: int, address: int) -> PluginDevice:
    """What a device of a registered provider says about itself."""
    hardware = ort("EpDevice_Device", address)
    kind = KINDS.get(ort("HardwareDevice_Type", hardware), "other")
    described = _pairs(ort, ort("HardwareDevice_Metadata", hardware)).get("Description")
    maker, provider, vendor = (
        (ort(name, of) or b"").decode(errors="replace")
        for name, of in (
            ("HardwareDevice_Vendor", hardware),
            ("EpDevice_EpName", address),
            ("EpDevice_EpVendor", address),
        )
    )
    version = _pairs(ort, ort("EpDevice_EpMetadata", address)).get("version")
    return PluginDevice(described or f"{maker} {kind}".strip(), provider, version, vendor, kind, path, index)


def _pairs(ort: OnnxRuntime, table: int) -> dict[str, str]:
    keys, values, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    ort("GetKeyValuePairs", table, ctypes.byref(keys), ctypes.byref(values), ctypes.byref(count))
    if not count.value or not keys.value or not values.value:
        return {}
    columns = [(ctypes.c_char_p * count.value).from_address(column) for column in (keys.value, values.value)]
    names, texts = ([(text or b"").decode(errors="replace") for text in column] for column in columns)
    return dict(zip(names, texts, strict=True))


class PluginQueue(Queue):
    """The calls of a kernel on the device of a provider. Its calls only enqueue; a copy of an output waits."""

    def __init__(self, ort: OnnxRuntime, kernel: Kernel, fetch: Callable[[], None], device: PluginDevice) -> None:
        self.kernel, self._fetch = kernel, fetch
        self.on_host = device.kind == "cpu"
        self._ort, self._device = ort, device
        self._timer = callloop.host_timer(kernel)[0]
        self._empty: AddingQueue | None = None

    def enqueue(self, calls: int) -> None:
        """Give the device so many calls."""
        if not calls:
            return
        try:
            self._timer(calls)
        except LibraryError:
            call = self.kernel.calls[0]
            try:
                self._ort(call.function.__name__, *call.words)  # the same call, for the text of its error
            except LibraryError as error:
                if "does not support" in str(error) or "not supported" in str(error):
                    raise Unsupported(f"the provider does not serve this: {error}") from None
                raise
            raise

    def wait(self) -> None:
        """Copy an output, which waits."""
        self._fetch()

    def fetch(self) -> None:
        self._fetch()

    def synchronize(self) -> None:
        """The library's own function to wait. It does not wait on every device: see the top of this file."""
        self._ort("SynchronizeBoundOutputs", self.kernel.calls[0].words[2])

    def empty(self) -> AddingQueue:
        if self._empty is None:
            self._empty = AddingQueue(self._ort, self._device)
        return self._empty

    def count(self, calls: int) -> int:
        return AddingQueue(self._ort, self._device).after(calls)


class AddingQueue(Queue):
    """A small product that adds 1 to numbers: next to no work, and it counts how often it ran."""

    def __init__(self, ort: OnnxRuntime, device: PluginDevice) -> None:
        import numpy as np

        from deepbench.backends.onnxruntime import operations

        case = parse_case(f"gemm m={ADDING} n={ADDING} k={ADDING} forward f32 onnxruntime threads=1")
        shape = (ADDING, ADDING)
        arrays = {"a": np.eye(ADDING, dtype="f4"), "b": np.ones(shape, "f4"), "c": np.zeros(shape, "f4")}
        self._inner, self._number = prepare(ort, device, operations.gemm(case, arrays)), arrays["c"]
        self._inner.kernel.load()
        self.on_host = self._inner.on_host

    def enqueue(self, calls: int) -> None:
        self._inner.enqueue(calls)

    def wait(self) -> None:
        self._inner.wait()

    def fetch(self) -> None:
        self._inner.fetch()

    def after(self, calls: int) -> int:
        """The number after so many calls."""
        self.enqueue(calls)
        self._inner.kernel.store()
        return round(float(self._number[0, 0]))


def prepare(ort: OnnxRuntime, device: PluginDevice, graph: OnnxGraph) -> PluginQueue:
    """A kernel for a graph, with its arrays in the memory of the device."""
    address = register(ort, device.path)[device.index]
    memory = ort("EpDevice_MemoryInfo", address, DEFAULT_MEMORY)
    if not memory:
        raise Unsupported(f"{device.provider} reports no memory of {device.name}, so its calls cannot be timed")
    session = open_session(ort, graph, address)
    allocator = ort.made("GetSharedAllocator", ort.environment, memory)
    named = {**graph.inputs, **graph.outputs}
    # An array that is read and written is one array on the device, too.
    arrays = {array.ctypes.data: array for array in named.values()}
    on_host = {place: host_tensor(ort, array) for place, array in arrays.items()}
    on_device = {place: _device_tensor(ort, allocator, array) for place, array in arrays.items()}
    outputs = [array.ctypes.data for array in graph.outputs.values()]
    smallest = min(outputs, key=lambda place: arrays[place].nbytes)
    target = copy(arrays[smallest])
    fetched = _Copies(ort, [on_device[smallest]], [host_tensor(ort, target)], (target,))
    tensors = {name: on_device[array.ctypes.data] for name, array in named.items()}
    kernel = bound_kernel(ort, session, graph, tensors)
    kernel.load = _Copies(ort, list(on_host.values()), list(on_device.values()), (arrays,))
    kernel.store = _Copies(ort, [on_device[p] for p in outputs], [on_host[p] for p in outputs], (arrays,))
    kernel.private_buffers = tuple(named)
    kernel.notes["provider"] = f"{device.provider} {device.version or ''}".strip()
    return PluginQueue(ort, kernel, fetched, device)


def _device_tensor(ort: OnnxRuntime, allocator: int, array: Array) -> int:
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    return ort.made("CreateTensorAsOrtValue", allocator, shape, array.ndim, element_type(array))


class _Copies:
    """Copies tensors to others; returns when that is done."""

    def __init__(self, ort: OnnxRuntime, sources: list[int], targets: list[int], keep: tuple[object, ...]) -> None:
        self.ort, self.keep, self.count = ort, keep, len(sources)
        self.sources, self.targets = ((ctypes.c_void_p * len(x))(*x) for x in (sources, targets))

    def __call__(self) -> None:
        self.ort("CopyTensors", self.ort.environment, self.sources, self.targets, None, self.count)
