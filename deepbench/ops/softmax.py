"""Softmax: the exponentials of each row, divided by their sum.

    y = exp(x - max) / sum of exp(x - max)

with the maximum of the row, so that no exponential overflows. The backward pass has the result `p` of the forward pass
and the gradient `dy` of it:

    dx = p · (dy - sum of p · dy over the columns)

All arrays are row-major and have the type of the data. `x` has numbers in [-4, 4], plus 100 or minus 100 in the whole
row: exp(100) is not an f32, so a kernel that does not subtract the maximum fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from deepbench.core.parts import Expected, Tensor
from deepbench.core.precision import STORAGE_ROUNDOFF
from deepbench.core.rows import TINY, RowsOp, growth_of_squares, strips

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

SPREAD, OFFSET = 4.0, 100.0


class SoftmaxOp(RowsOp):
    name = "softmax"
    outputs = ("y", "dx")

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`x` and `y`; backward `p`, `dy` and `dx`: all (rows, columns)."""
        names = ("x", "y") if case.direction == "forward" else ("p", "dy", "dx")
        return dict.fromkeys(names, self.whole(case))

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """Random numbers: `x` with an offset in each row, `p` positive with the sum 1 in each row."""
        import numpy as np

        from deepbench.core.operands import generator

        super().fill(case, name, array, stream)
        if name == "x":
            offsets = OFFSET * generator(stream=98).choice([-1.0, 1.0], (case.problem.rows, 1))
            for strip in strips(array):
                array[strip] = SPREAD * array[strip].astype(np.float32) + offsets[strip]
        if name == "p":
            for strip in strips(array):
                values = np.exp(SPREAD * array[strip].astype(np.float64))
                array[strip] = values / values.sum(axis=1, keepdims=True)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """docs/formulas.md derives the tolerances."""
        import numpy as np

        from deepbench.core.tolerance import TOLERANCE_UNITS

        unit, tiny = TOLERANCE_UNITS * case.precision.roundoff, TINY[case.precision.data]
        if case.direction == "forward":
            x = arrays["x"][parts].astype(np.float64)
            distance = x.max(axis=1, keepdims=True) - x
            y = np.exp(-distance)
            of_sum = np.sqrt((y**2).mean(axis=1, keepdims=True)) / y.mean(axis=1, keepdims=True)
            of_sum *= growth_of_squares(x.shape[1])
            y /= y.sum(axis=1, keepdims=True)
            # Libraries store the exponentials in the type of y before they divide by the sum.
            tolerance = y * (unit * (1 + distance / 4 + of_sum) + STORAGE_ROUNDOFF[case.precision.data]) + tiny
            yield Expected("y", arrays["y"][parts], y, tolerance)
            return
        p, dy = (arrays[name][parts].astype(np.float64) for name in ("p", "dy"))
        product = (p * dy).sum(axis=1, keepdims=True)
        sizes = np.sqrt((p**2).sum(axis=1, keepdims=True) * (dy**2).sum(axis=1, keepdims=True))
        yield Expected("dx", arrays["dx"][parts], p * (dy - product), unit * p * (np.abs(dy) + sizes) + tiny)

    def flop(self, case: Case) -> int:
        """Per element: forward 5, with one for the exponential; backward 4 (docs/formulas.md)."""
        return int((5 if case.direction == "forward" else 4) * case.problem.rows * case.problem.columns)


OP = SoftmaxOp()
