"""Layer normalization: bring each row to mean 0 and variance 1, then scale and shift it.

    z = (x - mean) / sqrt(variance + EPSILON)        y = z · scale + shift

The variance divides by the number of columns (Ba, Kiros, Hinton, "Layer normalization", 2016). The backward pass has
the gradient `dy` of y, and the mean and variance of each row from the forward pass. With g = dy · scale and means over
the columns,

    dx = (g - mean(g) - z · mean(g · z)) / sqrt(variance + EPSILON)
    dscale = sum of dy · z over the rows             dshift = sum of dy over the rows

`x`, `y` and their gradients have the type of the data; everything else is f32. Arrays of rows are row-major.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.parts import Expected, PartsOp, Tensor
from deepbench.core.precision import Precision
from deepbench.core.problem import BaseProblem, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

EPSILON = 1e-5


@dataclass(frozen=True)
class LayerNorm(BaseProblem):
    """Each of the `rows` is normalized over its `columns`."""

    rows: int = size()
    columns: int = size()


class LayerNormOp(PartsOp):
    name = "layer_norm"
    Problem = LayerNorm
    directions = ("forward", "backward")
    outputs = ("y", "dx", "dscale", "dshift")
    weights = ("scale", "shift")
    sweep_field = "rows"
    smoke = (LayerNorm(1, 2), LayerNorm(3, 35), LayerNorm(17, 64), LayerNorm(40, 129))

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are summed in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def result_type(self, case: Case) -> str:
        """`y` and `dx` have the type of `x`."""
        return case.precision.data

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`x` and `y` (rows, columns), `scale` and `shift` (columns), `mean` and `variance` (rows), and gradients."""
        p, kind = case.problem, case.precision.data
        whole, of_row, of_column = (
            Tensor((p.rows, p.columns), kind),
            Tensor((p.rows,), "f32"),
            Tensor((p.columns,), "f32"),
        )
        if case.direction == "forward":
            return {"x": whole, "scale": of_column, "shift": of_column, "y": whole}
        inputs = {"x": whole, "dy": whole, "scale": of_column, "mean": of_row, "variance": of_row}
        return {**inputs, "dx": whole, "dscale": of_column, "dshift": of_column}

    def operands(self, case: Case) -> Arrays:
        """Random numbers; the mean and the variance are those of `x`."""
        import numpy as np

        arrays = super().operands(case)
        if case.direction == "backward":
            for start in range(0, case.problem.rows, 1024):
                rows = slice(start, start + 1024)
                x = arrays["x"][rows].astype(np.float64)
                arrays["mean"][rows], arrays["variance"][rows] = x.mean(axis=1), x.var(axis=1)
        return arrays

    def parts(self, case: Case) -> int:
        """Rows."""
        return int(case.problem.rows)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """docs/formulas.md derives the tolerances."""
        import numpy as np

        from deepbench.core.tolerance import TOLERANCE_UNITS

        unit = TOLERANCE_UNITS * case.precision.roundoff
        scale = arrays["scale"].astype(np.float64)
        row = _Rows.of(arrays["x"][parts])
        if case.direction == "forward":
            shift = arrays["shift"].astype(np.float64)
            tolerance = unit * (np.abs(scale) * row.error + np.abs(shift))
            yield Expected("y", arrays["y"][parts], row.z * scale + shift, tolerance)
            return
        dy = arrays["dy"][parts].astype(np.float64)
        g = dy * scale
        mean, product = g.mean(axis=1, keepdims=True), (g * row.z).mean(axis=1, keepdims=True)
        size = np.sqrt((g**2).mean(axis=1, keepdims=True))
        tolerance = unit * (np.abs(g) + size * (1 + np.abs(row.z)) * (1 + row.size**2)) / row.deviation
        yield Expected("dx", arrays["dx"][parts], (g - mean - row.z * product) / row.deviation, tolerance)
        yield from self._sums(arrays, unit)

    def _sums(self, arrays: Arrays, unit: float) -> Iterator[Expected]:
        """The sums over all rows, a few thousand rows at a time."""
        import numpy as np

        columns = arrays["scale"].size
        dscale, dshift, dy2, z2, error2 = np.zeros((5, columns))
        step = max(1, 2**20 // columns)
        for start in range(0, arrays["x"].shape[0], step):
            row = _Rows.of(arrays["x"][start : start + step])
            dy = arrays["dy"][start : start + step].astype(np.float64)
            dscale += np.einsum("ij,ij->j", dy, row.z)
            dshift += dy.sum(axis=0)
            dy2 += np.einsum("ij,ij->j", dy, dy)
            z2 += np.einsum("ij,ij->j", row.z, row.z)
            error2 += (row.error**2).sum(axis=0)
        count = np.sqrt(arrays["x"].shape[0])
        yield Expected("dscale", arrays["dscale"], dscale, unit * np.sqrt(dy2) * (np.sqrt(z2) + np.sqrt(error2)))
        yield Expected("dshift", arrays["dshift"], dshift, unit * np.sqrt(dy2) * count)

    def flop(self, case: Case) -> int:
        """Forward seven per element (docs/adding-an-operation.md counts them); backward fourteen.

        Backward: z takes 2; dscale 2, dshift 1; g 1; mean(g) 1, mean(g · z) 2; dx 5.
        """
        return int((7 if case.direction == "forward" else 14) * case.problem.rows * case.problem.columns)

    def title(self, problem: Any) -> str:
        """`8192 × 1024`: rows × columns."""
        return f"{problem.rows} × {problem.columns}"


@dataclass(frozen=True)
class _Rows:
    """Normalized rows in float64."""

    z: Array
    deviation: Array
    """sqrt(variance + EPSILON), shape (rows, 1)."""
    size: Array
    """Root mean square of x over `deviation`, shape (rows, 1)."""
    error: Array
    """Bound of the error of z, in units of the roundoff of a sum."""

    @classmethod
    def of(cls, rows: Array) -> _Rows:
        import numpy as np

        x = rows.astype(np.float64)
        mean, deviation = x.mean(axis=1, keepdims=True), np.sqrt(x.var(axis=1, keepdims=True) + EPSILON)
        z, size = (x - mean) / deviation, np.sqrt((x**2).mean(axis=1, keepdims=True)) / deviation
        return cls(z, deviation, size, size + np.abs(z) * size**2)


OP = LayerNormOp()
