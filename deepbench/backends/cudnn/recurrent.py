"""Recurrent layers in cuDNN: every algorithm and kind of arithmetic is tried, and the fastest one measured.

Weights lie as cuDNN wants them, copied there before the clock. `backward` is cudnnRNNBackwardData and
cudnnRNNBackwardWeights one after the other, with the gradient of the weights set to zero first, because cuDNN adds to
it; what comes before a direction is made before the clock.
"""

from __future__ import annotations

import ctypes
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from deepbench.backend import Kernel
from deepbench.errors import Unsupported
from deepbench.native.gpu import cudnn
from deepbench.native.gpu.device import Memory
from deepbench.precision import dtype

if TYPE_CHECKING:
    from deepbench.backend import Call
    from deepbench.backends.cudnn import CuDNN
    from deepbench.case import Case
    from deepbench.op import Arrays

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
# Our order of gates is i, f, g, o and u, r, g; cuDNN's for a GRU is reset, update, new.
GATES = {"vanilla": (0,), "lstm": (0, 1, 2, 3), "gru": (1, 0, 2)}
SEARCH_MOST_S = 30.0

IMPLEMENTATIONS = {
    "forward": "cudnnRNNForward",
    "backward": "cudnnRNNBackwardData_v8, cudnnRNNBackwardWeights_v8",
    "backward_data": "cudnnRNNBackwardData_v8",
    "backward_weights": "cudnnRNNBackwardWeights_v8",
}


def prepare(backend: CuDNN, case: Case, arrays: Arrays) -> Kernel:
    """The kernel of one layer, forward or backward."""
    if case.settings["gru_reset"] == "before":
        raise Unsupported("cuDNN's GRU resets after its product")
    if case.settings["weights"] == "packed":
        raise Unsupported("cuDNN has one order of weights; choose weights=plain")
    maths = STRICT if case.precision.name == "f32" else MATHS
    pairs = list(product(ALGORITHMS.items(), maths.items()))
    layer = _Layer(backend, case, arrays)
    candidates = [partial(layer.kernel, algorithm, math) for algorithm, math in pairs]
    return backend.fastest(case, candidates, most_s=SEARCH_MOST_S)[0]


