"""Recurrent layers in MIOpen: both of its algorithms are tried, and the faster one measured."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import TYPE_CHECKING

from deepbench.backends.miopen import TYPES
from deepbench.core.errors import Unsupported
from deepbench.core.precision import dtype
from deepbench.native.gpu.recurrent import Description, Layer, Spaces

if TYPE_CHECKING:
    from deepbench.backends.miopen import MIOpen
    from deepbench.core.case import Case
    from deepbench.core.kernel import Call, Kernel
    from deepbench.core.op import Arrays

# miopen.h
ALGORITHMS = {"default": 0, "fundamental": 1}
CELLS = {"vanilla": 0, "lstm": 2, "gru": 3}
LINEAR_INPUT, SKIP_INPUT = 0, 1
UNIDIRECTIONAL, WITH_BIAS, SEQUENCE_MAJOR_NOT_PADDED = 0, 1, 1
TRAINING, INFERENCE = 0, 1  # the other way round than in cuDNN
SEARCH_MOST_S = 30.0


def prepare(backend: MIOpen, case: Case, arrays: Arrays) -> Kernel:
    """The kernel of one layer, forward or backward."""
    if case.settings["gru_reset"] == "before":
        raise Unsupported("MIOpen's GRU resets after its product")
    if case.settings["weights"] == "packed":
        raise Unsupported("MIOpen has one order of weights; choose weights=plain")
    layer = MIOpenLayer(backend, case, arrays)
    candidates = [partial(layer.kernel, title, algorithm) for title, algorithm in ALGORITHMS.items()]
    return backend.fastest(case, candidates, most_s=SEARCH_MOST_S)[0]


class MIOpenLayer(Layer):
    """A layer by the RNN functions of miopen.h."""

    backend: MIOpen
    TYPES = TYPES
    # MIOpen's order of an LSTM is input, forget, output, new.
    GATES = {"vanilla": (0,), "lstm": (0, 1, 3, 2), "gru": (0, 1, 2)}  # noqa: RUF012  (ClassVar in Layer)
    IMPLEMENTATIONS = {  # noqa: RUF012
        "forward": "miopenRNNForward",
        "backward": "miopenRNNBackwardSeqData, miopenRNNBackwardWeightsSeqTensor",
        "backward_data": "miopenRNNBackwardSeqData",
        "backward_weights": "miopenRNNBackwardWeightsSeqTensor",
    }

    def data(self, width: int) -> ctypes.c_void_p:
        p, made = self.problem, self.backend.handle("miopenCreateSeqTensorDescriptor")
        sizes = p.timesteps, p.batch, width
        lengths = self.lengths.ctypes.data
        name = "miopenSetRNNDataSeqTensorDescriptor"
        self.gpu.call(name, made, self.type, SEQUENCE_MAJOR_NOT_PADDED, *sizes, lengths, None)
        return made

    def state(self) -> ctypes.c_void_p:
        p = self.problem
        return self.backend.tensor(self.kind, [1, p.batch, p.hidden], [p.batch * p.hidden, p.hidden, 1])

    def describe(self, algorithm: int) -> Description:
        p, gpu, miopen = self.problem, self.gpu, self.backend.miopen
        rnn = self.backend.handle("miopenCreateRNNDescriptor")
        input_mode = LINEAR_INPUT if self.case.settings["input"] == "narrow" else SKIP_INPUT
        gpu.call(
            "miopenSetRNNDescriptor", rnn, p.hidden, 1, input_mode, UNIDIRECTIONAL, CELLS[p.cell], WITH_BIAS,
            algorithm, self.type,
        )  # fmt: skip
        sizes = [ctypes.c_size_t() for _ in range(3)]
        workspace, reserve, weights = map(ctypes.byref, sizes)
        mode = TRAINING if self.training else INFERENCE
        gpu.call("miopenGetRNNTempSpaceSizes", miopen, rnn, self.x_desc, mode, workspace, reserve)
        gpu.call("miopenGetRNNParamsSize", miopen, rnn, self._step, weights, self.type)
        return Description(rnn, *(size.value for size in sizes))

    @property
    def _step(self) -> ctypes.c_void_p:
        """A description of x in one step, (N, width): what functions of the older interface ask for."""
        return self.backend.tensor(self.kind, [self.problem.batch, self.width], [self.width, 1])

    def place(self, layer: Description, number: int, block: int) -> tuple[int | None, int | None]:
        p, skipped = self.problem, self.case.settings["input"] == "skip"
        matrix = None
        if not (skipped and number < p.gates):  # there is no such matrix, and asking for it is an error
            matrix = self._offset("miopenGetRNNLayerParamOffset", layer, number)
        return matrix, self._offset("miopenGetRNNLayerBiasOffset", layer, number)

    def _offset(self, name: str, layer: Description, number: int) -> int:
        elements, described = ctypes.c_size_t(), self.backend.handle("miopenCreateTensorDescriptor")
        self.gpu.call(name, layer.rnn, 0, self._step, number, described, ctypes.byref(elements))
        return elements.value * dtype(self.kind).itemsize

    def forward(self, layer: Description, spaces: Spaces) -> Call:
        at = self.address
        return self.call(
            "miopenRNNForward", self.backend.miopen, layer.rnn, TRAINING if self.training else INFERENCE,
            self.x_desc, at("x"), self.state_desc, at("h0"), None, self.state_desc, at("c0"), None, self.y_desc,
            at("y"), spaces.weights.address, spaces.weights.bytes, *_scratch(spaces),
        )  # fmt: skip

    def backward_data(self, layer: Description, spaces: Spaces) -> Call:
        at = self.address
        return self.call(
            "miopenRNNBackwardSeqData", self.backend.miopen, layer.rnn, self.y_desc, at("y"), at("dy"),
            self.state_desc, at("h0"), None, at("dh0"), self.state_desc, at("c0"), None, at("dc0"), self.x_desc,
            at("dx"), spaces.weights.address, spaces.weights.bytes, *_scratch(spaces),
        )  # fmt: skip

    def backward_weights(self, layer: Description, spaces: Spaces) -> Call:
        at = self.address
        return self.call(
            "miopenRNNBackwardWeightsSeqTensor", self.backend.miopen, layer.rnn, self.x_desc, at("x"),
            self.state_desc, at("h0"), self.y_desc, at("y"), spaces.weights.gradient, spaces.weights.bytes,
            *_scratch(spaces),
        )  # fmt: skip


def _scratch(spaces: Spaces) -> tuple[int, int, int, int]:
    workspace, reserve = spaces.workspace, spaces.reserve
    return workspace.address, workspace.bytes, reserve.address, reserve.bytes
