"""Recurrent layers as cuDNN and MIOpen have them: one block of weights, and what the forward pass keeps for the others.

Weights lie as the library wants them, copied there before the clock. `backward` is the gradient of data and that of the
weights one after the other, with the latter set to zero first, because libraries add to it; what comes before a
direction is made before the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from deepbench.core.kernel import Kernel
from deepbench.core.precision import dtype
from deepbench.native.gpu.device import Memory

if TYPE_CHECKING:
    import ctypes

    from deepbench.core.case import Case
    from deepbench.core.kernel import Call
    from deepbench.core.op import Arrays
    from deepbench.native.gpu.library import GpuBackend


@dataclass(frozen=True)
class Description:
    """A layer as the library knows it, and the bytes it asks for."""

    rnn: ctypes.c_void_p
    workspace: int
    reserve: int
    weights: int


@dataclass
class Spaces:
    """Memory of one kernel: the weights, what the forward pass keeps, scratch."""

    weights: Weights
    reserve: Memory
    workspace: Memory


class Layer:
    """Data of one layer on the card, and its kernels with one algorithm or another.

    Subclasses call the library; `GATES` has, for each cell, where the library has our gates: i, f, g, o of an LSTM and
    u, r, g of a GRU.
    """

    GATES: ClassVar[Mapping[str, tuple[int, ...]]]
    TYPES: ClassVar[Mapping[str, int]]
    IMPLEMENTATIONS: ClassVar[Mapping[str, str]]

    def __init__(self, backend: GpuBackend, case: Case, arrays: Arrays) -> None:
        self.backend, self.gpu, self.case, self.arrays = backend, backend.gpu, case, arrays
        p = self.problem = case.problem
        self.kind = case.precision.data
        self.type = self.TYPES[self.kind]
        self.width = p.hidden if case.settings["input"] == "skip" else 1
        self.training = case.direction != "forward" or case.settings["mode"] == "training"
        self.lengths = np.full(p.batch, p.timesteps, np.int32)
        self.x_desc, self.y_desc = self.data(self.width), self.data(p.hidden)
        self.state_desc = self.state()
        # Everything the size of data, in the one type that libraries take them in.
        names = ["x", "h0", "c0", "y", "dy", "dx", "dh0", "dc0"]
        self.memory = {
            name: Memory(self.gpu, self._size_of(name) * dtype(self.kind).itemsize, f"array {name}")
            for name in names
            if name in arrays or self._needs(name)
        }

    # ---- what the library calls it

    def data(self, width: int) -> ctypes.c_void_p:
        """A description of (T, N, width), all sequences of one length."""
        raise NotImplementedError

    def state(self) -> ctypes.c_void_p:
        """A description of (1, N, H)."""
        raise NotImplementedError

    def describe(self, algorithm: Any) -> Description:
        """This layer with one algorithm; `Unsupported` where the library has no such thing."""
        raise NotImplementedError

    def place(self, layer: Description, number: int, block: int) -> tuple[int | None, int | None]:
        """Bytes into the block of weights, which is at this address, where a matrix and its bias begin."""
        raise NotImplementedError

    def forward(self, layer: Description, spaces: Spaces) -> Call:
        """The forward pass."""
        raise NotImplementedError

    def backward_data(self, layer: Description, spaces: Spaces) -> Call:
        """The gradients of x, h0 and c0, after a forward pass."""
        raise NotImplementedError

    def backward_weights(self, layer: Description, spaces: Spaces) -> Call:
        """The gradient of the weights, after the one of the data."""
        raise NotImplementedError

    # ---- what is the same everywhere

    def kernel(self, title: str, algorithm: Any) -> Kernel:
        """This layer with one algorithm, which the record calls `title`."""
        gpu, layer = self.gpu, self.describe(algorithm)
        weights = Weights(self, layer)
        kept = Memory(gpu, layer.reserve, "what is kept for the backward pass")
        spaces = Spaces(weights, kept, Memory(gpu, layer.workspace, "the workspace"))
        forward = self.forward(layer, spaces)
        calls, before = [forward], list[Any]()
        if self.case.direction != "forward":
            zero = weights.make_gradient()
            of_data, of_weights = self.backward_data(layer, spaces), self.backward_weights(layer, spaces)
            calls, before = {
                "backward": ([zero, of_data, of_weights], [forward]),
                "backward_data": ([of_data], [forward]),
                "backward_weights": ([zero, of_weights], [forward, of_data]),
            }[self.case.direction]
        make_ready = _once(gpu, before)

        def load() -> None:
            self.load()
            weights.load()
            make_ready()

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
                "implementation": self.IMPLEMENTATIONS[self.case.direction],
                "algorithm": title,
                "workspace_bytes": layer.workspace,
                "reserve_bytes": layer.reserve,
            },
            device=gpu,
            # A backward pass may spoil what the forward pass kept for it.
            repeats=self.case.direction == "forward",
        )

    def call(self, name: str, *arguments: Any) -> Call:
        """A call in the stream; what is None goes as a null pointer."""
        return self.backend.enqueue(name, *(0 if a is None else a for a in arguments))

    def _needs(self, name: str) -> bool:
        """Gradients of data come before those of weights, also where nobody asked for them."""
        gradients = ("dx", "dh0", *(("dc0",) if "c0" in self.arrays else ()))
        return self.case.direction == "backward_weights" and name in gradients

    def _size_of(self, name: str) -> int:
        array = self.arrays[name if name in self.arrays else name.removeprefix("d")]
        return int(array.size)

    def address(self, name: str) -> int | None:
        """Where an array of data is, None where this layer has none."""
        return self.memory[name].address if name in self.memory else None

    def load(self) -> None:
        """Copy the data of the case to the card."""
        self.gpu.synchronize()
        for name, memory in self.memory.items():
            if name in self.arrays:
                here = np.ascontiguousarray(self.arrays[name].astype(dtype(self.kind)))
                self.gpu.upload(memory.address, here)

    def store(self, names: tuple[str, ...]) -> None:
        """Copy outputs of data back."""
        for name in names:
            if name in self.arrays:
                array = self.arrays[name]
                here = np.empty(array.shape, dtype(self.kind))
                self.gpu.download(here, self.memory[name].address)
                array[...] = here.astype(array.dtype)


class Weights:
    """Weights and their gradient in the one block that a library wants, at the places it tells."""

    def __init__(self, layer: Layer, described: Description) -> None:
        self._layer, self.bytes = layer, described.weights
        self._memory = Memory(layer.gpu, self.bytes, "the weights")
        self._gradient: Memory | None = None
        self._places = list(self._find(described))

    @property
    def address(self) -> int:
        """Where the weights are."""
        return self._memory.address

    @property
    def gradient(self) -> int:
        """Where their gradient is; only backward passes have one."""
        assert self._gradient is not None, "make_gradient comes first"
        return self._gradient.address

    def make_gradient(self) -> Call:
        """Room for the gradient, and the call that sets it to zero."""
        self._gradient = Memory(self._layer.gpu, self.bytes, "the gradient of the weights")
        stream = self._layer.gpu.stream
        return self._layer.call("cudaMemsetAsync", self._gradient.address, 0, self.bytes, stream)

    def _find(self, described: Description) -> Iterator[tuple[str, Any, int]]:
        """Array of ours, its part, and how many bytes into the block that part begins."""
        layer, p = self._layer, self._layer.problem
        for number in range(2 * p.gates):
            gate, from_h = number % p.gates, number >= p.gates
            ours = layer.GATES[p.cell].index(gate)
            matrix, bias = layer.place(described, number, self.address)
            if matrix is not None and (from_h or "w" in layer.arrays):
                yield "r" if from_h else "w", (slice(None), ours), matrix
            if bias is None:
                continue
            if not from_h:
                yield "b", ours, bias
            elif p.cell == "gru" and ours == 2:
                yield "b", 3, bias

    def load(self) -> None:
        """Copy r, w and b to their places. A matrix lies (to, from), ours (from, to)."""
        block = np.zeros(self.bytes, np.uint8)
        for name, part, start in self._places:
            values = self._layer.arrays[name][part]
            stored = np.ascontiguousarray(values.T.astype(dtype(self._layer.kind)))
            block[start : start + stored.nbytes] = stored.reshape(-1).view(np.uint8)
        self._layer.gpu.upload(self.address, block)

    def store(self) -> None:
        """Copy the gradient back into dr, dw and db."""
        block = np.empty(self.bytes, np.uint8)
        self._layer.gpu.download(block, self.gradient)
        for name, part, start in self._places:
            target = self._layer.arrays[f"d{name}"][part]
            kind = dtype(self._layer.kind)
            values = block[start : start + target.size * kind.itemsize].view(kind).reshape(target.T.shape)
            target[...] = values.T.astype(target.dtype)


def _once(gpu: Any, calls: list[Call]) -> Callable[[], None]:
    """A function that makes these calls and waits for them."""
    from deepbench.native import callloop

    loop, _ = callloop.host_timer(Kernel(calls=tuple(calls)))

    def run() -> None:
        loop(1)
        gpu.synchronize()

    return run