class _Layer:
    """Data of one layer on the card, and its kernels with one algorithm or another."""

    def __init__(self, backend: CuDNN, case: Case, arrays: Arrays) -> None:
        self.backend, self.gpu, self.case, self.arrays = backend, backend.gpu, case, arrays
        p = self.problem = case.problem
        self.kind = case.precision.data
        self.width = p.hidden if case.settings["input"] == "skip" else 1
        self.training = case.direction != "forward" or case.settings["mode"] == "training"
        self.type = cudnn.TYPES[self.kind]
        self.lengths = np.full(p.batch, p.timesteps, np.int32)
        self.device_lengths = Memory(self.gpu, self.lengths.nbytes, "the lengths of sequences")
        self.x_desc, self.y_desc = self._data(self.width), self._data(p.hidden)
        self.state_desc = self._state()
        # Everything the size of data, in the one type that cuDNN takes them in.
        names = ["x", "h0", "c0", "y", "dy", "dx", "dh0", "dc0"]
        self.memory = {
            name: Memory(self.gpu, self._size_of(name) * dtype(self.kind).itemsize, f"array {name}")
            for name in names
            if name in arrays or self._needs(name)
        }

    def _needs(self, name: str) -> bool:
        """Gradients of data come before those of weights, also where nobody asked for them."""
        return self.case.direction == "backward_weights" and name in ("dx", "dh0") + (
            ("dc0",) if "c0" in self.arrays else ()
        )

    def _size_of(self, name: str) -> int:
        array = self.arrays[name if name in self.arrays else name.removeprefix("d")]
        return int(array.size)

    def address(self, name: str) -> int | None:
        """Where an array of data is, None where this layer has none."""
        return self.memory[name].address if name in self.memory else None

    def load(self) -> None:
        """Copy the data of the case to the card."""
        self.gpu.synchronize()
        self.gpu.upload(self.device_lengths.address, self.lengths)
        for name, memory in self.memory.items():
            if name not in self.arrays:
                continue
            self.gpu.upload(memory.address, np.ascontiguousarray(self.arrays[name].astype(dtype(self.kind))))

    def store(self, names: tuple[str, ...]) -> None:
        """Copy outputs of data back."""
        for name in names:
            if name in self.arrays:
                array = self.arrays[name]
                here = np.empty(array.shape, dtype(self.kind))
                self.gpu.download(here, self.memory[name].address)
                array[...] = here.astype(array.dtype)

    def kernel(self, algorithm: tuple[str, int], math: tuple[str, int]) -> Kernel:
        """This layer with one algorithm and kind of arithmetic; `Unsupported` where cuDNN has no such thing."""
        gpu, backend, mode = self.gpu, self.backend, TRAINING if self.training else INFERENCE
        rnn = self._rnn(algorithm[1], math[1])
        workspace, reserve, weight_bytes = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
        gpu.call(
            "cudnnGetRNNTempSpaceSizes", backend.dnn, rnn, mode, self.x_desc, ctypes.byref(workspace),
            ctypes.byref(reserve),
        )  # fmt: skip
        gpu.call("cudnnGetRNNWeightSpaceSize", backend.dnn, rnn, ctypes.byref(weight_bytes))
        weights = _Weights(self, rnn, weight_bytes.value)
        kept = Memory(gpu, reserve.value, "what is kept for the backward pass")
        scratch = Memory(gpu, workspace.value, "the workspace")
        spaces = (scratch.bytes, scratch.address, kept.bytes, kept.address)
        states = [self.state_desc, self.address("h0"), None, self.state_desc, self.address("c0"), None]
        forward = self._call(
            "cudnnRNNForward", rnn, mode, self.device_lengths.address, self.x_desc, self.address("x"), self.y_desc,
            self.address("y"), *states, weights.bytes, weights.memory.address, *spaces,
        )  # fmt: skip
        calls, spoils = [forward], self.case.direction != "forward"
        before: list[Call] = []
        if spoils:
            zero, of_data, of_weights = self._backward(rnn, weights, spaces)
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

        notes = {
            "implementation": IMPLEMENTATIONS[self.case.direction],
            "algorithm": f"{algorithm[0]}, {math[0]}",
            "workspace_bytes": workspace.value,
            "reserve_bytes": reserve.value,
        }
        made = Kernel(
            calls=tuple(calls), load=load, store=store, own=tuple(self.arrays), notes=notes, device=gpu,
            repeats=not spoils,
        )  # fmt: skip
        made.calls[0].keep_alive += (self, weights, kept, scratch, *before)
        return made

    def _backward(self, rnn: ctypes.c_void_p, weights: _Weights, spaces: tuple[int, ...]) -> list[Call]:
        weights.make_gradient()
        gradient = weights.gradient
        assert gradient is not None, "it has just been made"
        lengths = self.device_lengths.address
        zero = self.backend.enqueue("cudaMemsetAsync", gradient.address, 0, gradient.bytes, self.gpu.stream)
        data = self._call(
            "cudnnRNNBackwardData_v8", rnn, lengths, self.y_desc, self.address("y"), self.address("dy"), self.x_desc,
            self.address("dx"), self.state_desc, self.address("h0"), None, self.address("dh0"), self.state_desc,
            self.address("c0"), None, self.address("dc0"), weights.bytes, weights.memory.address, *spaces,
        )  # fmt: skip
        of_weights = self._call(
            "cudnnRNNBackwardWeights_v8", rnn, ADD_GRADIENTS, lengths, self.x_desc, self.address("x"), self.state_desc,
            self.address("h0"), self.y_desc, self.address("y"), gradient.bytes, gradient.address, *spaces,
        )  # fmt: skip
        return [zero, data, of_weights]

    def _call(self, name: str, *arguments: Any) -> Call:
        """A call in the stream; what is None goes as a null pointer."""
        words = (0 if a is None else a for a in arguments)
        return self.backend.enqueue(name, self.backend.dnn, *words)

    def _rnn(self, algorithm: int, math: int) -> ctypes.c_void_p:
        p, rnn = self.problem, self.backend.handle("cudnnCreateRNNDescriptor")
        input_mode = LINEAR_INPUT if self.case.settings["input"] == "narrow" else SKIP_INPUT
        self.gpu.call(
            "cudnnSetRNNDescriptor_v8", rnn, algorithm, CELLS[p.cell], DOUBLE_BIAS, UNIDIRECTIONAL, input_mode,
            self.type, cudnn.TYPES["f32"], math, self.width, p.hidden, p.hidden, 1, None, NOT_PADDED,
        )  # fmt: skip
        if algorithm == ALGORITHMS["persistent dynamic"]:
            self.gpu.call("cudnnBuildRNNDynamic", self.backend.dnn, rnn, p.batch)
        return rnn

    def _data(self, width: int) -> ctypes.c_void_p:
        """A description of (T, N, width), all sequences of one length."""
        p, made = self.problem, self.backend.handle("cudnnCreateRNNDataDescriptor")
        lengths = self.lengths.ctypes.data
        self.gpu.call(
            "cudnnSetRNNDataDescriptor", made, self.type, SEQUENCE_MAJOR_PACKED, p.timesteps, p.batch, width, lengths,
            None,
        )  # fmt: skip
        return made

    def _state(self) -> ctypes.c_void_p:
        """A description of (1, N, H)."""
        p, made = self.problem, self.backend.handle("cudnnCreateTensorDescriptor")
        sizes = (ctypes.c_int * 3)(1, p.batch, p.hidden)
        strides = (ctypes.c_int * 3)(p.batch * p.hidden, p.hidden, 1)
        self.gpu.call("cudnnSetTensorNdDescriptor", made, self.type, 3, sizes, strides)
        return made


