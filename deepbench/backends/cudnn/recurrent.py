"""Recurrent layers in cuDNN: every algorithm and kind of arithmetic is tried, and the fastest one measured."""

from __future__ import annotations

import ctypes
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from deepbench.core.errors import Unsupported
from deepbench.native.gpu import cudnn
from deepbench.native.gpu.device import Memory
from deepbench.native.gpu.recurrent import Description, Layer, Spaces

if TYPE_CHECKING:
    from deepbench.backends.cudnn import CuDNN
    from deepbench.core.case import Case
    from deepbench.core.kernel import Call, Kernel
    from deepbench.core.op import Arrays

# cudnn_adv.h
ALGORITHMS = {"standard": 0, "persistent static": 1, "persistent dynamic": 2, "persistent static small": 3}
CELLS = {"vanilla": 0, "lstm": 2, "gru": 3}
# Persistent algorithms take no other; what is not ours of the second bias is zero.
DOUBLE_BIAS = 2
UNIDIRECTIONAL, SEQUENCE_MAJOR_PACKED, NOT_PADDED = 0, 1, 0
LINEAR_INPUT, SKIP_INPUT = 0, 1
INFERENCE, TRAINING = 0, 1
ADD_GRADIENTS = 0
# cudnnMathType_t: f32 by multiply-adds alone is strict; whatever else may use tensor cores.
MATHS = {"default": 0, "tensor cores": 1, "multiply-adds": 3}
STRICT = {"multiply-adds": 3}
SEARCH_MOST_S = 30.0


def prepare(backend: CuDNN, case: Case, arrays: Arrays) -> Kernel:
    """The kernel of one layer, forward or backward."""
    if case.settings["gru_reset"] == "before":
        raise Unsupported("cuDNN's GRU resets after its product")
    if case.settings["weights"] == "packed":
        raise Unsupported("cuDNN has one order of weights; choose weights=plain")
    maths = STRICT if case.precision.name == "f32" else MATHS
    layer = CuDNNLayer(backend, case, arrays)
    candidates = [
        partial(layer.kernel, f"{algorithm}, {math}", (ALGORITHMS[algorithm], maths[math]))
        for algorithm, math in product(ALGORITHMS, maths)
    ]
    return backend.fastest(case, candidates, most_s=SEARCH_MOST_S)[0]


