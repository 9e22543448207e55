"""Tools to check products: bounds of rounding errors, the initial C of products that add to it, random projections."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from deepbench.core.operands import Array, draw, poison
from deepbench.core.precision import STORAGE_ROUNDOFF, Precision

# Number of elements to recompute individually, and the minimum if each is a long sum with operands far apart in memory.
SAMPLED_ELEMENTS, LEAST_SAMPLED_ELEMENTS = 512, 16
SAMPLED_PRODUCTS = 2**23

# Tolerance of one element, in units of roundoff · |row of A| · |column of B|. With random signs, the rounding errors of
# k additions grow like a random walk to about 0.7 units for every k. Sixteen units cover every order of summation and
# are, at k = 2560, still 300 times smaller than one missing product.
# Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41(5), 2019.
TOLERANCE_UNITS = 16.0
# Half the distance between the smallest numbers of f16, twice: a library may store a value in between.
F16_SMALL = 2 * 2.0**-25
# Safety factor for a projection, in which n errors with random signs add like the root of their sum of squares.
PROJECTION_SAFETY = 4.0


def sum_roundoff(precision: Precision, products: float) -> float:
    """Roundoff of a sum of `products` products, in units of |row of A| · |column of B|.

    If operands are truncated, multiplication adds errors with random signs: their sum is the root of the sum of squares
    of the products, which for operands like ours is |a|·|b| / √products.
    """
    return precision.roundoff + precision.operand_roundoff / math.sqrt(products)


def sampled_elements(products: int) -> int:
    """Number of elements to recompute individually, if each is a sum of `products` products."""
    return max(LEAST_SAMPLED_ELEMENTS, min(SAMPLED_ELEMENTS, SAMPLED_PRODUCTS // products))


def storage_error(type_name: str, values: Array) -> Array | float:
    """Bound of the error of storing these values in a type."""
    roundoff = STORAGE_ROUNDOFF[type_name]
    return roundoff * np.abs(values) if roundoff else 0.0  # 0 times infinity would be NaN


class Matrix(Protocol):
    """A two-dimensional array, or what computes its elements when they are needed."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    def __getitem__(self, index: Any) -> Array:
        """A block: a slice of the rows, or slices of the rows and the columns."""


def project(left: Array, matrix: Matrix) -> tuple[Array, Array]:
    """`left @ matrix` and the sum of squares of each column, in float64; works in strips that fit a cache."""
    total, squares = np.zeros((2, matrix.shape[1]))
    step = max(1, 2**17 // max(1, matrix.shape[1]))  # 1 MiB of float64
    with np.errstate(invalid="ignore"):  # poison is NaN, and must remain visible in the result
        for start in range(0, matrix.shape[0], step):
            strip = matrix[start : start + step].astype(np.float64)
            total += left[start : start + step] @ strip
            squares += np.einsum("ij,ij->j", strip, strip)
    return total, squares


@dataclass(frozen=True)
class InitialC:
    """The contents of C, stored as (n, m), before a product: C₀ = u·1ᵀ + 1·vᵀ with random integer vectors u and v.

    The elements of C₀ differ, are exact in every result type, and can be recomputed without a second copy of C. With
    beta = 0 the product does not add to C: `is_added` is False and C is poisoned.
    """

    rows: Array
    columns: Array
    is_added: bool

    @classmethod
    def make(cls, m: int, n: int, beta: str) -> InitialC:
        """The same values for the same sizes; `beta` is `1` or `0`."""
        return cls(draw(m, "s32", stream=3), draw(n, "s32", stream=4), beta == "1")

    def fill(self, c: Array) -> None:
        """Write C₀, or poison, into C."""
        if self.is_added:
            np.add(self.rows[None, :], self.columns[:, None], out=c, casting="unsafe")
        else:
            poison(c)

    def elements(self, i: Array, j: Array) -> Array:
        """C₀ at rows `i` and columns `j` (broadcast), in float64; 0 if C is not added to."""
        sums: Array = self.rows[i].astype(np.float64) + self.columns[j]
        return sums * self.is_added

    def full(self) -> Array:
        """C₀ with shape (n, m), in float64; 0 if C is not added to."""
        return self.elements(np.arange(self.rows.size)[None, :], np.arange(self.columns.size)[:, None])

    def rounding(self, kind: str, products: Array) -> Array | float:
        """Bound of the error of storing elements of A·B in the type of C before C₀ is added.

        cuBLAS does this with 16-bit types, even if it adds the products in f32.
        """
        return storage_error(kind, products) if self.is_added else 0.0

    def projection(self, signs: Array) -> Array:
        """C₀·signs with shape (m,), in float64; 0 if C is not added to."""
        sums: Array = signs.sum() * self.rows.astype(np.float64) + signs @ self.columns.astype(np.float64)
        return sums * self.is_added
