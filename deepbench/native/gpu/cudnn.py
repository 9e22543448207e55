"""cuDNN's graph interface (`cudnnBackend…`): descriptors with attributes. Constants from the header of cuDNN 9.28."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from deepbench.core.errors import LibraryError, Unsupported
from deepbench.native.gpu.runtime import Runtime

# cudnnBackendDescriptorType_t
POINTWISE, CONVOLUTION, ENGINE, ENGINE_CONFIG, HEURISTICS, PLAN, KNOB_CHOICE = 0, 1, 2, 3, 4, 5, 7
CONVOLUTION_FORWARD, CONVOLUTION_BACKWARD_FILTER, CONVOLUTION_BACKWARD_DATA = 10, 11, 12
OPERATION_GRAPH, VARIANT_PACK, TENSOR, DEVICE_PROPERTIES = 15, 16, 17, 38
MATMUL, REDUCTION = 18, 21
POINTWISE_OPERATION, MATMUL_OPERATION, REDUCTION_OPERATION = 13, 19, 22
NORM_FORWARD, NORM_BACKWARD, RESHAPE, PAGED_CACHE_LOAD = 29, 30, 31, 35

# cudnnBackendAttributeName_t
POINTWISE_MODE, POINTWISE_COMPUTE, POINTWISE_AXIS = 0, 1, 9
CONVOLUTION_COMPUTE, CONVOLUTION_MODE, CONVOLUTION_DILATIONS, CONVOLUTION_STRIDES = 100, 101, 102, 103
CONVOLUTION_POST_PADDINGS, CONVOLUTION_PRE_PADDINGS, CONVOLUTION_DIMENSIONS = 104, 105, 106
HEURISTICS_MODE, HEURISTICS_GRAPH, HEURISTICS_RESULTS, HEURISTICS_DEVICE = 200, 201, 202, 204
CONFIG_ENGINE, CONFIG_KNOBS = 300, 302
PLAN_HANDLE, PLAN_CONFIG, PLAN_WORKSPACE, PLAN_DEVICE = 400, 401, 402, 407
KNOB_TYPE, KNOB_VALUE = 600, 601
POINTWISE_DESCRIPTOR, POINTWISE_X, POINTWISE_B, POINTWISE_Y, POINTWISE_T = 750, 751, 752, 753, 758
GRAPH_HANDLE, GRAPH_OPERATIONS = 800, 801
TENSOR_ALIGNMENT, TENSOR_TYPE, TENSOR_SIZES, TENSOR_STRIDES, TENSOR_ID = 900, 901, 902, 903, 906
TENSOR_IS_VIRTUAL, TENSOR_IS_BY_VALUE = 907, 908
PACK_IDS, PACK_POINTERS, PACK_WORKSPACE = 1000, 1001, 1003
ENGINE_INDEX, ENGINE_NUMERICAL_NOTES = 1301, 1303
MATMUL_COMPUTE, MATMUL_A, MATMUL_B, MATMUL_C, MATMUL_DESCRIPTOR = 1500, 1520, 1521, 1522, 1523
MATMUL_ROWS, MATMUL_COLUMNS, MATMUL_INNER = 1525, 1526, 1527
REDUCTION_OPERATOR, REDUCTION_COMPUTE, REDUCTION_X, REDUCTION_Y, REDUCTION_DESCRIPTOR = 1600, 1601, 1610, 1611, 1612
PAGES_CONTAINER, PAGES_Y, PAGES_LENGTHS, PAGES_TABLE = 1950, 1951, 1952, 1953
RESHAPE_X, RESHAPE_Y = 2200, 2201
DEVICE_JSON = 2702

# cudnnBackendAttributeType_t, and the C type of each
HANDLE, DATA_TYPE, BOOLEAN, INT64, FLOAT, POINTER, MODE, HEURISTIC = 0, 1, 2, 3, 4, 6, 7, 8
KNOB, NOTE, POINTWISE_MODE_TYPE, DESCRIPTOR, REDUCTION_OPERATOR_TYPE, CHARACTER = 9, 11, 14, 15, 18, 24
NORM_MODE, NORM_PHASE = 27, 28
ENUMERATIONS = (
    *(DATA_TYPE, MODE, HEURISTIC, KNOB, NOTE),
    *(POINTWISE_MODE_TYPE, REDUCTION_OPERATOR_TYPE, NORM_MODE, NORM_PHASE),
)
STORED: dict[int, Any] = {
    **dict.fromkeys(ENUMERATIONS, ctypes.c_int),
    **dict.fromkeys((HANDLE, POINTER, DESCRIPTOR), ctypes.c_void_p),
    BOOLEAN: ctypes.c_bool,
    INT64: ctypes.c_int64,
    FLOAT: ctypes.c_float,
    CHARACTER: ctypes.c_char,
}

# cudnnDataType_t
TYPES = {"f32": 0, "f16": 2, "s8": 3, "s32": 4, "u8": 6, "bf16": 9, "bool": 11}
CROSS_CORRELATION = 1
# cudnnPointwiseMode_t
ADD, MULTIPLY, DIVIDE, SUBTRACT, EXPONENTIAL, LOGARITHM, IDENTITY = 0, 1, 6, 9, 13, 15, 21
GREATER, GREATER_OR_EQUAL, LESS, AND, INDEX, SELECT = 302, 303, 304, 400, 501, 601
# cudnnReduceTensorOp_t
SUM, MAXIMUM = 0, 3
# cudnnBackendNormMode_t and cudnnBackendNormFwdPhase_t
LAYER_NORM, BATCH_NORM, RMS_NORM = 0, 2, 4
INFERENCE, TRAINING = 0, 1
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


def tensor(
    gpu: Runtime,
    number: int,
    type_name: str,
    sizes: Sequence[int],
    strides: Sequence[int],
    is_virtual: bool = False,
    is_by_value: bool = False,
) -> Descriptor:
    """A tensor with its number in the graph; strides in elements.

    A virtual one has no memory, and lies between two operations. One by value is a number in memory of the host.
    """
    descriptor = Descriptor(gpu, TENSOR)
    for attribute, is_set in ((TENSOR_IS_VIRTUAL, is_virtual), (TENSOR_IS_BY_VALUE, is_by_value)):
        if is_set:
            descriptor.set(attribute, BOOLEAN, True)
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
