"""Standardization, an example of a new operation: bring each row to mean 0 and variance 1.

y = (x - mean) / sqrt(variance + EPSILON), with the mean and the variance of each row. The variance divides by the
number of columns, not by one less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepbench.core.parts import Expected, PartsOp, Tensor
from deepbench.core.precision import Precision
from deepbench.core.problem import BaseProblem, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

EPSILON = 1e-5


@dataclass(frozen=True)
class Standardize(BaseProblem):
    """Each of the `rows` is brought to mean 0 and variance 1 over its `columns`."""

    rows: int = size()
    columns: int = size()


class StandardizeOp(PartsOp):
    name = "standardize"
    Problem = Standardize
    outputs = ("y",)
    smoke = (Standardize(1, 1), Standardize(3, 35), Standardize(16, 64))

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are summed in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def result_type(self, case: Case) -> str:
        """`y` has the type of `x`."""
        return case.precision.data

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`x` and `y` (rows, columns), row-major."""
        whole = Tensor((case.problem.rows, case.problem.columns), case.precision.data)
        return {"x": whole, "y": whole}

    def parts(self, case: Case) -> int:
        """Rows."""
        return int(case.problem.rows)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """The definition in float64, with the tolerance that docs/adding-an-operation.md derives."""
        import numpy as np

        from deepbench.core.tolerance import TOLERANCE_UNITS

        x = arrays["x"][parts].astype(np.float64)
        deviation = np.sqrt(x.var(axis=1, keepdims=True) + EPSILON)
        z = (x - x.mean(axis=1, keepdims=True)) / deviation
        q = np.sqrt((x**2).mean(axis=1, keepdims=True)) / deviation
        unit = TOLERANCE_UNITS * case.precision.roundoff
        yield Expected("y", arrays["y"][parts], z, unit * (q + np.abs(z) * q**2))

    def flop(self, case: Case) -> int:
        """Five per element: one for the mean, three for the variance, one to divide."""
        return int(5 * case.problem.rows * case.problem.columns)


OP = StandardizeOp()
