"""Batched GEMM: C = A·B for each of `batch` products of equal size, on column-major matrices that lie without gaps.

A is m × k, B is k × n and C is m × n, stored as in `gemm`: array `a` has shape (batch, k, m), or with `a_t=1`
(batch, m, k), `b` (batch, n, k), or with `b_t=1` (batch, k, n), and `c` (batch, n, m). C is overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.lowering import MatrixProduct
from deepbench.core.parts import Tensor
from deepbench.core.problem import BaseProblem, size
from deepbench.core.product import Product, ProductsOp

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays


@dataclass(frozen=True)
class BatchedGemm(BaseProblem):
    """Sizes of one of the products; `a_t` and `b_t` are 1 if the operand is stored transposed."""

    batch: int = size()
    m: int = size()
    n: int = size()
    k: int = size()
    a_t: int = size(default=0, least=0, most=1, omit_default=True)
    b_t: int = size(default=0, least=0, most=1, omit_default=True)


class BatchedGemmOp(ProductsOp):
    name = "batched_gemm"
    Problem = BatchedGemm
    sweep_field = "batch"
    smoke = (
        BatchedGemm(1, 1, 1, 1),
        BatchedGemm(5, 7, 1, 9),
        BatchedGemm(3, 16, 17, 31, a_t=1),
        BatchedGemm(4, 13, 33, 5, b_t=1),
        BatchedGemm(2, 48, 32, 65, a_t=1, b_t=1),
    )

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """The arrays listed at the top of this file."""
        p, types = case.problem, case.precision
        return {
            "a": Tensor((p.batch, p.m, p.k) if p.a_t else (p.batch, p.k, p.m), types.weights),
            "b": Tensor((p.batch, p.k, p.n) if p.b_t else (p.batch, p.n, p.k), types.data),
            "c": Tensor((p.batch, p.n, p.m), self.result_type(case)),
        }

    def products(self, case: Case, arrays: Arrays) -> list[Product]:
        """One per matrix of the batch."""
        p, a, b = case.problem, arrays["a"], arrays["b"]
        left, right = a.swapaxes(1, 2) if p.a_t else a, b.swapaxes(1, 2) if p.b_t else b
        return [Product(left[i], right[i], arrays["c"][i]) for i in range(p.batch)]

    def flop(self, case: Case) -> int:
        """2·batch·m·n·k."""
        p = case.problem
        return int(2 * p.batch * p.m * p.n * p.k)

    def matrix_products(self, case: Case) -> tuple[MatrixProduct, ...]:
        """The products of the batch."""
        p = case.problem
        return (MatrixProduct("", p.m, p.n, p.k, p.batch),)

    def title(self, problem: Any) -> str:
        """`96 × (512 × 512 × 64 NT)`: how many products, and each of them as `gemm` shows it."""
        p = problem
        return f"{p.batch} × ({p.m} × {p.n} × {p.k} {'NT'[p.a_t]}{'NT'[p.b_t]})"


OP = BatchedGemmOp()
