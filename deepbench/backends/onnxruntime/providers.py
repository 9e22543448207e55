"""Plug-in providers of ONNX Runtime: files that offer devices, each with memory of its own.

A provider may abort its process, wait for a network, or take long to load, so each is tried in a child first.

Their devices are asynchronous. `RunWithBinding` only enqueues, and on WebGPU (0.4.0) `SynchronizeBoundOutputs` does
not wait either: only a copy of an output to the host does. So a kernel here enqueues, and `PluginKernel.wait` waits.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepbench.backends.onnxruntime.library import PATH_VARIABLE, TITLE, OnnxRuntime, opened
from deepbench.backends.onnxruntime.model import element_type
from deepbench.backends.onnxruntime.session import bound_kernel, host_tensor, open_session
from deepbench.core.errors import DeepBenchError, LibraryError, Unavailable, Unsupported
from deepbench.core.operands import copy
from deepbench.native import callloop

if TYPE_CHECKING:
    from deepbench.backends.onnxruntime.model import OnnxGraph
    from deepbench.core.kernel import Kernel
    from deepbench.core.op import Array

PROVIDERS_VARIABLE = "DEEPBENCH_ONNXRUNTIME_PROVIDERS"
"""Names files of providers, with a colon between them. Otherwise those of packages `onnxruntime_ep_*` are used."""

# A provider that needs longer to list its devices is given up.
MOST_PROBE_S = 60.0

# Kinds of hardware by their numbers.
KINDS = {0: "cpu", 1: "gpu", 2: "npu"}

# Where a provider reports memory of a device.
DEFAULT_MEMORY = 0


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


@dataclass(frozen=True)
class Provider:
    """A file, and what it offers here."""

    path: str
    devices: tuple[PluginDevice, ...] = ()
    problem: str | None = None
    """Why there are no devices."""


def provider_paths() -> list[str]:
    """Files that the variable names, else those of installed packages."""
    named = os.environ.get(PROVIDERS_VARIABLE)
    if named is not None:
        return [os.path.abspath(path) for path in named.split(os.pathsep) if path]
    pattern = os.path.join("onnxruntime_ep_*", "**", "libonnxruntime_providers_*.so")
    folders = [folder for folder in dict.fromkeys(sys.path) if folder]
    found = [p for folder in folders for p in glob.iglob(os.path.join(glob.escape(folder), pattern), recursive=True)]
    return sorted({os.path.realpath(path) for path in found})


def probe(path: str) -> Provider:
    """Load a provider in a child and list its devices."""
    if not os.path.isfile(path):
        return Provider(path, problem=f"{path} does not exist; name files of providers in {PROVIDERS_VARIABLE}")
    package = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))}
    command = [sys.executable, "-P", "-m", __name__, path]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    try:
        done = subprocess.run(command, env=environment, timeout=MOST_PROBE_S, **streams)
    except subprocess.TimeoutExpired:
        return Provider(path, problem=f"{path} did not list its devices within {MOST_PROBE_S:.0f} s")
    if done.returncode or not done.stdout:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Provider(path, problem=f"{path} ended its process with {done.returncode} ({last:.200})")
    found = json.loads(done.stdout)
    if isinstance(found, str):
        return Provider(path, problem=found)
    devices = tuple(PluginDevice(**device) for device in found)
    return Provider(path, devices, None if devices else f"{path} offers no device on this machine")


def providers() -> list[Provider]:
    """All providers of this machine, with their devices or the reason why they have none."""
    return [probe(path) for path in provider_paths()]


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


class PluginKernel:
    """A kernel on the device of a provider, and what a clock for asynchronous devices needs.

    The calls of `kernel` only enqueue. Its `load` and `store` copy to and from the device, and wait.
    """

    def __init__(self, ort: OnnxRuntime, kernel: Kernel, fetch: Callable[[], None]) -> None:
        self.kernel = kernel
        self.fetch = fetch
        """Copies an output to the host, which waits for all calls so far."""
        self.wait = fetch
        self._ort = ort
        self._timer = callloop.host_timer(kernel)[0]

    def enqueue(self, calls: int) -> None:
        """Give the device so many calls."""
        try:
            self._timer(calls)
        except LibraryError:
            call = self.kernel.calls[0]
            self._ort(call.function.__name__, *call.words)  # the same call, for the text of its error
            raise

    def synchronize(self) -> None:
        """The library's own function to wait. It does not wait on every device: see the top of this file."""
        self._ort("SynchronizeBoundOutputs", self.kernel.calls[0].words[2])


def prepare(ort: OnnxRuntime, device: PluginDevice, graph: OnnxGraph) -> PluginKernel:
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
    return PluginKernel(ort, kernel, fetched)


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


def _main() -> None:
    """Print the devices of a provider as JSON, or a sentence why there are none. The provider may print, too."""
    answer = os.dup(1)
    os.dup2(2, 1)
    path = sys.argv[1]
    try:
        ort = opened(os.environ.get(PATH_VARIABLE))
        ort.start(1)
        devices = register(ort, path)
        found: object = [asdict(describe(ort, path, i, address)) for i, address in enumerate(devices)]
    except DeepBenchError as error:
        found = str(error)
    os.write(answer, json.dumps(found).encode())
    os._exit(0)  # without the destructors of the provider


if __name__ == "__main__":
    _main()
