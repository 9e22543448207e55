"""Sessions of ONNX Runtime: a graph made ready to run on arrays of ours, and what it turned out to run."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from deepbench.backends.onnxruntime.library import NOT_IMPLEMENTED, TITLE, OnnxRuntime
from deepbench.backends.onnxruntime.model import OnnxGraph, element_type, operators
from deepbench.core.errors import LibraryError, OutOfMemory, Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.machine.describe import memory_available

if TYPE_CHECKING:
    from deepbench.core.op import Array

CPU_PROVIDER = "CPUExecutionProvider"

# Every optimization: also those for this processor, such as other layouts of convolutions.
ALL_OPTIMIZATIONS = 99

# What the format of models can hold.
MOST_MODEL_BYTES = 2**31 - 2**16

# The model, the session's own constants and packed ones, and the file of the optimized graph.
COPIES = 4
# In errors of other codes that say the same: no provider that may be used has a kernel.
NO_KERNEL = ("fallback to CPU EP has been explicitly disabled", "Provider type for")


@dataclass(frozen=True)
class OpenSession:
    """A graph that is ready to run."""

    address: int
    ran: list[str]
    """The operators that it runs, in their order."""
    seconds: float
    """How long it took to make, with packing constants ahead."""


def open_session(ort: OnnxRuntime, graph: OnnxGraph, device: int | None = None) -> OpenSession:
    """A session for a graph on the CPU, or on the `device` of a provider.

    `Unsupported` if there is no kernel for it, if it runs on another provider, or in another precision.
    """
    constants, available = sum(array.nbytes for array in graph.constants.values()), memory_available()
    if constants > MOST_MODEL_BYTES:
        raise Unsupported(f"constants of an ONNX model have at most {MOST_MODEL_BYTES} bytes; choose weights=plain")
    if available is not None and COPIES * constants > available:
        raise OutOfMemory(f"{constants} bytes of constants are copied {COPIES} times; {available} bytes are available")
    model = graph.model
    provider = CPU_PROVIDER if device is None else ort("EpDevice_EpName", device).decode()
    try:
        # A session that stores its optimized graph keeps more in memory than others, so another one is timed.
        ran = _optimized(ort, model, device)
        start = perf_counter()
        session = _create(ort, model, device, None)
        seconds = perf_counter() - start
    except LibraryError as error:
        if error.status == NOT_IMPLEMENTED or any(words in str(error) for words in NO_KERNEL):
            raise Unsupported(f"{error}: there is no such kernel in this build on this machine") from None
        raise
    if "Cast" in ran:
        listed = ", ".join(ran)
        ort("ReleaseSession", session)
        raise Unsupported(f"{TITLE} computes this in another precision on this machine: it runs {listed}; choose f32")
    places = _providers(ort, session)
    if set(places) != {provider}:
        ort("ReleaseSession", session)
        nodes = "; ".join(f"{', '.join(nodes)} on {name}" for name, nodes in places.items()) or "it does not say where"
        raise Unsupported(f"{TITLE} does not run all of this on {provider}: {nodes}")
    return OpenSession(session, ran, seconds)


def _create(ort: OnnxRuntime, model: bytes, device: int | None, optimized: bytes | None) -> int:
    """A session. `optimized` names a file for its optimized graph."""
    options = ort.made("CreateSessionOptions")
    try:
        ort("DisablePerSessionThreads", options)
        ort("SetSessionGraphOptimizationLevel", options, ALL_OPTIMIZATIONS)
        ort("AddSessionConfigEntry", options, b"session.record_ep_graph_assignment_info", b"1")
        if device is not None:
            ort("AddSessionConfigEntry", options, b"session.disable_cpu_ep_fallback", b"1")
            append = "SessionOptionsAppendExecutionProvider_V2"
            ort(append, options, ort.environment, (ctypes.c_void_p * 1)(device), 1, None, None, 0)
        if optimized is not None:
            ort("SetOptimizedModelFilePath", options, optimized)
        return ort.made("CreateSessionFromArray", ort.environment, model, len(model), options)
    finally:
        ort("ReleaseSessionOptions", options)


def _optimized(ort: OnnxRuntime, model: bytes, device: int | None) -> list[str]:
    """The operators of the graph after all optimizations, from the file of it, which is in memory only."""
    file = os.memfd_create("optimized")
    try:
        ort("ReleaseSession", _create(ort, model, device, b"/proc/self/fd/%d" % file))
        with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
            return operators(view)
    finally:
        os.close(file)


def _providers(ort: OnnxRuntime, session: int) -> dict[str, list[str]]:
    """The operators by the provider that runs them."""
    found: dict[str, list[str]] = {}
    for part in ort.listed("Session_GetEpGraphAssignmentInfo", session):
        nodes = ort.listed("EpAssignedSubgraph_GetNodes", part)
        names = [ort.text("EpAssignedNode_GetOperatorType", node) for node in nodes]
        found.setdefault(ort.text("EpAssignedSubgraph_GetEpName", part), []).extend(names)
    return found


def host_tensor(ort: OnnxRuntime, array: Array) -> int:
    """A tensor on the memory of an array."""
    assert array.flags.c_contiguous, "tensors have no gaps"
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    make = "CreateTensorWithDataAsOrtValue"
    return ort.made(make, ort.cpu_memory, array.ctypes.data, array.nbytes, shape, array.ndim, element_type(array))


def bound_kernel(ort: OnnxRuntime, session: OpenSession, graph: OnnxGraph, tensors: dict[str, int]) -> Kernel:
    """A kernel that runs a session on these tensors, which it releases with the session when it is not needed."""
    binding = ort.made("CreateIoBinding", session.address)
    for name in graph.inputs:
        ort("BindInput", binding, name.encode(), tensors[name])
    for name in graph.outputs:
        ort("BindOutput", binding, name.encode(), tensors[name])
    notes = {"implementation": ", ".join(session.ran), **graph.notes}
    if ort.threads != 1:
        notes["threads_wait"] = "spinning"
    if graph.constants:
        notes["converted_bytes"] = sum(array.nbytes for array in graph.constants.values())
    if graph.packing:
        notes[graph.packing] = session.seconds
    call = Call(ort.functions["RunWithBinding"], session.address, 0, binding, status=True)
    kernel = Kernel(calls=(call,), keep=(graph, ort), notes=notes, private_buffers=graph.private_buffers)
    made = [
        ("Session", session.address),
        *(("Value", tensor) for tensor in dict.fromkeys(tensors.values())),
        ("IoBinding", binding),
    ]
    weakref.finalize(kernel, ort.release, made).atexit = False
    return kernel


def prepare(ort: OnnxRuntime, graph: OnnxGraph) -> Kernel:
    """The kernel of a graph on the CPU. It reads and writes the arrays themselves."""
    session = open_session(ort, graph)
    tensors = {name: host_tensor(ort, array) for name, array in {**graph.inputs, **graph.outputs}.items()}
    return bound_kernel(ort, session, graph, tensors)
