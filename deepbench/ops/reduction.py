"""Reduction: the sum, the mean or the largest number of each row or column of a matrix.

`axis` is the axis that disappears: with `axis=columns`, y has one number per row; with `axis=rows`, one per column.
The matrix is row-major. y has the type of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deepbench.core.parts import Expected, PartsOp, Tensor
from deepbench.core.precision import Precision
from deepbench.core.problem import BaseProblem, choice, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays


@dataclass(frozen=True)
class Reduction(BaseProblem):
    """A matrix of `rows` and `columns`."""

    kind: str = choice("sum", "mean", "max")
    rows: int = size()
    columns: int = size()
    axis: str = choice("columns", "rows", default="columns")


class ReductionOp(PartsOp):
    name = "reduction"
    Problem = Reduction
    outputs = ("y",)
    sweep_field = "rows"
    smoke = (
        Reduction("sum", 1, 1),
        Reduction("sum", 3, 35),
        Reduction("mean", 17, 64),
        Reduction("max", 40, 129),
        Reduction("sum", 41, 67, "rows"),
        Reduction("max", 5, 1003, "rows"),
        Reduction("mean", 130, 33, "rows"),
    )

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are summed in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def result_type(self, case: Case) -> str:
        """`y` has the type of `x`."""
        return case.precision.data

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`x` (rows, columns) and `y`."""
        p, kind = case.problem, case.precision.data
        return {"x": Tensor((p.rows, p.columns), kind), "y": Tensor((self.parts(case),), kind)}

    def parts(self, case: Case) -> int:
        """Numbers of the result."""
        return int(case.problem.rows if case.problem.axis == "columns" else case.problem.columns)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """The tolerance is that of a product with a vector of ones; the largest number is exact."""
        import numpy as np

        from deepbench.core.tolerance import TOLERANCE_UNITS

        x = arrays["x"] if case.problem.axis == "columns" else arrays["x"].T
        want, tolerance = np.zeros((2, parts.size))
        step = max(1, 2**20 // x.shape[1])
        for start in range(0, parts.size, step):
            chosen = slice(start, start + step)
            values = x[parts[chosen]].astype(np.float64)
            if case.problem.kind == "max":
                want[chosen] = values.max(axis=1)
                continue
            divisor = values.shape[1] if case.problem.kind == "mean" else 1
            want[chosen] = values.sum(axis=1) / divisor
            norms = np.sqrt(np.einsum("ij,ij->i", values, values) * values.shape[1])
            tolerance[chosen] = TOLERANCE_UNITS * case.precision.roundoff * norms / divisor
        yield Expected("y", arrays["y"][parts], want, tolerance)

    def flop(self, case: Case) -> int:
        """One per element; the division by the number of elements is not counted."""
        return int(case.problem.rows * case.problem.columns)

    def smallest(self, case: Case) -> BaseProblem:
        """Two numbers: libraries refuse a reduction of one."""
        rows = 2 if case.problem.axis == "rows" else 1
        smallest: BaseProblem = replace(case.problem, rows=rows, columns=3 - rows)
        return smallest

    def title(self, problem: Any) -> str:
        """`sum of 8192 × 1024`: of each row; `sum of 8192 × 1024 over rows`: of each column."""
        over = " over rows" if problem.axis == "rows" else ""
        return f"{problem.kind} of {problem.rows} × {problem.columns}{over}"


OP = ReductionOp()
