"""Layer normalisation, as an example of a new op: each row to mean 0 and variance 1, then scaled and shifted.

y = (x - mean) / sqrt(variance + EPSILON) * scale + shift, mean and variance over the columns of a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepbench.core.op import Comparison, Op
from deepbench.core.precision import BITS
from deepbench.core.problem import BaseProblem, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays

EPSILON = 1e-5


@dataclass(frozen=True)
class LayerNorm(BaseProblem):
    """Rows are normalised one by one."""

    rows: int = size()
    columns: int = size()


class LayerNormOp(Op):
    name = "layer_norm"
    Problem = LayerNorm
    outputs = ("y",)
    smoke = (LayerNorm(1, 1), LayerNorm(3, 35), LayerNorm(16, 64))

    def operand_bytes(self, case: Case) -> int:
        p = case.problem
        return (p.rows * p.columns * 2 + 2 * p.columns) * BITS[case.precision.data] // 8

    def operands(self, case: Case) -> Arrays:
        """Arrays `x` and `y` (rows, columns), `scale` and `shift` (columns)."""
        from deepbench.core import operands

        p, kind = case.problem, case.precision.data
        made = {
            "x": operands.random((p.rows, p.columns), kind, stream=0),
            "scale": operands.random((p.columns,), kind, stream=1),
            "shift": operands.random((p.columns,), kind, stream=2),
            "y": operands.empty((p.rows, p.columns), kind),
        }
        self.reset(case, made)
        return made

    def reset(self, case: Case, arrays: Arrays) -> None:
        from deepbench.core.operands import poison

        poison(arrays["y"])

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        import numpy as np

        x, scale, shift = (arrays[name].astype(np.float64) for name in ("x", "scale", "shift"))
        mean = x.mean(axis=1, keepdims=True)
        variance = x.var(axis=1, keepdims=True)
        return {"y": (x - mean) / np.sqrt(variance + EPSILON) * scale + shift}

    def compare(self, case: Case, arrays: Arrays) -> Iterator[Comparison]:
        """Every element. Sums of `columns` rounded terms, and values of up to some units, in the stored type."""
        import numpy as np

        want = self.reference(case, arrays)["y"]
        tolerance = np.full_like(want, 64 * case.precision.roundoff * case.problem.columns)
        yield Comparison("every element", arrays["y"].astype(np.float64), want, tolerance, want.size, want.size)

    def flop(self, case: Case) -> int:
        """Eight for each element: two for the mean, three for the variance, three to normalise, scale and shift."""
        return int(8 * case.problem.rows * case.problem.columns)

    def traffic_bytes(self, case: Case) -> int:
        """x, scale and shift are read once, y is written once."""
        return self.operand_bytes(case)


OP = LayerNormOp()
