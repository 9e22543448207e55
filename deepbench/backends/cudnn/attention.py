"""Attention in cuDNN: products, masks and softmax as a graph, which cuDNN runs as one fused kernel.

The graph has the form that cuDNN's engines recognize, step by step that of NVIDIA's cudnn-frontend. The forward pass:

    scores = q · kᵀ · scale, masked        y = (exp(scores - maximum) / sum) · v

The backward pass computes the weights from `lse`, adds dq in f32 in a temporary array, and adds dk and dv of the heads
of a group. Scores and weights are never in memory.
"""

from __future__ import annotations

from typing import Any

from deepbench.backends.cudnn import plans
from deepbench.backends.cudnn.plans import ChosenPlan, GraphTensor, OperationGraph
from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native.gpu import cudnn
from deepbench.native.gpu.library import GpuBackend
from deepbench.native.gpu.runtime import Runtime

# Earlier ones need other masks, or have known errors: see the conditions in cudnn-frontend.
LEAST_VERSION = 91600

# Kernels load 16 bytes at a time.
HEAD_MULTIPLE = 8

# Axes of queries and keys in the scores.
QUERIES, KEYS = 2, 3


def prepare(backend: GpuBackend, case: Case, arrays: Arrays, chosen: dict[str, ChosenPlan]) -> Kernel:
    """The kernel of attention in either direction. `chosen` keeps the choice of the search by case."""
    refuse(case, int(backend.gpu.function("cudnnGetVersion")()))

    def build() -> OperationGraph:
        return operation_graph(backend.gpu, case)

    return plans.fastest(backend, case, arrays, chosen, build, prepared(case))


def refuse(case: Case, version: int) -> None:
    """`Unsupported` for what this graph does not express, or this version of cuDNN does not compute."""
    p = case.problem
    if version < LEAST_VERSION:
        raise Unsupported(f"attention needs cuDNN {_text(LEAST_VERSION)}, found {_text(version)}; install a newer one")
    if case.settings["algorithm"] != "default":
        raise Unsupported("cuDNN has one fused kernel of attention; choose algorithm=default")
    if p.page and case.direction == "backward":
        raise Unsupported("a paged cache is for inference; leave out page")
    if p.head_size % HEAD_MULTIPLE or p.width % HEAD_MULTIPLE:
        sizes = f"{p.head_size} and {p.width}" if p.value_size else f"{p.head_size}"
        raise Unsupported(f"cuDNN's attention needs heads of a multiple of {HEAD_MULTIPLE} numbers, found {sizes}")
    if case.direction == "backward" and p.queries == p.keys == 1:
        raise Unsupported("cuDNN has no gradient of attention from one query to one key")


def _text(version: int) -> str:
    """`91900` → `9.19`."""
    return f"{version // 10000}.{version // 100 % 100}"


def prepared(case: Case) -> Arrays:
    """Further inputs: the numbers of queries and keys of each sequence, if they differ or lie in pages."""
    import numpy as np

    p = case.problem
    if p.lengths == "equal" and not p.page:
        return {}
    queries = np.array([p.query_count(keys) for keys in p.key_counts], np.int32)
    return {"query_counts": queries, "key_counts": np.array(p.key_counts, np.int32)}


def operation_graph(gpu: Runtime, case: Case) -> OperationGraph:
    """The graph of attention in either direction."""
    graph = _Attention(gpu, case)
    if case.direction == "forward":
        graph.forward()
    else:
        graph.backward()
    return graph


