"""Layer normalisation, an example of a new operation: bring each row to mean 0 and variance 1, then scale and shift it.

y = (x - mean) / sqrt(variance + EPSILON) * scale + shift, with the mean and the variance of each row. The variance
divides by the number of columns, not by one less. `scale` and `shift` are f32 in every precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepbench.core.op import Comparison, Op
from deepbench.core.precision import BITS, Precision
from deepbench.core.problem import BaseProblem, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays

EPSILON = 1e-5


@dataclass(frozen=True)
class LayerNorm(BaseProblem):
    """Each of the `rows` is normalised over its `columns`."""

    rows: int = size()
    columns: int = size()


class LayerNormOp(Op):
    name = "layer_norm"
    Problem = LayerNorm
    outputs = ("y",)
    weights = ("scale", "shift")
    smoke = (LayerNorm(1, 1), LayerNorm(3, 35), LayerNorm(16, 64))

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are summed in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def result_type(self, case: Case) -> str:
        """`y` has the type of `x`."""
        return case.precision.data

    def operand_bytes(self, case: Case) -> int:
        """Bytes of all arrays."""
        p = case.problem
        size = 2 * p.rows * p.columns * BITS[case.precision.data] + 2 * p.columns * BITS["f32"]
        return int(size // 8)

    def operands(self, case: Case) -> Arrays:
        """Arrays `x` and `y` (rows, columns), `scale` and `shift` (columns)."""
        from deepbench.core import operands

        p, kind = case.problem, case.precision.data
        arrays = {
            "x": operands.random((p.rows, p.columns), kind, stream=0),
            "scale": operands.random((p.columns,), "f32", stream=1),
            "shift": operands.random((p.columns,), "f32", stream=2),
            "y": operands.empty((p.rows, p.columns), kind),
        }
        self.reset(case, arrays)
        return arrays

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """The definition, in float64."""
        import numpy as np

        x, scale, shift = (arrays[name].astype(np.float64) for name in ("x", "scale", "shift"))
        mean = x.mean(axis=1, keepdims=True)
        variance = x.var(axis=1, keepdims=True)
        return {"y": (x - mean) / np.sqrt(variance + EPSILON) * scale + shift}

    def compare(self, case: Case, arrays: Arrays) -> Iterator[Comparison]:
        """Every element, with the tolerance that docs/adding-an-operation.md derives."""
        import numpy as np

        from deepbench.core.tolerance import TOLERANCE_UNITS, storage_error

        want = self.reference(case, arrays)["y"]
        x, scale, shift = (arrays[name].astype(np.float64) for name in ("x", "scale", "shift"))
        deviation = np.sqrt(x.var(axis=1, keepdims=True) + EPSILON)
        z = np.abs(x - x.mean(axis=1, keepdims=True)) / deviation
        size = np.sqrt((x**2).mean(axis=1, keepdims=True)) / deviation
        unit = TOLERANCE_UNITS * case.precision.roundoff
        tolerance = unit * (np.abs(scale) * (size + z * size**2) + np.abs(shift))
        tolerance += storage_error(self.result_type(case), want)
        yield Comparison("every element", arrays["y"].astype(np.float64), want, tolerance, want.size, want.size)

    def flop(self, case: Case) -> int:
        """Seven per element: one for the mean, three for the variance, three to normalise, scale and shift."""
        return int(7 * case.problem.rows * case.problem.columns)


OP = LayerNormOp()
