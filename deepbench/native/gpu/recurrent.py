"""Recurrent layers as cuDNN and MIOpen have them: one block of weights, and a reserve that the forward pass fills.

Weights are copied into the library's order before timing starts. `backward` is the gradient of the data followed by the
gradient of the weights, which is set to zero first because libraries add to it. Passes that a direction depends on run
before timing starts.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.core.op import Arrays
from deepbench.core.precision import dtype
from deepbench.native.gpu.library import GpuBackend
from deepbench.native.gpu.runtime import DeviceMemory

# The same in cudnn_adv.h and miopen.h.
CELLS = {"vanilla": 0, "lstm": 2, "gru": 3}
UNIDIRECTIONAL = 0
LINEAR_INPUT, SKIP_INPUT = 0, 1


@dataclass(frozen=True)
class Description:
    """A layer's descriptor, and the bytes that the library asks for."""

    rnn: ctypes.c_void_p
    workspace: int
    reserve: int
    weights: int


@dataclass
class Spaces:
    """Memory of one kernel: weights, reserve (from forward to backward pass), workspace."""

    weights: Weights
    reserve: DeviceMemory
    workspace: DeviceMemory


class GpuRecurrentLayer(ABC):
    """The data of one layer on the GPU, and its kernels by algorithm. Subclasses call the library.

    `arrays` have the shapes of a single layer. `GATES` gives, for each cell, the library's positions of our gates: i,
    f, g, o of an LSTM; u, r, g of a GRU.
    """

    GATES: ClassVar[Mapping[str, tuple[int, ...]]]
    TYPES: ClassVar[Mapping[str, int]]

    def __init__(self, backend: GpuBackend, case: Case, arrays: Arrays) -> None:
        if case.settings["gru_reset"] == "before":
            raise Unsupported(f"{backend.title}'s GRU applies the reset gate after its product; choose gru_reset=after")
        if case.settings["weights"] == "packed":
            raise Unsupported(f"{backend.title} has only one order of weights; choose weights=plain")
        self.backend, self.gpu, self.case, self.arrays = backend, backend.gpu, case, arrays
        p = self.problem = case.problem
        self.type_name = case.precision.data
        self.type = self.TYPES[self.type_name]
        self.input_mode = LINEAR_INPUT if "w" in arrays else SKIP_INPUT
        self.width: int = arrays["x"].shape[-1]
        self.training = case.direction != "forward" or case.settings["mode"] == "training"
        self.lengths = np.full(p.batch, p.timesteps, np.int32)
        self.x_desc, self.y_desc = self.data(self.width), self.data(p.hidden)
        self.state_desc = self.state()
        # The gradient of the weights needs those of the data. All of them have the type of the data.
        needed = {"dx": "x", "dh0": "h0", "dc0": "c0"} if case.direction == "backward_weights" else {}
        width = dtype(self.type_name).itemsize
        self.memory = {
            name: DeviceMemory(self.gpu, arrays[name if name in arrays else needed[name]].size * width, f"array {name}")
            for name in ["x", "h0", "c0", "y", "dy", "dx", "dh0", "dc0"]
            if name in arrays or needed.get(name) in arrays
        }

    # ---- calls of the library

    @abstractmethod
    def data(self, width: int) -> ctypes.c_void_p:
        """A descriptor of data (T, N, width), all sequences of one length."""

    @abstractmethod
    def state(self) -> ctypes.c_void_p:
        """A descriptor of a state (1, N, H)."""

    @abstractmethod
    def describe(self, algorithm: Any) -> Description:
        """This layer with one algorithm; `Unsupported` if the library does not have it."""

    @abstractmethod
    def place(self, layer: Description, number: int, block: int) -> tuple[int | None, int | None]:
        """Offsets in bytes of a matrix and its bias in the block of weights at address `block`."""

    @abstractmethod
    def forward(self, layer: Description, spaces: Spaces) -> Call:
        """The forward pass."""

    @abstractmethod
    def backward_data(self, layer: Description, spaces: Spaces) -> Call:
        """The gradients of x, h0 and c0; needs the forward pass."""

    @abstractmethod
    def backward_weights(self, layer: Description, spaces: Spaces) -> Call:
        """The gradient of the weights; needs the gradients of the data."""

    # ---- the same in all libraries

    def kernel(self, title: str, algorithm: Any) -> Kernel:
        """This layer with one algorithm; the record calls the algorithm `title`."""
        gpu, layer = self.gpu, self.describe(algorithm)
        weights = Weights(self, layer)
        reserve = DeviceMemory(gpu, layer.reserve, "the reserve for the backward pass")
        spaces = Spaces(weights, reserve, DeviceMemory(gpu, layer.workspace, "the workspace"))
        forward = self.forward(layer, spaces)
        zero, calls, before = None, [forward], list[Call]()
        if self.case.direction != "forward":
            zero = weights.allocate_gradient()
            of_data, of_weights = self.backward_data(layer, spaces), self.backward_weights(layer, spaces)
            calls, before = {
                "backward": ([zero, of_data, of_weights], [forward]),
                "backward_data": ([of_data], [forward]),
                "backward_weights": ([zero, of_weights], [forward, of_data]),
            }[self.case.direction]
        run_before = _once(gpu, before)

        def load() -> None:
            self.load()
            weights.load()
            run_before()

        def store() -> None:
            gpu.synchronize()
            self.store(("y", "dx", "dh0", "dc0"))
            if "dr" in self.arrays:
                weights.store()

        return Kernel(
            calls=tuple(calls),
            load=load,
            store=store,
            private_buffers=tuple(self.arrays),
            keep=(self, spaces, *before),
            notes={
                "implementation": ", ".join(call.function.__name__ for call in calls if call is not zero),
                "algorithm": title,
                "workspace_bytes": layer.workspace,
                "reserve_bytes": layer.reserve,
            },
            device=gpu,
            # A backward pass may overwrite the reserve.
            repeats=self.case.direction == "forward",
        )

    def call(self, name: str, *arguments: Any) -> Call:
        """A call in the stream; None is passed as a null pointer."""
        return self.backend.prepare_call(name, *(0 if a is None else a for a in arguments))

    def address(self, name: str) -> int | None:
        """The address of an array of data; None if this layer does not have it."""
        return self.memory[name].address if name in self.memory else None

    def load(self) -> None:
        """Copy the data of the case to the GPU."""
        self.gpu.synchronize()
        for name, memory in self.memory.items():
            if name in self.arrays:
                values = np.ascontiguousarray(self.arrays[name].astype(dtype(self.type_name)))
                self.gpu.upload(memory.address, values)

    def store(self, names: tuple[str, ...]) -> None:
        """Copy outputs back."""
        for name in names:
            if name in self.arrays:
                array = self.arrays[name]
                values = np.empty(array.shape, dtype(self.type_name))
                self.gpu.download(values, self.memory[name].address)
                array[...] = values.astype(array.dtype)


