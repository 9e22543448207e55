"""Recurrent layers in MIOpen: times both algorithms, and measures the faster one."""

from __future__ import annotations

import ctypes
from functools import partial

from deepbench.core.case import Case
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Arrays
from deepbench.core.precision import dtype
from deepbench.native.gpu import miopen, timing
from deepbench.native.gpu.library import GpuBackend
from deepbench.native.gpu.recurrent import CELLS, SKIP_INPUT, UNIDIRECTIONAL, Description, GpuRecurrentLayer, Spaces
from deepbench.ops.recurrent.problem import single_layer

# miopen.h
ALGORITHMS = {"default": 0, "fundamental": 1}
WITH_BIAS, SEQUENCE_MAJOR_NOT_PADDED = 1, 1
TRAINING, INFERENCE = 0, 1  # the reverse of cuDNN


def prepare(backend: GpuBackend, case: Case, arrays: Arrays) -> Kernel:
    """The kernel of one layer in any direction."""
    layer = MIOpenLayer(backend, case, single_layer(case, arrays, backend.title))
    candidates = {title: partial(layer.kernel, title, algorithm) for title, algorithm in ALGORITHMS.items()}
    return backend.fastest(case, candidates, most_s=timing.COMPILED_SEARCH_MOST_S)[0]


class MIOpenLayer(GpuRecurrentLayer):
    """A layer through the RNN functions of miopen.h."""

    TYPES = miopen.TYPES
    # MIOpen's order of the gates of an LSTM: input, forget, output, new.
    GATES = {"vanilla": (0,), "lstm": (0, 1, 3, 2), "gru": (0, 1, 2)}  # noqa: RUF012  (ClassVar in GpuRecurrentLayer)

    def data(self, width: int) -> ctypes.c_void_p:
        p, data = self.problem, self.backend.create("miopenCreateSeqTensorDescriptor")
        sizes = p.timesteps, p.batch, width
        lengths = self.lengths.ctypes.data
        function = "miopenSetRNNDataSeqTensorDescriptor"
        self.gpu.call(function, data, self.type, SEQUENCE_MAJOR_NOT_PADDED, *sizes, lengths, None)
        return data

    def state(self) -> ctypes.c_void_p:
        p = self.problem
        strides = [p.batch * p.hidden, p.hidden, 1]
        return miopen.tensor(self.backend, self.type_name, [1, p.batch, p.hidden], strides)

    def describe(self, algorithm: int) -> Description:
        p, gpu, handle = self.problem, self.gpu, self.backend.handle
        rnn = self.backend.create("miopenCreateRNNDescriptor")
        gpu.call(
            "miopenSetRNNDescriptor", rnn, p.hidden, 1, self.input_mode, UNIDIRECTIONAL, CELLS[p.cell], WITH_BIAS,
            algorithm, self.type,
        )  # fmt: skip
        sizes = [ctypes.c_size_t() for _ in range(3)]
        workspace, reserve, weights = map(ctypes.byref, sizes)
        mode = TRAINING if self.training else INFERENCE
        gpu.call("miopenGetRNNTempSpaceSizes", handle, rnn, self.x_desc, mode, workspace, reserve)
        gpu.call("miopenGetRNNParamsSize", handle, rnn, self._step, weights, self.type)
        return Description(rnn, *(size.value for size in sizes))

    @property
    def _step(self) -> ctypes.c_void_p:
        """A descriptor of x in one step, (N, width), for functions of the older interface."""
        return miopen.tensor(self.backend, self.type_name, [self.problem.batch, self.width], [self.width, 1])

    def place(self, layer: Description, number: int, block: int) -> tuple[int | None, int | None]:
        skip = self.input_mode == SKIP_INPUT
        matrix = None
        if not (skip and number < self.problem.gates):  # then there is no such matrix, and asking for it is an error
            matrix = self._offset("miopenGetRNNLayerParamOffset", layer, number)
        return matrix, self._offset("miopenGetRNNLayerBiasOffset", layer, number)

    def _offset(self, name: str, layer: Description, number: int) -> int:
        elements, part = ctypes.c_size_t(), self.backend.create("miopenCreateTensorDescriptor")
        self.gpu.call(name, layer.rnn, 0, self._step, number, part, ctypes.byref(elements))
        return elements.value * dtype(self.type_name).itemsize

    def forward(self, layer: Description, spaces: Spaces) -> Call:
        at = self.address
        return self.call(
            "miopenRNNForward", self.backend.handle, layer.rnn, TRAINING if self.training else INFERENCE,
            self.x_desc, at("x"), self.state_desc, at("h0"), None, self.state_desc, at("c0"), None, self.y_desc,
            at("y"), spaces.weights.address, spaces.weights.bytes, *_scratch(spaces),
        )  # fmt: skip

    def backward_data(self, layer: Description, spaces: Spaces) -> Call:
        at = self.address
        return self.call(
            "miopenRNNBackwardSeqData", self.backend.handle, layer.rnn, self.y_desc, at("y"), at("dy"),
            self.state_desc, at("h0"), None, at("dh0"), self.state_desc, at("c0"), None, at("dc0"), self.x_desc,
            at("dx"), spaces.weights.address, spaces.weights.bytes, *_scratch(spaces),
        )  # fmt: skip

    def backward_weights(self, layer: Description, spaces: Spaces) -> Call:
        at = self.address
        return self.call(
            "miopenRNNBackwardWeightsSeqTensor", self.backend.handle, layer.rnn, self.x_desc, at("x"),
            self.state_desc, at("h0"), self.y_desc, at("y"), spaces.weights.gradient, spaces.weights.bytes,
            *_scratch(spaces),
        )  # fmt: skip


def _scratch(spaces: Spaces) -> tuple[int, int, int, int]:
    workspace, reserve = spaces.workspace, spaces.reserve
    return workspace.address, workspace.bytes, reserve.address, reserve.bytes
