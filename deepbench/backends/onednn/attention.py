"""Attention in oneDNN: composed of its primitives, or as one pattern of its graph interface.

`algorithm=composed` computes some heads and queries at a time: scores = matmul of q and kᵀ, scaled and masked by
post-operations; softmax; matmul with v. The backward pass has five products and the backward softmax.
`algorithm=graph` gives the whole to the graph interface, which fuses it.
"""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Call, Kernel
from deepbench.core.operands import empty
from deepbench.native import attention
from deepbench.native import onednn as c

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays
    from deepbench.native.attention import AttentionBlock


def prepare(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """All calls of one pass."""
    if case.problem.page:
        raise Unsupported("oneDNN has no paged cache; leave out page")
    if case.settings["algorithm"] == "graph":
        from deepbench.backends.onednn import attention_graph

        return attention_graph.prepare(dnn, case, arrays)
    p = case.problem
    blocks = list(attention.blocks(p))
    most = max(block.pairs * p.group * len(block.queries) * len(block.keys) for block in blocks)
    names = {"s": "f32", "weights": case.precision.data}
    if case.direction == "backward":
        names |= dict.fromkeys(("dw", "ds"), case.precision.data)  # the backward softmax takes one type only
    scratch = {name: empty((most,), kind) for name, kind in names.items()}
    composed = _OnednnAttention(dnn, case, {**arrays, **scratch})
    calls: list[Call] = []
    if case.direction == "backward":
        composed.sums = {name: empty(arrays[name].shape, "f32") for name in ("dk", "dv")}
        calls += [call for array in composed.sums.values() for call in dnn.zeros(array)]
    for block in blocks:
        calls += composed.forward(block) if case.direction == "forward" else composed.backward(block)
    for name, array in composed.sums.items():
        calls += composed.reorder(array, arrays[name])
    workspace = sum(array.nbytes for array in (*scratch.values(), *composed.sums.values()))
    notes = {"implementation": " + ".join(dict.fromkeys(composed.implementations)), "workspace_bytes": workspace}
    return Kernel(calls=tuple(calls), keep=(arrays, scratch, composed), notes=notes)


class _OnednnAttention:
    """Primitives on matrices of the arrays. `keep` holds what they point to."""

    def __init__(self, dnn: c.OneDNN, case: Case, arrays: Arrays) -> None:
        self.dnn, self.case, self.arrays = dnn, case, arrays
        self.implementations: list[str] = []
        self.sums: Arrays = {}
        self.keep: list[object] = []
        self.masks: dict[object, Array] = {}

    def forward(self, block: AttentionBlock) -> list[Call]:
        """y of one block."""
        calls: list[Call] = []
        for queries, keys, s, weights in self._matrices(block):
            q, k, v, y = queries("q"), keys("k"), keys("v"), queries("y")
            calls += self._weights(block, q, k, s, weights)
            calls += self._product(weights, v, y)
        return calls

    def backward(self, block: AttentionBlock) -> list[Call]:
        """dq of one block, and what it adds to dk and dv."""
        calls: list[Call] = []
        for queries, keys, s, weights in self._matrices(block):
            q, dq, dy, k, v = queries("q"), queries("dq"), queries("dy"), keys("k"), keys("v")
            dk, dv = (keys(name, self.sums[name]) for name in ("dk", "dv"))
            dw, ds = (self.arrays[name][: s.size].reshape(s.shape) for name in ("dw", "ds"))
            calls += self._weights(block, q, k, s, weights)
            calls += self._product(weights.swapaxes(-1, -2), dy, dv, add=True)
            calls += self._product(dy, v.swapaxes(-1, -2), dw)
            calls += self._softmax_gradient(weights, dw, ds)
            calls += self._product(ds, k, dq, scale=self.case.problem.scale)
            calls += self._product(ds.swapaxes(-1, -2), q, dk, scale=self.case.problem.scale, add=True)
        return calls

    def reorder(self, source: Array, target: Array) -> tuple[Call, ...]:
        """A copy in another type."""
        descriptors = self.dnn.desc_of(source), self.dnn.desc_of(target)
        memories = self.dnn.memory(descriptors[0], source), self.dnn.memory(descriptors[1], target)
        return self.dnn.conversion(descriptors[0], memories[0], descriptors[1], memories[1], None)

    def _matrices(self, block: AttentionBlock) -> Any:
        """For each product of matrices: rows of queries and of keys by array, scores, and weights.

        oneDNN 3.2 has fast kernels for a batch of matrices only if nothing lies between them and no mask is shared.
        Otherwise the matrices take turns. If a block has all queries, those of a group are the rows of one matrix.
        """
        p = self.case.problem
        is_whole = len(block.queries) == p.queries
        rows, columns = (slice(r.start, r.stop) for r in (block.queries, block.keys))
        pairs = range(block.pair, block.pair + block.pairs)
        if is_whole and len(block.keys) == p.keys and not block.is_masked:
            chosen: list[tuple[Any, Any]] = [(slice(pairs.start, pairs.stop), slice(None))]
        else:
            chosen = [(pair, head) for pair in pairs for head in ([slice(None)] if is_whole else range(p.group))]

        for pair, head in chosen:

            def keys(name: str, array: Array | None = None, pair: Any = pair) -> Array:
                array = self.arrays[name] if array is None else array
                return array.reshape(-1, p.keys, array.shape[-1])[pair, columns]

            def queries(name: str, pair: Any = pair, head: Any = head) -> Array:
                array = self.arrays[name]
                whole: Array = array.reshape(p.batch * p.kv_heads, -1, array.shape[-1])[pair]
                if is_whole:
                    return whole
                matrix: Array = whole.reshape(p.group, p.queries, -1)[head, rows]
                return matrix

            shape = (*queries("q").shape[:-1], len(block.keys))
            count = math.prod(shape)
            yield queries, keys, *(self.arrays[name][:count].reshape(shape) for name in ("s", "weights"))

    def _weights(self, block: AttentionBlock, q: Array, k: Array, s: Array, weights: Array) -> list[Call]:
        """Scores and their softmax."""
        mask = self._mask(block, s.shape[0]) if block.is_masked else None
        calls = self._product(q, k.swapaxes(-1, -2), s, scale=self.case.problem.scale, mask=mask)
        source, target = self.dnn.desc_of(s), self.dnn.desc_of(weights)
        arguments = (c.FORWARD_INFERENCE, c.SOFTMAX_ACCURATE, source, target, s.ndim - 1, None)
        primitive_desc = self.dnn.create("dnnl_softmax_forward_primitive_desc_create", self.dnn.engine, *arguments)
        return calls + self._execution(primitive_desc, {c.ARG_SRC: s, c.ARG_DST: weights})

    def _softmax_gradient(self, weights: Array, dw: Array, ds: Array) -> list[Call]:
        axis = ds.ndim - 1
        kinds = [self.dnn.desc_of(array) for array in (ds, dw, weights)]
        hint = self.dnn.create(
            "dnnl_softmax_forward_primitive_desc_create", self.dnn.engine, c.FORWARD_TRAINING, c.SOFTMAX_ACCURATE,
            kinds[2], kinds[2], axis, None,
        )  # fmt: skip
        primitive_desc = self.dnn.create(
            "dnnl_softmax_backward_primitive_desc_create", self.dnn.engine, c.SOFTMAX_ACCURATE, *kinds, axis, hint, None
        )
        arguments = {c.ARG_DST: weights, c.ARG_DIFF_DST: dw, c.ARG_DIFF_SRC: ds}
        return self._execution(primitive_desc, arguments)

    def _product(
        self, a: Array, b: Array, result: Array, scale: float = 1.0, mask: Array | None = None, add: bool = False
    ) -> list[Call]:
        """result = scale · a · b + mask, added to the old result or not."""
        operations = self.dnn.create("dnnl_post_ops_create")
        if scale != 1:
            factor = ctypes.c_float(scale)
            self.dnn.call("dnnl_post_ops_append_eltwise", operations, c.ELTWISE_LINEAR, factor, ctypes.c_float(0))
        if mask is not None:
            self.dnn.call("dnnl_post_ops_append_binary", operations, c.BINARY_ADD, self.dnn.desc_of(mask))
        if add:
            self.dnn.call("dnnl_post_ops_append_sum", operations, ctypes.c_float(1), 0, 0)
        attribute = self.dnn.create("dnnl_primitive_attr_create")
        self.dnn.call("dnnl_primitive_attr_set_post_ops", attribute, operations)
        descriptors = self.dnn.desc_of(a), self.dnn.desc_of(b), None, self.dnn.desc_of(result)
        name = "dnnl_matmul_primitive_desc_create"
        primitive_desc = self.dnn.create(name, self.dnn.engine, *descriptors, attribute)
        arguments = {c.ARG_SRC: a, c.ARG_WEIGHTS: b, c.ARG_DST: result}
        if mask is not None:
            arguments[self._post_op_argument(primitive_desc, 0 if scale == 1 else 1, mask)] = mask
        return self._execution(primitive_desc, arguments)

    def _post_op_argument(self, primitive_desc: c.Handle, index: int, array: Array) -> int:
        """The number of the argument of a binary post-operation, which depends on the version."""
        wanted = self.dnn.desc_of(array)
        for base in c.ARG_POST_OPS:
            number = base * (index + 1) | c.ARG_SRC_1
            found = self.dnn.query_desc(primitive_desc, c.QUERY_ARGUMENT, number)
            if found and self.dnn.library.dnnl_memory_desc_equal(found, wanted):
                return number
        raise Unsupported("this version of oneDNN does not say how to pass a mask; choose another")

    def _execution(self, primitive_desc: c.Handle, arguments: dict[int, Array]) -> list[Call]:
        self.implementations.append(self.dnn.facts(primitive_desc)["implementation"])
        primitive = self.dnn.create("dnnl_primitive_create", primitive_desc)
        memories = {number: self.dnn.memory(self.dnn.desc_of(array), array) for number, array in arguments.items()}
        self.keep.extend(arguments.values())
        return list(self.dnn.execution(primitive, memories))

    def _mask(self, block: AttentionBlock, rows: int) -> Array:
        """0 where a query of a block sees a key, -inf elsewhere, for each row of scores; equal masks are one array."""
        import numpy as np

        p = self.case.problem
        place = (rows, len(block.queries), len(block.keys), block.shift)
        if place not in self.masks:
            last = (np.arange(rows) % len(block.queries) + block.shift)[:, None]
            columns = np.arange(len(block.keys))
            mask = empty((rows, columns.size), "f32")
            mask[...] = np.where((columns <= last) & (columns > last - (p.window or p.keys)), 0, -np.inf)
            self.masks[place] = mask
        return self.masks[place]
