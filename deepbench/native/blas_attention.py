"""Attention composed of batched products (CBLAS's extension `cblas_sgemm_batch`) and our own softmax.

The products of one block of `native/attention.py` are one call: MKL divides them among its threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Call, Kernel, NativeFunction
from deepbench.core.operands import empty
from deepbench.native import attention

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays
    from deepbench.native.attention import AttentionBlock

# enum CBLAS_LAYOUT and CBLAS_TRANSPOSE
ROW_MAJOR, NO_TRANS, TRANS = 101, 111, 112
FLOAT_BYTES = 4


def prepare(sgemm_batch: NativeFunction, case: Case, arrays: Arrays) -> Kernel:
    """The calls of all blocks."""
    p = case.problem
    if case.settings["algorithm"] == "graph":
        raise Unsupported("BLAS has no graphs; choose algorithm=default or composed")
    calls: list[Call] = []
    data = dict(arrays)
    if p.page and case.direction == "backward":
        raise Unsupported("a paged cache is for inference; leave out page")
    if p.page:
        calls, pages = attention.collected(case, arrays)
        data |= pages
    blocks = list(attention.blocks(p))
    most = max(block.pairs * p.group * len(block.queries) * len(block.keys) for block in blocks)
    scores = [empty((most,), "f32") for _ in range(1 if case.direction == "forward" else 2)]
    if case.direction == "backward":
        clear = ctypes.CDLL(None).memset
        calls += [Call(clear, arrays[name], 0, arrays[name].nbytes) for name in ("dk", "dv")]
    for block in blocks:
        composed = _BlasAttention(sgemm_batch, case, data, block, [attention.pointer(array) for array in scores])
        calls += composed.forward() if case.direction == "forward" else composed.backward()
    notes = {
        "implementation": f"{sgemm_batch.__name__} and own softmax",
        "workspace_bytes": sum(array.nbytes for array in scores),
    }
    return Kernel(calls=tuple(calls), keep=(data, scores), notes=notes)


class _BlasAttention:
    """The calls of one block. Addresses are those of the matrices of each key-value head, or of each query head."""

    def __init__(
        self, sgemm_batch: NativeFunction, case: Case, arrays: Arrays, block: AttentionBlock, scores: Sequence[int]
    ) -> None:
        p = case.problem
        self.sgemm_batch, self.case, self.arrays, self.block, self.scores = sgemm_batch, case, arrays, block, scores
        # If a block has all queries, those of a group follow each other and are the rows of one matrix.
        is_whole = len(block.queries) == p.queries
        self.rows = len(block.queries) * (p.group if is_whole else 1)
        self.columns = len(block.keys)
        each = 1 if is_whole else p.group
        self.heads = range(block.pair * each, (block.pair + block.pairs) * each)
        self.each = each

    def forward(self) -> list[Call]:
        """Scores, their softmax, and the product with the values."""
        case, p, block, (scores,) = self.case, self.case.problem, self.block, self.scores
        s = self._scores(scores)
        q, k, v, y = self._queries("q"), self._keys("k"), self._keys("v"), self._queries("y")
        return [
            self._product(self.rows, self.columns, p.head_size, q, k, s, second=TRANS),
            attention.softmax(case, block, self.rows * len(self.heads), scores),
            self._product(self.rows, p.width, self.columns, s, v, y),
        ]

    def backward(self) -> list[Call]:
        """Weights and their gradients, and the products of these."""
        case, p, block, (weights, gradients) = self.case, self.case.problem, self.block, self.scores
        s, ds = self._scores(weights), self._scores(gradients)
        q, dq, dy, result = (self._queries(name) for name in ("q", "dq", "dy", "result"))
        k, v, dk, dv = (self._keys(name) for name in ("k", "v", "dk", "dv"))
        lse = self._queries("lse")
        calls = [
            self._product(self.rows, self.columns, p.head_size, q, k, s, second=TRANS),
            self._product(self.rows, self.columns, p.width, dy, v, ds, second=TRANS),
        ]
        for i in range(len(self.heads)):
            calls.append(attention.softmax(case, block, self.rows, s[i], lse[i]))
            calls.append(attention.gradient(case, block, self.rows, s[i], ds[i], dy[i], result[i]))
        calls.append(self._product(self.rows, p.head_size, self.columns, ds, k, dq))
        for first in range(self.each):  # heads of a group add to the same gradients, so they take turns
            one = slice(first, None, self.each)
            of_k = self.columns, p.head_size, self.rows, ds[one], q[one], dk[one]
            of_v = self.columns, p.width, self.rows, s[one], dy[one], dv[one]
            calls += [self._product(*sizes_and_matrices, first=TRANS, beta=1.0) for sizes_and_matrices in (of_k, of_v)]
        return calls

    def _scores(self, start: int) -> list[int]:
        return [start + i * self.rows * self.columns * FLOAT_BYTES for i in range(len(self.heads))]

    def _queries(self, name: str) -> list[int]:
        array, first = self.arrays[name], self.block.queries[0]
        queries = self.case.problem.queries
        width = array.shape[3] if array.ndim == 4 else 1
        step = width * FLOAT_BYTES * queries * (1 if self.each > 1 else self.case.problem.group)
        return [attention.pointer(array) + h * step + first * width * FLOAT_BYTES for h in self.heads]

    def _keys(self, name: str) -> list[int]:
        array: Array = self.arrays[name]
        step, first = array.strides[1], self.block.keys[0] * array.strides[2]
        return [attention.pointer(array) + h // self.each * step + first for h in self.heads]

    def _product(
        self,
        m: int,
        n: int,
        k: int,
        a: Sequence[int],
        b: Sequence[int],
        c: Sequence[int],
        first: int = NO_TRANS,
        second: int = NO_TRANS,
        beta: float = 0.0,
    ) -> Call:
        """C (m × n) = A (m × k) · B (k × n) + beta · C for each of these addresses."""

        def one(value: Any) -> Any:
            return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int64(value)

        def listed(addresses: Sequence[int]) -> Any:
            return (ctypes.c_void_p * len(addresses))(*addresses)

        lda, ldb = m if first == TRANS else k, k if second == TRANS else n
        transposed = [ctypes.c_int(word) for word in (first, second)]
        return Call(
            self.sgemm_batch, ROW_MAJOR, *transposed, one(m), one(n), one(k), one(1.0), listed(a), one(lda), listed(b),
            one(ldb), one(beta), listed(c), one(n), 1, one(len(c)),
        )  # fmt: skip
