"""Graphs of operations in cuDNN, and the fastest plan of a graph: what all operations but recurrent layers share."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from deepbench.core.case import Case
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native.gpu import cudnn, timing
from deepbench.native.gpu.library import GpuBackend
from deepbench.native.gpu.runtime import Runtime

# cuDNN requires addresses at multiples of 16 bytes; allocations of CUDA are at multiples of this.
ALIGNMENT = 256


@dataclass(frozen=True)
class GraphTensor:
    """A tensor of a graph: its descriptor, and what results of operations on it need. Strides are in elements."""

    descriptor: cudnn.Descriptor
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


class OperationGraph:
    """Operations, and the tensors between them. Tensors in memory have names, whose addresses come with a plan."""

    def __init__(self, gpu: Runtime) -> None:
        self._gpu = gpu
        self._operations: list[cudnn.Descriptor] = []
        self._next = 0
        self.numbers: dict[str, int] = {}
        """The numbers of the tensors in the memory of the GPU, by their names."""
        self.temporary_bytes: dict[str, int] = {}
        """Those that only this graph uses: they lie behind the workspace."""
        self._scalars: dict[int, ctypes.c_float | ctypes.c_int32] = {}

    # ---- tensors

    def tensor(
        self, name: str, type_name: str, sizes: Sequence[int], strides: Sequence[int] | None = None
    ) -> GraphTensor:
        """An array in the memory of the GPU; strides in elements, row-major if left out."""
        self.numbers[name] = self._next
        return self._tensor(type_name, sizes, strides)

    def temporary(self, name: str, type_name: str, sizes: Sequence[int]) -> GraphTensor:
        """A row-major array that only this graph uses, of a type with 4 bytes."""
        self.temporary_bytes[name] = 4 * math.prod(sizes)
        return self.tensor(name, type_name, sizes)

    def virtual(self, type_name: str, sizes: Sequence[int], strides: Sequence[int] | None = None) -> GraphTensor:
        """A tensor between two operations, which is never in memory."""
        return self._tensor(type_name, sizes, strides, is_virtual=True)

    def scalar(self, value: float, rank: int = 4) -> GraphTensor:
        """A number by value, of this rank: s32 for an int, f32 for a float."""
        self._scalars[self._next] = ctypes.c_int32(value) if isinstance(value, int) else ctypes.c_float(value)
        return self._tensor("s32" if isinstance(value, int) else "f32", (1,) * rank, is_by_value=True)

    def _tensor(
        self,
        type_name: str,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        is_virtual: bool = False,
        is_by_value: bool = False,
    ) -> GraphTensor:
        number, self._next = self._next, self._next + 1
        if strides is None:
            strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        descriptor = cudnn.tensor(self._gpu, number, type_name, sizes, strides, is_virtual, is_by_value)
        return GraphTensor(descriptor, tuple(sizes), tuple(strides))

    # ---- operations

    def add(
        self,
        kind: int,
        at: int | None,
        description: cudnn.Descriptor | None,
        tensors: Mapping[int, GraphTensor | None],
        values: Sequence[tuple[int, int, object]] = (),
    ) -> None:
        """An operation: its description in attribute `at`, tensors by their attributes, and values with their types.

        Tensors that are None are left out. `Unsupported` or `LibraryError` if cuDNN finds that these do not fit.
        """
        operation = cudnn.Descriptor(self._gpu, kind)
        if at is not None:
            operation.set(at, cudnn.DESCRIPTOR, description)
        for attribute, tensor in tensors.items():
            if tensor is not None:
                operation.set(attribute, cudnn.DESCRIPTOR, tensor.descriptor)
        for attribute, type_number, value in values:
            operation.set(attribute, type_number, value)
        self._operations.append(operation.finish())

    def pointwise(
        self,
        mode: int,
        x: GraphTensor,
        b: GraphTensor | None = None,
        chooser: GraphTensor | None = None,
        to: GraphTensor | None = None,
        type_name: str = "f32",
        compute: str = "f32",
        axis: int | None = None,
    ) -> GraphTensor:
        """A function of each element of `x`, and of `b` if there is one; `chooser` for `SELECT`, `axis` for `INDEX`.

        The result is `to`, or virtual and as large as `x`, or as `b` if that is larger.
        """
        description = cudnn.Descriptor(self._gpu, cudnn.POINTWISE)
        description.set(cudnn.POINTWISE_MODE, cudnn.POINTWISE_MODE_TYPE, mode)
        description.set(cudnn.POINTWISE_COMPUTE, cudnn.DATA_TYPE, cudnn.TYPES[compute])
        if axis is not None:
            description.set(cudnn.POINTWISE_AXIS, cudnn.INT64, axis)
        sizes = x.sizes if b is None else tuple(map(max, x.sizes, b.sizes))
        to = to or self.virtual(type_name, sizes)
        tensors = {cudnn.POINTWISE_X: x, cudnn.POINTWISE_B: b, cudnn.POINTWISE_T: chooser, cudnn.POINTWISE_Y: to}
        self.add(cudnn.POINTWISE_OPERATION, cudnn.POINTWISE_DESCRIPTOR, description.finish(), tensors)
        return to

    def matmul(
        self,
        a: GraphTensor,
        b: GraphTensor,
        rows: GraphTensor | None = None,
        columns: GraphTensor | None = None,
        inner: GraphTensor | None = None,
        to: GraphTensor | None = None,
    ) -> GraphTensor:
        """Products of the matrices in the last two axes. `rows`, `columns` and `inner` have the sizes of each batch."""
        description = cudnn.Descriptor(self._gpu, cudnn.MATMUL)
        description.set(cudnn.MATMUL_COMPUTE, cudnn.DATA_TYPE, cudnn.TYPES["f32"])
        batches = tuple(map(max, a.sizes[:-2], b.sizes[:-2]))
        to = to or self.virtual("f32", (*batches, a.sizes[-2], b.sizes[-1]))
        sizes = {cudnn.MATMUL_ROWS: rows, cudnn.MATMUL_COLUMNS: columns, cudnn.MATMUL_INNER: inner}
        tensors = {cudnn.MATMUL_A: a, cudnn.MATMUL_B: b, cudnn.MATMUL_C: to}
        self.add(cudnn.MATMUL_OPERATION, cudnn.MATMUL_DESCRIPTOR, description.finish(), {**tensors, **sizes})
        return to

    def reduce(self, operator: int, x: GraphTensor, to: GraphTensor | None = None) -> GraphTensor:
        """Reduces `x` to the sizes of `to`, or its last axis to one number."""
        description = cudnn.Descriptor(self._gpu, cudnn.REDUCTION)
        description.set(cudnn.REDUCTION_OPERATOR, cudnn.REDUCTION_OPERATOR_TYPE, operator)
        description.set(cudnn.REDUCTION_COMPUTE, cudnn.DATA_TYPE, cudnn.TYPES["f32"])
        to = to or self.virtual("f32", (*x.sizes[:-1], 1))
        tensors = {cudnn.REDUCTION_X: x, cudnn.REDUCTION_Y: to}
        self.add(cudnn.REDUCTION_OPERATION, cudnn.REDUCTION_DESCRIPTOR, description.finish(), tensors)
        return to

    def transpose(self, x: GraphTensor, type_name: str) -> GraphTensor:
        """`x` with the last two axes exchanged: the same memory under other strides."""
        exchanged = [(*values[:-2], values[-1], values[-2]) for values in (x.sizes, x.strides)]
        to = self.virtual(type_name, *exchanged)
        self.add(cudnn.RESHAPE, None, None, {cudnn.RESHAPE_X: x, cudnn.RESHAPE_Y: to})
        return to

    def load_pages(
        self, container: GraphTensor, table: GraphTensor, lengths: GraphTensor, to: GraphTensor
    ) -> GraphTensor:
        """The pages of each sequence one after the other: `to`, which is virtual."""
        tensors = {cudnn.PAGES_CONTAINER: container, cudnn.PAGES_TABLE: table}
        self.add(cudnn.PAGED_CACHE_LOAD, None, None, {**tensors, cudnn.PAGES_LENGTHS: lengths, cudnn.PAGES_Y: to})
        return to

    def finish(self, handle: ctypes.c_void_p | None = None) -> cudnn.Descriptor:
        """The descriptor of the whole graph. Without a handle, it can be planned for GPUs that are not here."""
        graph = cudnn.Descriptor(self._gpu, cudnn.OPERATION_GRAPH)
        graph.set(cudnn.GRAPH_OPERATIONS, cudnn.DESCRIPTOR, *self._operations)
        if handle is not None:
            graph.set(cudnn.GRAPH_HANDLE, cudnn.HANDLE, handle)
        return graph.finish()

    # ---- memory

    def addresses(self, arrays: dict[str, int], temporaries: int) -> dict[int, int]:
        """Where each tensor is, by its number: arrays by name, and the temporary ones from an address on."""
        found = {number: ctypes.addressof(value) for number, value in self._scalars.items()}
        for name, number in self.numbers.items():
            if name in self.temporary_bytes:
                found[number], temporaries = temporaries, temporaries + aligned(self.temporary_bytes[name])
            else:
                found[number] = arrays[name]
        return found


def aligned(count: int) -> int:
    """At least so many bytes, up to where the next array may begin."""
    return -(-count // ALIGNMENT) * ALIGNMENT


class ChosenPlan(NamedTuple):
    """A graph with the plan that the search chose, and its configuration."""

    graph: OperationGraph
    config: cudnn.Descriptor
    plan: cudnn.Descriptor


def fastest(
    backend: GpuBackend,
    case: Case,
    arrays: Arrays,
    chosen: dict[str, ChosenPlan],
    build: Callable[[], OperationGraph],
    prepared: Arrays | None = None,
    refuse_workspace: Callable[[int], None] = lambda needed: None,
) -> Kernel:
    """The kernel of the fastest plan of a graph. `chosen` keeps the choice by case.

    `prepared` are further inputs of the graph, which were computed from the arrays of the case. `refuse_workspace`
    raises `Unsupported` if a plan needs too many bytes.
    """
    gpu, buffers = backend.gpu, backend.buffers(case, {**arrays, **(prepared or {})})

    def kernel(graph: OperationGraph, config: cudnn.Descriptor, plan: cudnn.Descriptor) -> Kernel:
        needed = plan.get(cudnn.PLAN_WORKSPACE, cudnn.INT64)[0]
        refuse_workspace(needed)
        temporary = sum(map(aligned, graph.temporary_bytes.values()))
        workspace = gpu.workspace(max(aligned(needed) + temporary, 1))[0]
        variant = cudnn.variant(gpu, graph.addresses(buffers.address, workspace + aligned(needed)), workspace)
        call = backend.prepare_call("cudnnBackendExecute", backend.handle, plan.handle, variant.handle)
        notes = {"implementation": cudnn.name(config), "workspace_bytes": needed + temporary}
        if case.op == "conv":
            notes["algorithm"] = cudnn.algorithm(config)
        return backend.kernel([call], buffers, arrays, notes, graph, plan, variant, config)

    if case.text in chosen:  # with `cache=cold`: another set of buffers
        return kernel(*chosen[case.text])
    graph = build()
    descriptor = graph.finish(backend.handle)
    allowed_ones = [c for c in cudnn.configurations(gpu, descriptor) if allowed(case, cudnn.notes(c))]
    configs = {cudnn.name(c): c for c in allowed_ones}
    built: dict[str, cudnn.Descriptor] = {}

    def candidate(name: str) -> Kernel:
        if name not in built:
            built[name] = cudnn.plan(gpu, configs[name], backend.handle)
        return kernel(graph, configs[name], built[name])

    candidates = {name: partial(candidate, name) for name in configs}
    best, name = backend.fastest(case, candidates, buffers.load, timing.COMPILED_SEARCH_MOST_S)
    chosen[case.text] = ChosenPlan(graph, configs[name], built[name])
    return best


def allowed(case: Case, notes: set[int]) -> bool:
    """Whether an engine with these numerical notes computes in the precision of the case."""
    if cudnn.CONVERTED_DOWN in notes:
        return False
    # Tensor cores multiply 19 bits of each operand. Normalizations have no products of matrices to use them for, but
    # engines that are compiled for any graph have the note.
    if case.precision.name == "f32" and case.op == "conv":
        return cudnn.TENSOR_CORES not in notes
    return cudnn.REDUCED not in notes
