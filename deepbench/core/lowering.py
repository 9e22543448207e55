"""The products of matrices in which the work of an operation can be expressed, for programs that know nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MatrixProduct:
    """`batch` independent products C = A·B, and `steps` of them one after the other, each of which needs the last.

    A is m × k and B is k × n. Of layers, such as `linear` and `conv`, B holds the weights; the products of `gemm`,
    `batched_gemm` and `sparse_gemm` are as their cases state them.
    """

    role: str
    """What it computes, in one word, such as `scores`; empty where the operation is one product."""
    m: int
    n: int
    k: int
    batch: int = 1
    steps: int = 1
    non_zeros: int | None = None
    """Elements of A that are not zero, of each product; None: all of them count."""

    @property
    def repeats(self) -> int:
        """How many products of this size there are."""
        return self.batch * self.steps

    @property
    def multiply_adds(self) -> int:
        """batch · steps · m · n · k, or with the non-zeros in place of m · k."""
        return self.repeats * self.n * (self.m * self.k if self.non_zeros is None else self.non_zeros)
