"""Recurrent layers in cuDNN: times every algorithm with every math type, and measures the fastest."""

from __future__ import annotations

import ctypes
from functools import partial
from itertools import product

from deepbench.core.case import Case
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Arrays
from deepbench.native.gpu import cudnn, timing
from deepbench.native.gpu.library import GpuBackend
from deepbench.native.gpu.recurrent import CELLS, UNIDIRECTIONAL, Description, GpuRecurrentLayer, Spaces
from deepbench.native.gpu.runtime import DeviceMemory
from deepbench.ops.recurrent.problem import single_layer

# cudnn_adv.h
ALGORITHMS = {"standard": 0, "persistent static": 1, "persistent dynamic": 2, "persistent static small": 3}
# The only bias mode of persistent algorithms. Elements of the second bias that we do not have are zero.
DOUBLE_BIAS = 2
SEQUENCE_MAJOR_PACKED, NOT_PADDED = 1, 0
INFERENCE, TRAINING = 0, 1
ADD_GRADIENTS = 0
# cudnnMathType_t. Only multiply-adds are strict f32; the others may use tensor cores.
MATH_TYPES = {"default": 0, "tensor cores": 1, "multiply-adds": 3}
STRICT_MATH_TYPES = {"multiply-adds": 3}


def prepare(backend: GpuBackend, case: Case, arrays: Arrays) -> Kernel:
    """The kernel of one layer in any direction."""
    math_types = STRICT_MATH_TYPES if case.precision.name == "f32" else MATH_TYPES
    layer = CuDNNLayer(backend, case, single_layer(case, arrays, backend.title))
    candidates = {
        title: partial(layer.kernel, title, (ALGORITHMS[algorithm], math_types[math]))
        for algorithm, math in product(ALGORITHMS, math_types)
        if (title := f"{algorithm}, {math}")
    }
    return backend.fastest(case, candidates, most_s=timing.COMPILED_SEARCH_MOST_S)[0]


class CuDNNLayer(GpuRecurrentLayer):
    """A layer through the functions of cudnn_adv.h."""

    TYPES = cudnn.TYPES
    # cuDNN's order of the gates of a GRU: reset, update, new.
    GATES = {"vanilla": (0,), "lstm": (0, 1, 2, 3), "gru": (1, 0, 2)}  # noqa: RUF012  (ClassVar in GpuRecurrentLayer)

    def __init__(self, backend: GpuBackend, case: Case, arrays: Arrays) -> None:
        super().__init__(backend, case, arrays)
        self._lengths = DeviceMemory(self.gpu, self.lengths.nbytes, "the sequence lengths")

    def load(self) -> None:
        super().load()
        self.gpu.upload(self._lengths.address, self.lengths)

    def data(self, width: int) -> ctypes.c_void_p:
        p, data = self.problem, self.backend.create("cudnnCreateRNNDataDescriptor")
        sizes = p.timesteps, p.batch, width
        lengths = self.lengths.ctypes.data
        self.gpu.call("cudnnSetRNNDataDescriptor", data, self.type, SEQUENCE_MAJOR_PACKED, *sizes, lengths, None)
        return data

    def state(self) -> ctypes.c_void_p:
        p, state = self.problem, self.backend.create("cudnnCreateTensorDescriptor")
        sizes = (ctypes.c_int * 3)(1, p.batch, p.hidden)
        strides = (ctypes.c_int * 3)(p.batch * p.hidden, p.hidden, 1)
        self.gpu.call("cudnnSetTensorNdDescriptor", state, self.type, 3, sizes, strides)
        return state

    def describe(self, algorithm: tuple[int, int]) -> Description:
        """`algorithm` has cuDNN's numbers of the algorithm and of the math type."""
        p, gpu, handle = self.problem, self.gpu, self.backend.handle
        rnn = self.backend.create("cudnnCreateRNNDescriptor")
        gpu.call(
            "cudnnSetRNNDescriptor_v8", rnn, algorithm[0], CELLS[p.cell], DOUBLE_BIAS, UNIDIRECTIONAL, self.input_mode,
            self.type, cudnn.TYPES["f32"], algorithm[1], self.width, p.hidden, p.hidden, 1, None, NOT_PADDED,
        )  # fmt: skip
        if algorithm[0] == ALGORITHMS["persistent dynamic"]:
            gpu.call("cudnnBuildRNNDynamic", handle, rnn, p.batch)
        mode = TRAINING if self.training else INFERENCE
        sizes = [ctypes.c_size_t() for _ in range(3)]
        workspace, reserve, weights = map(ctypes.byref, sizes)
        gpu.call("cudnnGetRNNTempSpaceSizes", handle, rnn, mode, self.x_desc, workspace, reserve)
        gpu.call("cudnnGetRNNWeightSpaceSize", handle, rnn, weights)
        return Description(rnn, *(size.value for size in sizes))

    def place(self, layer: Description, number: int, block: int) -> tuple[int | None, int | None]:
        matrix, bias = (self.backend.create("cudnnCreateTensorDescriptor") for _ in range(2))
        matrix_at, bias_at = ctypes.c_void_p(), ctypes.c_void_p()
        self.gpu.call(
            "cudnnGetRNNWeightParams", self.backend.handle, layer.rnn, 0, layer.weights, block, number, matrix,
            ctypes.byref(matrix_at), bias, ctypes.byref(bias_at),
        )  # fmt: skip
        return (matrix_at.value - block if matrix_at.value else None, bias_at.value - block if bias_at.value else None)

    def forward(self, layer: Description, spaces: Spaces) -> Call:
        at = self.address
        return self.call(
            "cudnnRNNForward", self.backend.handle, layer.rnn, TRAINING if self.training else INFERENCE,
            self._lengths.address, self.x_desc, at("x"), self.y_desc, at("y"), self.state_desc, at("h0"), None,
            self.state_desc, at("c0"), None, *_weights(spaces), *_scratch(spaces),
        )  # fmt: skip

    def backward_data(self, layer: Description, spaces: Spaces) -> Call:
        at = self.address
        return self.call(
            "cudnnRNNBackwardData_v8", self.backend.handle, layer.rnn, self._lengths.address, self.y_desc, at("y"),
            at("dy"), self.x_desc, at("dx"), self.state_desc, at("h0"), None, at("dh0"), self.state_desc, at("c0"),
            None, at("dc0"), *_weights(spaces), *_scratch(spaces),
        )  # fmt: skip

    def backward_weights(self, layer: Description, spaces: Spaces) -> Call:
        at = self.address
        return self.call(
            "cudnnRNNBackwardWeights_v8", self.backend.handle, layer.rnn, ADD_GRADIENTS, self._lengths.address,
            self.x_desc, at("x"), self.state_desc, at("h0"), self.y_desc, at("y"), layer.weights,
            spaces.weights.gradient, *_scratch(spaces),
        )  # fmt: skip


def _weights(spaces: Spaces) -> tuple[int, int]:
    return spaces.weights.bytes, spaces.weights.address


def _scratch(spaces: Spaces) -> tuple[int, int, int, int]:
    workspace, reserve = spaces.workspace, spaces.reserve
    return workspace.bytes, workspace.address, reserve.bytes, reserve.address