class Weights:
    """Weights and their gradient, each in one block, at the offsets that the library reports."""

    def __init__(self, layer: GpuRecurrentLayer, description: Description) -> None:
        self._layer, self.bytes = layer, description.weights
        self._memory = DeviceMemory(layer.gpu, self.bytes, "the weights")
        self._gradient: DeviceMemory | None = None
        self._places = list(self._find(description))

    @property
    def address(self) -> int:
        """Address of the weights."""
        return self._memory.address

    @property
    def gradient(self) -> int:
        """Address of their gradient."""
        assert self._gradient is not None, "call allocate_gradient first"
        return self._gradient.address

    def allocate_gradient(self) -> Call:
        """Allocate the gradient; returns the call that sets it to zero."""
        self._gradient = DeviceMemory(self._layer.gpu, self.bytes, "the gradient of the weights")
        stream = self._layer.gpu.stream
        return self._layer.call("cudaMemsetAsync", self._gradient.address, 0, self.bytes, stream)

    def _find(self, description: Description) -> Iterator[tuple[str, Any, int]]:
        """Name of our array, index of a part of it, and the offset of that part in the block in bytes."""
        layer, p = self._layer, self._layer.problem
        for number in range(2 * p.gates):
            gate, recurrent = number % p.gates, number >= p.gates
            ours = layer.GATES[p.cell].index(gate)
            matrix, bias = layer.place(description, number, self.address)
            if matrix is not None and (recurrent or "w" in layer.arrays):
                yield "r" if recurrent else "w", (slice(None), ours), matrix
            if bias is None:
                continue
            if not recurrent:
                yield "b", ours, bias
            elif p.cell == "gru" and ours == 2:
                yield "b", 3, bias

    def load(self) -> None:
        """Copy r, w and b to the GPU. The library's matrices are the transposes of ours."""
        block = np.zeros(self.bytes, np.uint8)
        for name, part, start in self._places:
            values = self._layer.arrays[name][part]
            stored = np.ascontiguousarray(values.T.astype(dtype(self._layer.type_name)))
            block[start : start + stored.nbytes] = stored.reshape(-1).view(np.uint8)
        self._layer.gpu.upload(self.address, block)

    def store(self) -> None:
        """Copy the gradient back into dr, dw and db."""
        block = np.empty(self.bytes, np.uint8)
        self._layer.gpu.download(block, self.gradient)
        for name, part, start in self._places:
            target = self._layer.arrays[f"d{name}"][part]
            kind = dtype(self._layer.type_name)
            values = block[start : start + target.size * kind.itemsize].view(kind).reshape(target.T.shape)
            target[...] = values.T.astype(target.dtype)


def _once(gpu: Any, calls: list[Call]) -> Callable[[], None]:
    """A function that makes these calls once and waits for them."""
    from deepbench.native import callloop

    loop, _ = callloop.host_timer(Kernel(calls=tuple(calls)))

    def run() -> None:
        loop(1)
        gpu.synchronize()

    return run
