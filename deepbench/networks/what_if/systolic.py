"""A systolic array: how many cycles a product of matrices takes.

An array has R rows and C columns of multipliers. It keeps one operand, or the sums, in place, and the other two flow
through it. What does not fit is cut into folds, which are computed one after the other:

    folds = ceil(down / R) · ceil(across / C)         cycles = folds · cycles of a fold - 1

| dataflow | stays in place | down | across | flows | cycles of a fold |
|---|---|---|---|---|---|
| `ws` | B, the weights | k | n | m | 2R + C + m - 2 |
| `is` | A, the inputs | k | m | n | 2R + C + n - 2 |
| `os` | C, the outputs | m | n | k | R + C + k - 2 |

These are the cycles that SCALE-Sim 3.0.0 reports without waiting for memory (`make test-simulators` compares them). It
counts from 0, so they are one less than the cycles that pass. The paper of SCALE-Sim (Samajdar et al., ISPASS 2020)
derives them. Zeros take as long as other numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from deepbench.core.lowering import MatrixProduct

Dataflow = Literal["ws", "is", "os"]


@dataclass(frozen=True)
class SystolicArray:
    """One array, or several equal ones that divide the folds of a product and the products of a batch."""

    rows: int
    columns: int
    dataflow: Dataflow
    count: int = 1
    clock_hz: float | None = None
    """None: what the peak of the hardware implies."""

    @property
    def flop_per_cycle(self) -> int:
        """At most: two for each multiplier."""
        return 2 * self.rows * self.columns * self.count

    def folds(self, product: MatrixProduct) -> int:
        """Of one of the products."""
        down, across, _ = self._sizes(product)
        return -(-down // self.rows) * -(-across // self.columns)

    def cycles(self, product: MatrixProduct) -> int:
        """Of all products of a batch and all steps. A step begins when the one before it has ended."""
        fill = self.rows + self.columns - 2 + (0 if self.dataflow == "os" else self.rows)
        *_, flows = self._sizes(product)
        folds = -(-product.batch * self.folds(product) // self.count)
        return product.steps * (folds * (fill + flows) - -(-product.batch // self.count))

    def seconds(self, products: Iterable[MatrixProduct], flop_per_s: float) -> float:
        """Of several products, one after the other, on an array with this peak rate."""
        return sum(map(self.cycles, products)) * self.flop_per_cycle / flop_per_s

    def _sizes(self, product: MatrixProduct) -> tuple[int, int, int]:
        """What lies along the rows of the array, along its columns, and what flows."""
        p = product
        return {"ws": (p.k, p.n, p.m), "is": (p.k, p.m, p.n), "os": (p.m, p.n, p.k)}[self.dataflow]