class _Weights:
    """Weights and their gradient in the one block that cuDNN wants, at the places it tells."""

    def __init__(self, layer: _Layer, rnn: ctypes.c_void_p, count: int) -> None:
        self.layer, self.bytes = layer, count
        self.memory = Memory(layer.gpu, count, "the weights")
        self.gradient: Memory | None = None
        self._places = self._find(rnn)

    def make_gradient(self) -> None:
        """Room for the gradient."""
        self.gradient = Memory(self.layer.gpu, self.bytes, "the gradient of the weights")

    def _find(self, rnn: ctypes.c_void_p) -> list[tuple[str, Any, int]]:
        """Array of ours, its part, and how many bytes into the block that part begins."""
        p = self.layer.problem
        places: list[tuple[str, Any, int]] = []
        for id_ in range(2 * p.gates):
            gate, from_h = id_ % p.gates, id_ >= p.gates
            ours = GATES[p.cell].index(gate)
            matrix, bias = self._place(rnn, id_)
            if matrix is not None and (from_h or "w" in self.layer.arrays):
                places.append(("r" if from_h else "w", (slice(None), ours), matrix))
            if bias is None:
                continue
            if not from_h:
                places.append(("b", ours, bias))
            elif p.cell == "gru" and ours == 2:
                places.append(("b", 3, bias))
        return places

    def _place(self, rnn: ctypes.c_void_p, id_: int) -> tuple[int | None, int | None]:
        gpu, backend, base = self.layer.gpu, self.layer.backend, self.memory.address
        matrix, bias = (backend.handle("cudnnCreateTensorDescriptor") for _ in range(2))
        matrix_address, bias_address = ctypes.c_void_p(), ctypes.c_void_p()
        gpu.call(
            "cudnnGetRNNWeightParams", backend.dnn, rnn, 0, self.bytes, base, id_, matrix,
            ctypes.byref(matrix_address), bias, ctypes.byref(bias_address),
        )  # fmt: skip
        return tuple(a.value - base if a.value else None for a in (matrix_address, bias_address))  # type: ignore[return-value]

    def load(self) -> None:
        """Copy r, w and b to their places. A matrix lies (to, from), ours (from, to)."""
        block = np.zeros(self.bytes, np.uint8)
        for name, part, start in self._places:
            values = self.layer.arrays[name][part]
            stored = np.ascontiguousarray(values.T.astype(dtype(self.layer.kind)))
            block[start : start + stored.nbytes] = stored.reshape(-1).view(np.uint8)
        self.layer.gpu.upload(self.memory.address, block)

    def store(self) -> None:
        """Copy the gradient back into dr, dw and db."""
        assert self.gradient is not None, "only backward passes have a gradient"
        block = np.empty(self.bytes, np.uint8)
        self.layer.gpu.download(block, self.gradient.address)
        for name, part, start in self._places:
            target = self.layer.arrays[f"d{name}"][part]
            kind = dtype(self.layer.kind)
            values = block[start : start + target.size * kind.itemsize].view(kind).reshape(target.T.shape)
            target[...] = values.T.astype(target.dtype)


def _once(gpu: Any, calls: list[Call]) -> Any:
    """A function that makes these calls and waits for them."""
    from deepbench.native import callloop

    loop, _ = callloop.host_timer(Kernel(calls=tuple(calls)))

    def run() -> None:
        loop(1)
        gpu.synchronize()

    return run