class _Attention(OperationGraph):
    """The graph of one case."""

    def __init__(self, gpu: Runtime, case: Case) -> None:
        super().__init__(gpu)
        self.p, self.kind = case.problem, case.precision.data
        op: Any = case.operation
        self.pages = op.tensors(case)["k"].shape[0]
        self.page_table: GraphTensor | None = None
        self.query_counts: GraphTensor | None = None
        self.key_counts: GraphTensor | None = None
        if counts := prepared(case):
            self.query_counts, self.key_counts = (self.tensor(name, "s32", (self.p.batch, 1, 1, 1)) for name in counts)

    def forward(self) -> None:
        """The result `y`."""
        p = self.p
        scores = self.scores(self.of_queries("q", p.head_size), self.of_keys("k", p.head_size, is_transposed=True))
        scores = self.masked(scores)
        maximum = self.reduce(cudnn.MAXIMUM, scores)
        powers = self.pointwise(cudnn.EXPONENTIAL, self.pointwise(cudnn.SUBTRACT, scores, maximum))
        total = self.reduce(cudnn.SUM, powers)
        # Engines do not recognize the graph without this result, although nothing reads it.
        self.pointwise(cudnn.ADD, maximum, self.pointwise(cudnn.LOGARITHM, total))
        weights = self.pointwise(cudnn.DIVIDE, powers, total, type_name=self.kind)
        y = self.of_queries("y", p.width)
        self.matmul(weights, self.of_keys("v", p.width), rows=self.query_counts, inner=self.key_counts, to=y)

    def backward(self) -> None:
        """The gradients `dq`, `dk` and `dv`."""
        p = self.p
        q, dy = self.of_queries("q", p.head_size), self.of_queries("dy", p.width)
        k = self.of_keys("k", p.head_size, is_transposed=True)
        v = self.of_keys("v", p.width, is_transposed=True)
        of_row = (p.batch, p.heads, p.queries, 1)
        # The sum of dy · y is written to memory: its own kernel computes it.
        product = self.pointwise(cudnn.MULTIPLY, dy, self.of_queries("result", p.width))
        sums = self.reduce(cudnn.SUM, product)
        sums = self.pointwise(cudnn.MULTIPLY, sums, self.scalar(1.0), to=self.temporary("row_sums", "f32", of_row))
        scores = self.pointwise(cudnn.SUBTRACT, self.scores(q, k), self.tensor("lse", "f32", of_row))
        weights = self.pointwise(cudnn.EXPONENTIAL, self.masked(scores))
        self.gradient_of_keys(weights, dy, "dv")
        ds = self.matmul(dy, v, rows=self.query_counts, columns=self.key_counts)
        ds = self.pointwise(cudnn.MULTIPLY, self.pointwise(cudnn.SUBTRACT, ds, sums), weights)
        ds = self.pointwise(cudnn.MULTIPLY, ds, self.scalar(p.scale))
        self.gradient_of_keys(ds, q, "dk")
        # Blocks of keys add to dq one after the other.
        total = self.temporary("dq_sums", "f32", q.sizes)
        self.matmul(ds, self.transpose(k, self.kind), rows=self.query_counts, inner=self.key_counts, to=total)
        self.pointwise(cudnn.IDENTITY, total, to=self.of_queries("dq", p.head_size))

    # ---- tensors

    def of_queries(self, name: str, numbers: int) -> GraphTensor:
        """An array with this many numbers for each query."""
        p = self.p
        return self.tensor(name, self.kind, (p.batch, p.heads, p.queries, numbers))

    def of_keys(self, name: str, numbers: int, is_transposed: bool = False) -> GraphTensor:
        """An array with this many numbers for each key, or its transpose; out of its pages if there are any."""
        p = self.p
        sizes, strides = [p.batch, p.kv_heads, p.keys, numbers], [p.kv_heads * p.keys * numbers, p.keys * numbers]
        strides += [numbers, 1]
        if is_transposed:
            sizes, strides = ([*values[:2], values[3], values[2]] for values in (sizes, strides))
        if self.key_counts is None or not p.page:
            return self.tensor(name, self.kind, sizes, strides)
        if self.page_table is None:
            self.page_table = self.tensor("page_table", "s32", (p.batch, 1, -(-p.keys // p.page), 1))
        container = self.tensor(name, self.kind, (self.pages, p.kv_heads, p.page, numbers))
        return self.load_pages(container, self.page_table, self.key_counts, self.virtual(self.kind, sizes, strides))

    # ---- steps

    def scores(self, q: GraphTensor, k: GraphTensor) -> GraphTensor:
        """q · kᵀ · scale."""
        scores = self.matmul(q, k, rows=self.query_counts, columns=self.key_counts)
        return self.pointwise(cudnn.MULTIPLY, scores, self.scalar(self.p.scale))

    def gradient_of_keys(self, weights: GraphTensor, of_queries: GraphTensor, name: str) -> None:
        """weightsᵀ · of_queries, added over the heads of a group."""
        p, transposed = self.p, self.transpose(weights, self.kind)
        to = self.tensor(name, self.kind, (p.batch, p.kv_heads, p.keys, of_queries.sizes[-1]))
        of_heads = to if p.group == 1 else self.virtual(self.kind, (p.batch, p.heads, p.keys, of_queries.sizes[-1]))
        self.matmul(transposed, of_queries, rows=self.key_counts, inner=self.query_counts, to=of_heads)
        if p.group > 1:
            self.reduce(cudnn.SUM, of_heads, to)

    def masked(self, scores: GraphTensor) -> GraphTensor:
        """The scores, -inf where a query does not see a key."""
        p = self.p
        if self.query_counts is not None and self.key_counts is not None:
            rows = self.compare(cudnn.LESS, self.index(scores, QUERIES, "s32"), self.query_counts)
            columns = self.compare(cudnn.LESS, self.index(scores, KEYS, "s32"), self.key_counts)
            scores = self.select(scores, self.compare(cudnn.AND, rows, columns))
        if p.mask == "causal" and (p.queries > 1 or p.window):
            scores = self.select(scores, self.up_to_diagonal(scores))
        if p.window:
            scores = self.select(scores, self.in_window(scores))
        return scores

    def up_to_diagonal(self, scores: GraphTensor) -> GraphTensor:
        """query + keys - queries ≥ key."""
        p, row, column = self.p, self.index(scores, QUERIES), self.index(scores, KEYS)
        if p.queries != p.keys:
            row = self.whole(cudnn.ADD, row, self.key_counts or self.scalar(p.keys))
            row = self.whole(cudnn.SUBTRACT, row, self.query_counts or self.scalar(p.queries))
        return self.compare(cudnn.GREATER_OR_EQUAL, row, column)

    def in_window(self, scores: GraphTensor) -> GraphTensor:
        """key + window - keys + queries > query."""
        p, row, column = self.p, self.index(scores, QUERIES), self.index(scores, KEYS)
        if self.key_counts is None or p.queries == p.keys:
            width = self.scalar(float(p.window - p.keys + p.queries))
            column = self.pointwise(cudnn.ADD, column, width)
        else:
            column = self.whole(cudnn.ADD, column, self.scalar(p.window))
            column = self.whole(cudnn.SUBTRACT, column, self.key_counts)
            column = self.whole(cudnn.ADD, column, self.query_counts)
        return self.compare(cudnn.GREATER, column, row)

    def index(self, scores: GraphTensor, axis: int, compute: str = "f32") -> GraphTensor:
        """The number of each element along an axis."""
        return self.pointwise(cudnn.INDEX, scores, type_name="s32", compute=compute, axis=axis)

    def whole(self, mode: int, x: GraphTensor, b: GraphTensor | None) -> GraphTensor:
        """Arithmetic with whole numbers."""
        return self.pointwise(mode, x, b, type_name="s32", compute="s32")

    def compare(self, mode: int, x: GraphTensor, b: GraphTensor) -> GraphTensor:
        """Whether something is so, for each element."""
        return self.pointwise(mode, x, b, type_name="bool", compute="bool")

    def select(self, scores: GraphTensor, seen: GraphTensor) -> GraphTensor:
        """The scores that are seen, and -inf."""
        return self.pointwise(cudnn.SELECT, scores, self.scalar(float("-inf")), chooser=seen)
