"""RMS normalization: divide each row by its root mean square, then scale it.

    z = x / sqrt(mean square + EPSILON)              y = z · scale

There is no mean to subtract and no shift (Zhang, Sennrich, "Root mean square layer normalization", 2019). The backward
pass has the gradient `dy` of y, and the mean square of each row from the forward pass. With g = dy · scale and means
over the columns,

    dx = (g - z · mean(g · z)) / sqrt(mean square + EPSILON)
    dscale = sum of dy · z over the rows

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


class RMSNormOp(RowsOp):
    name = "rms_norm"
    outputs = ("y", "dx", "dscale")
    weights = ("scale",)

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`x` and `y` (rows, columns), `scale` (columns), `mean_square` (rows), and gradients."""
        whole, of_column = self.whole(case), Tensor((case.problem.columns,), "f32")
        if case.direction == "forward":
            return {"x": whole, "scale": of_column, "y": whole}
        inputs = {"x": whole, "dy": whole, "scale": of_column, "mean_square": Tensor((case.problem.rows,), "f32")}
        return {**inputs, "dx": whole, "dscale": of_column}

    def operands(self, case: Case) -> Arrays:
        """Random numbers; the mean square is that of `x`."""
        import numpy as np

        arrays = super().operands(case)
        if case.direction == "backward":
            for strip in strips(arrays["x"]):
                arrays["mean_square"][strip] = (arrays["x"][strip].astype(np.float64) ** 2).mean(axis=1)
        return arrays

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """docs/formulas.md derives the tolerances."""
        import numpy as np

        from deepbench.core.tolerance import TOLERANCE_UNITS

        unit = TOLERANCE_UNITS * case.precision.roundoff
        scale = arrays["scale"].astype(np.float64)
        row = Normalized.of(arrays["x"][parts], centered=False)
        if case.direction == "forward":
            yield Expected("y", arrays["y"][parts], row.z * scale, unit * np.abs(scale) * row.error)
            return
        dx, error = row.gradient(arrays["dy"][parts].astype(np.float64) * scale, centered=False)
        yield Expected("dx", arrays["dx"][parts], dx, unit * error)
        deviation = np.sqrt(arrays["mean_square"].astype(np.float64) + EPSILON)
        yield from gradients_of_parameters(arrays, parts, deviation, unit)

    def flop(self, case: Case) -> int:
        """Per element: forward 4, backward 9 (docs/formulas.md)."""
        return int((4 if case.direction == "forward" else 9) * case.problem.rows * case.problem.columns)


OP = RMSNormOp()
