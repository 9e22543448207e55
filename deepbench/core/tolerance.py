"""What products that add to C share: the C they find, the error of rounded sums, and a check by one random sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepbench.core.operands import draw, poison
from deepbench.core.precision import STORING, Precision

# Elements computed alone; fewer where each is a long sum, as their operands lie far apart in memory.
SAMPLED_ELEMENTS, LEAST_SAMPLED_ELEMENTS = 512, 16
SAMPLED_PRODUCTS = 2**23

# Allowed error of one element, in units of roundoff · |a row| · |b column|. With random signs the rounding errors
# of k additions grow like a random walk to about 0.7 of that unit, whatever k is; sixteen leaves room for every
# order of summation and is, at k = 2560, still 300 times smaller than one forgotten product.
# Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41(5), 2019.
TOLERANCE_UNITS = 16.0
# A projection adds n such errors with random signs: their root of the sum of squares, times this for safety.
PROJECTION_SAFETY = 4.0


def sum_roundoff(precision: Precision, products: float) -> float:
    """The roundoff of a sum of so many products, in units of |a row| · |b column|.

    Of adding; and of multiplying, where operands are cut: those errors have random signs, so their sum grows with the
    root of the sum of squares of the products, which is |a|·|b|/√k for operands like ours.
    """
    return precision.roundoff + precision.operand_roundoff / math.sqrt(products)


def sampled_elements(products: int) -> int:
    """How many elements to compute alone, each a sum of so many products."""
    return max(LEAST_SAMPLED_ELEMENTS, min(SAMPLED_ELEMENTS, SAMPLED_PRODUCTS // products))


def storing(type_name: str, sizes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | float:
    """What rounding results of these sizes to their stored type may change."""
    share = STORING[type_name]
    return share * np.abs(sizes) if share else 0.0  # an infinite size would give NaN


def project(
    left: np.ndarray[Any, Any], matrix: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """`left @ matrix` and the sum of squares of each column, in float64, a cache-sized strip at a time."""
    total, squares = np.zeros((2, matrix.shape[1]))
    step = max(1, 2**17 // matrix.shape[1])  # 1 MiB of float64
    with np.errstate(invalid="ignore"):  # poison that was not overwritten is NaN, and must show as such
        for start in range(0, matrix.shape[0], step):
            strip = matrix[start : start + step].astype(np.float64)
            total += left[start : start + step] @ strip
            squares += np.einsum("ij,ij->j", strip, strip)
    return total, squares


@dataclass(frozen=True)
class Start:
    """What is in C, stored as (n, m), before a product is added: C₀ = u·1ᵀ + 1·vᵀ for random integers u and v.

    Elements of such a C differ, are exact in every result type, and one element or a whole projection of it can be had
    again without a second copy of C. With beta = 0 nothing is added to: `added` is False, and C is poison.
    """

    rows: np.ndarray[Any, Any]
    columns: np.ndarray[Any, Any]
    added: bool

    @classmethod
    def make(cls, m: int, n: int, beta: str) -> Start:
        """The same bits for the same sizes; `beta` is `1` or `0`."""
        return cls(draw(m, "s32", stream=3), draw(n, "s32", stream=4), beta == "1")

    def fill(self, c: np.ndarray[Any, Any]) -> None:
        """Put it into C."""
        if self.added:
            np.add(self.rows[None, :], self.columns[:, None], out=c, casting="unsafe")
        else:
            poison(c)

    def elements(self, i: np.ndarray[Any, Any], j: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """C₀ in rows `i` and columns `j`, which broadcast as indices do; float64."""
        sums: np.ndarray[Any, Any] = self.rows[i].astype(np.float64) + self.columns[j]
        return sums * self.added

    def whole(self) -> np.ndarray[Any, Any]:
        """C₀ as (n, m); float64."""
        return self.elements(np.arange(self.rows.size)[None, :], np.arange(self.columns.size)[:, None])

    def projection(self, signs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """C₀·signs, of length m; float64."""
        sums: np.ndarray[Any, Any] = signs.sum() * self.rows.astype(np.float64) + signs @ self.columns.astype(
            np.float64
        )
        return sums * self.added
