"""cuDNN's graph interface (`cudnnBackend…`): descriptors with attributes. Constants from the header of cuDNN 9.19."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from deepbench.core.errors import LibraryError, Unsupported
from deepbench.native.gpu.runtime import Runtime

# cudnnBackendDescriptorType_t
CONVOLUTION, ENGINE, ENGINE_CONFIG, HEURISTICS, PLAN, KNOB_CHOICE = 1, 2, 3, 4, 5, 7
CONVOLUTION_FORWARD, CONVOLUTION_BACKWARD_FILTER, CONVOLUTION_BACKWARD_DATA = 10, 11, 12
OPERATION_GRAPH, VARIANT_PACK, TENSOR, DEVICE_PROPERTIES = 15, 16, 17, 38

# cudnnBackendAttributeName_t
CONVOLUTION_COMPUTE, CONVOLUTION_MODE, CONVOLUTION_DILATIONS, CONVOLUTION_STRIDES = 100, 101, 102, 103
CONVOLUTION_POST_PADDINGS, CONVOLUTION_PRE_PADDINGS, CONVOLUTION_DIMENSIONS = 104, 105, 106
HEURISTICS_MODE, HEURISTICS_GRAPH, HEURISTICS_RESULTS, HEURISTICS_DEVICE = 200, 201, 202, 204
CONFIG_ENGINE, CONFIG_KNOBS = 300, 302
PLAN_HANDLE, PLAN_CONFIG, PLAN_WORKSPACE, PLAN_DEVICE = 400, 401, 402, 407
KNOB_TYPE, KNOB_VALUE = 600, 601
GRAPH_HANDLE, GRAPH_OPERATIONS = 800, 801
TENSOR_ALIGNMENT, TENSOR_TYPE, TENSOR_SIZES, TENSOR_STRIDES, TENSOR_ID = 900, 901, 902, 903, 906
PACK_IDS, PACK_POINTERS, PACK_WORKSPACE = 1000, 1001, 1003
ENGINE_INDEX, ENGINE_NUMERICAL_NOTES = 1301, 1303
DEVICE_JSON = 2702

# cudnnBackendAttributeType_t, and the C type of each
HANDLE, DATA_TYPE, INT64, FLOAT, POINTER, MODE, HEURISTIC = 0, 1, 3, 4, 6, 7, 8
KNOB, NOTE, DESCRIPTOR, CHARACTER = 9, 11, 15, 24
STORED: dict[int, Any] = {
    **dict.fromkeys((DATA_TYPE, MODE, HEURISTIC, KNOB, NOTE), ctypes.c_int),
    **dict.fromkeys((HANDLE, POINTER, DESCRIPTOR), ctypes.c_void_p),
    INT64: ctypes.c_int64,
    FLOAT: ctypes.c_float,
    CHARACTER: ctypes.c_char,
}

# cudnnDataType_t
TYPES = {"f32": 0, "f16": 2, "s8": 3, "s32": 4, "u8": 6, "bf16": 9}
CROSS_CORRELATION = 1
# cudnnBackendHeurMode_t: two models of what is fast, and what always works
HEURISTIC_MODES = (3, 1, 2)
# cudnnBackendNumericalNote_t
NOTES = {
    0: "tensor cores",
    1: "inputs converted down",
    2: "reduced precision of sums",
    3: "FFT",
    4: "not deterministic",
    5: "Winograd",
    6: "Winograd 4x4",
    7: "Winograd 6x6",
    8: "Winograd 13x13",
}
TENSOR_CORES, CONVERTED_DOWN, REDUCED, FOURIER, WINOGRAD = 0, 1, 2, 3, {5, 6, 7, 8}
MOST_KNOBS = 64


class Descriptor:
    """A cuDNN descriptor: set attributes, `finish`, then read attributes. Destroyed with this object."""

    def __init__(self, gpu: Runtime, kind: int) -> None:
        self._gpu = gpu
        self.handle = ctypes.c_void_p()
        gpu.call("cudnnBackendCreateDescriptor", kind, ctypes.byref(self.handle))
        self._keep: list[object] = []

    def set(self, attribute: int, kind: int, *values: Any) -> Descriptor:
        """Set an attribute to one or more values; descriptors are passed as `Descriptor`."""
        stored = (STORED[kind] * len(values))(*(v.handle if isinstance(v, Descriptor) else v for v in values))
        self._gpu.call("cudnnBackendSetAttribute", self.handle, attribute, kind, len(values), stored)
        self._keep.append((values, stored))  # must live as long as the descriptor
        return self

    def finish(self) -> Descriptor:
        """Check and finalize it; `Unsupported` if cuDNN has nothing for it."""
        self._gpu.call("cudnnBackendFinalize", self.handle)
        return self

    def get(self, attribute: int, kind: int, most: int = 1) -> list[Any]:
        """Up to `most` values of an attribute."""
        values = (STORED[kind] * most)()
        count = self._get(attribute, kind, most, values)
        return list(values)[:count]

    def get_descriptors(self, attribute: int, kind: int, most: int) -> list[Descriptor]:
        """Up to `most` descriptors of an attribute. cuDNN fills in descriptors that the caller created."""
        descriptors = [Descriptor(self._gpu, kind) for _ in range(most)]
        values = (ctypes.c_void_p * most)(*(d.handle for d in descriptors))
        filled = descriptors[: self._get(attribute, DESCRIPTOR, most, values)]
        for descriptor in filled:
            descriptor._keep.append(self)
        return filled

    def count(self, attribute: int) -> int:
        """The number of descriptors of an attribute."""
        return self._get(attribute, DESCRIPTOR, 0, None)

    def _get(self, attribute: int, kind: int, most: int, values: Any) -> int:
        count = ctypes.c_int64()
        self._gpu.call("cudnnBackendGetAttribute", self.handle, attribute, kind, most, ctypes.byref(count), values)
        return count.value

    def __del__(self) -> None:
        if self.handle:
            self._gpu.function("cudnnBackendDestroyDescriptor")(self.handle)


def tensor(gpu: Runtime, number: int, type_name: str, sizes: Sequence[int], strides: Sequence[int]) -> Descriptor:
    """A tensor with its number in the graph; strides in elements."""
    descriptor = Descriptor(gpu, TENSOR)
    descriptor.set(TENSOR_ID, INT64, number).set(TENSOR_TYPE, DATA_TYPE, TYPES[type_name])
    descriptor.set(TENSOR_SIZES, INT64, *sizes).set(TENSOR_STRIDES, INT64, *strides)
    return descriptor.set(TENSOR_ALIGNMENT, INT64, 16).finish()


def configurations(gpu: Runtime, graph: Descriptor, properties: Descriptor | None = None) -> list[Descriptor]:
    """The engine configurations that the heuristics propose for a graph, without duplicates, probably fastest first.

    `properties` describe a GPU that is not in this machine.
    """
    unique: dict[tuple[Any, ...], Descriptor] = {}
    failure: Exception | None = None
    for mode in HEURISTIC_MODES:
        heuristics = Descriptor(gpu, HEURISTICS)
        heuristics.set(HEURISTICS_GRAPH, DESCRIPTOR, graph).set(HEURISTICS_MODE, HEURISTIC, mode)
        if properties is not None:
            heuristics.set(HEURISTICS_DEVICE, DESCRIPTOR, properties)
        try:
            heuristics.finish()
            count = heuristics.count(HEURISTICS_RESULTS)
        except (Unsupported, LibraryError) as error:  # another mode may know this operation
            failure = error
            continue
        for config in heuristics.get_descriptors(HEURISTICS_RESULTS, ENGINE_CONFIG, count) if count else ():
            unique.setdefault(identity(config), config)
    if failure is not None and not unique:
        raise failure
    return list(unique.values())


def engine(config: Descriptor) -> Descriptor:
    """The engine of a configuration."""
    return config.get_descriptors(CONFIG_ENGINE, ENGINE, 1)[0]


def identity(config: Descriptor) -> tuple[Any, ...]:
    """Engine number and knobs, which identify a configuration."""
    number = engine(config).get(ENGINE_INDEX, INT64)[0]
    knobs = config.get_descriptors(CONFIG_KNOBS, KNOB_CHOICE, MOST_KNOBS)  # cuDNN does not report their number
    return (number, *sorted((k.get(KNOB_TYPE, KNOB)[0], k.get(KNOB_VALUE, INT64)[0]) for k in knobs))


def notes(config: Descriptor) -> set[int]:
    """The numerical notes of its engine, as in NOTES."""
    return set(engine(config).get(ENGINE_NUMERICAL_NOTES, NOTE, len(NOTES) + 8))


def algorithm(config: Descriptor) -> str:
    """What an engine computes convolutions by: `fft`, `winograd`, or else `direct`."""
    found = notes(config)
    return "fft" if FOURIER in found else "winograd" if found & WINOGRAD else "direct"


def plan(
    gpu: Runtime, config: Descriptor, handle: ctypes.c_void_p | None, properties: Descriptor | None = None
) -> Descriptor:
    """An executable plan; may compile kernels. `Unsupported` if the engine cannot run the operation after all."""
    descriptor = Descriptor(gpu, PLAN).set(PLAN_CONFIG, DESCRIPTOR, config)
    if properties is not None:
        descriptor.set(PLAN_DEVICE, DESCRIPTOR, properties)
    else:
        descriptor.set(PLAN_HANDLE, HANDLE, handle)
    return descriptor.finish()


def variant(gpu: Runtime, addresses: dict[int, int], workspace: int) -> Descriptor:
    """The memory that a plan works on: the address of each tensor by its number, and of the workspace."""
    descriptor = Descriptor(gpu, VARIANT_PACK)
    descriptor.set(PACK_IDS, INT64, *addresses).set(PACK_POINTERS, POINTER, *addresses.values())
    return descriptor.set(PACK_WORKSPACE, POINTER, workspace).finish()


def name(config: Descriptor) -> str:
    """`engine 57 (20=3 24=0), Winograd`: engine number, knobs and numerical notes."""
    number, *knobs = identity(config)
    knob_text = " ".join(f"{kind}={value}" for kind, value in knobs)
    note_text = ", ".join(NOTES[n] for n in sorted(notes(config)) if n in NOTES)
    return f"engine {number}" + (f" ({knob_text})" if knob_text else "") + (f", {note_text}" if note_text else "")