class CuDNNLayer(Layer):
    """A layer by the functions of cudnn_adv.h."""

    backend: CuDNN
    TYPES = cudnn.TYPES
    # cuDNN's order of a GRU is reset, update, new.
    GATES = {"vanilla": (0,), "lstm": (0, 1, 2, 3), "gru": (1, 0, 2)}  # noqa: RUF012  (ClassVar in Layer)
    IMPLEMENTATIONS = {  # noqa: RUF012
        "forward": "cudnnRNNForward",
        "backward": "cudnnRNNBackwardData_v8, cudnnRNNBackwardWeights_v8",
        "backward_data": "cudnnRNNBackwardData_v8",
        "backward_weights": "cudnnRNNBackwardWeights_v8",
    }

    def __init__(self, backend: CuDNN, case: Case, arrays: Arrays) -> None:
        super().__init__(backend, case, arrays)
        self._lengths = Memory(self.gpu, self.lengths.nbytes, "the lengths of sequences")

    def load(self) -> None:
        super().load()
        self.gpu.upload(self._lengths.address, self.lengths)

    def data(self, width: int) -> ctypes.c_void_p:
        p, made = self.problem, self.backend.handle("cudnnCreateRNNDataDescriptor")
        sizes = p.timesteps, p.batch, width
        lengths = self.lengths.ctypes.data
        self.gpu.call("cudnnSetRNNDataDescriptor", made, self.type, SEQUENCE_MAJOR_PACKED, *sizes, lengths, None)
        return made

    def state(self) -> ctypes.c_void_p:
        p, made = self.problem, self.backend.handle("cudnnCreateTensorDescriptor")
        sizes = (ctypes.c_int * 3)(1, p.batch, p.hidden)
        strides = (ctypes.c_int * 3)(p.batch * p.hidden, p.hidden, 1)
        self.gpu.call("cudnnSetTensorNdDescriptor", made, self.type, 3, sizes, strides)
        return made

    def describe(self, algorithm: tuple[int, int]) -> Description:
        """`algorithm` is cuDNN's number of it and of the kind of arithmetic."""
        p, gpu, dnn = self.problem, self.gpu, self.backend.dnn
        rnn = self.backend.handle("cudnnCreateRNNDescriptor")
        input_mode = LINEAR_INPUT if self.case.settings["input"] == "narrow" else SKIP_INPUT
        gpu.call(
            "cudnnSetRNNDescriptor_v8", rnn, algorithm[0], CELLS[p.cell], DOUBLE_BIAS, UNIDIRECTIONAL, input_mode,
            self.type, cudnn.TYPES["f32"], algorithm[1], self.width, p.hidden, p.hidden, 1, None, NOT_PADDED,
        )  # fmt: skip
        if algorithm[0] == ALGORITHMS["persistent dynamic"]:
            gpu.call("cudnnBuildRNNDynamic", dnn, rnn, p.batch)
        mode = TRAINING if self.training else INFERENCE
        sizes = [ctypes.c_size_t() for _ in range(3)]
        workspace, reserve, weights = map(ctypes.byref, sizes)
        gpu.call("cudnnGetRNNTempSpaceSizes", dnn, rnn, mode, self.x_desc, workspace, reserve)
        gpu.call("cudnnGetRNNWeightSpaceSize", dnn, rnn, weights)
        return Description(rnn, *(size.value for size in sizes))

    def place(self, layer: Description, number: int, block: int) -> tuple[int | None, int | None]:
        matrix, bias = (self.backend.handle("cudnnCreateTensorDescriptor") for _ in range(2))
        matrix_at, bias_at = ctypes.c_void_p(), ctypes.c_void_p()
        self.gpu.call(
            "cudnnGetRNNWeightParams", self.backend.dnn, layer.rnn, 0, layer.weights, block, number, matrix,
            ctypes.byref(matrix_at), bias, ctypes.byref(bias_at),
        )  # fmt: skip
        return (
            matrix_at.value - block if matrix_at.value else None,
            bias_at.value - block if bias_at.value else None,
        )

    def forward(self, layer: Description, spaces: Spaces) -> Call:
        at = self.address
        return self.call(
            "cudnnRNNForward", self.backend.dnn, layer.rnn, TRAINING if self.training else INFERENCE,
            self._lengths.address, self.x_desc, at("x"), self.y_desc, at("y"), self.state_desc, at("h0"), None,
            self.state_desc, at("c0"), None, *_weights(spaces), *_scratch(spaces),
        )  # fmt: skip

    def backward_data(self, layer: Description, spaces: Spaces) -> Call:
        at = self.address
        return self.call(
            "cudnnRNNBackwardData_v8", self.backend.dnn, layer.rnn, self._lengths.address, self.y_desc, at("y"),
            at("dy"), self.x_desc, at("dx"), self.state_desc, at("h0"), None, at("dh0"), self.state_desc, at("c0"),
            None, at("dc0"), *_weights(spaces), *_scratch(spaces),
        )  # fmt: skip

    def backward_weights(self, layer: Description, spaces: Spaces) -> Call:
        at = self.address
        return self.call(
            "cudnnRNNBackwardWeights_v8", self.backend.dnn, layer.rnn, ADD_GRADIENTS, self._lengths.address,
            self.x_desc, at("x"), self.state_desc, at("h0"), self.y_desc, at("y"), layer.weights,
            spaces.weights.gradient, *_scratch(spaces),
        )  # fmt: skip


def _weights(spaces: Spaces) -> tuple[int, int]:
    return spaces.weights.bytes, spaces.weights.address


def _scratch(spaces: Spaces) -> tuple[int, int, int, int]:
    workspace, reserve = spaces.workspace, spaces.reserve
    return workspace.bytes, workspace.address, reserve.bytes, reserve.address
