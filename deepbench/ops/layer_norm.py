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
from typing import TYPE_CHECKING

from deepbench.core.parts import Expected, Tensor
from deepbench.core.rows import EPSILON, Normalized, RowsOp, gradients_of_parameters, strips

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays


class LayerNormOp(RowsOp):
    name = "layer_norm"
    outputs = ("y", "dx", "dscale", "dshift")
    weights = ("scale", "shift")

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`x` and `y` (rows, columns), `scale` and `shift` (columns), `mean` and `variance` (rows), and gradients."""
        whole, of_row = self.whole(case), Tensor((case.problem.rows,), "f32")
        of_column = Tensor((case.problem.columns,), "f32")
        if case.direction == "forward":
            return {"x": whole, "scale": of_column, "shift": of_column, "y": whole}
        inputs = {"x": whole, "dy": whole, "scale": of_column, "mean": of_row, "variance": of_row}
        return {**inputs, "dx": whole, "dscale": of_column, "dshift": of_column}

    def operands(self, case: Case) -> Arrays:
        """Random numbers; the mean and the variance are those of `x`."""
        import numpy as np

        arrays = super().operands(case)
        if case.direction == "backward":
            for strip in strips(arrays["x"]):
                x = arrays["x"][strip].astype(np.float64)
                arrays["mean"][strip], arrays["variance"][strip] = x.mean(axis=1), x.var(axis=1)
        return arrays

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """docs/formulas.md derives the tolerances."""
        import numpy as np

        from deepbench.core.tolerance import TOLERANCE_UNITS

        unit = TOLERANCE_UNITS * case.precision.roundoff
        scale = arrays["scale"].astype(np.float64)
        row = Normalized.of(arrays["x"][parts], centered=True)
        if case.direction == "forward":
            shift = arrays["shift"].astype(np.float64)
            tolerance = unit * (np.abs(scale) * row.error + np.abs(shift))
            yield Expected("y", arrays["y"][parts], row.z * scale + shift, tolerance)
            return
        dx, error = row.gradient(arrays["dy"][parts].astype(np.float64) * scale, centered=True)
        yield Expected("dx", arrays["dx"][parts], dx, unit * error)
        deviation = np.sqrt(arrays["variance"].astype(np.float64) + EPSILON)
        yield from gradients_of_parameters(arrays, parts, deviation, unit)

    def flop(self, case: Case) -> int:
        """Per element: forward 7, backward 13 (docs/formulas.md)."""
        return int((7 if case.direction == "forward" else 13) * case.problem.rows * case.problem.columns)


OP = LayerNormOp()
