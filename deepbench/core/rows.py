"""What normalizations and softmax share: parts that a kernel passes over twice, and normalized rows with their errors.

The parts of layer normalization, RMS normalization and softmax are the rows of a matrix. Those of batch normalization
are channels; seen as a matrix with a row for each channel, its formulas are the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.parts import Expected, PartsOp, Tensor
from deepbench.core.precision import Precision
from deepbench.core.problem import BaseProblem, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# Added to the variance or the mean square, so that a row of equal numbers is not divided by zero. It is the default of
# PyTorch for layer and batch normalization, and that of Llama for RMS normalization.
EPSILON = 1e-5

# The smallest normal number of each type: smaller results may be rounded to zero.
TINY = {"f32": 2.0**-126, "bf16": 2.0**-126, "f16": 2.0**-14}

# Elements that are computed together in float64: 8 MiB.
STRIP = 2**20

# Numbers of a row that kernels add side by side, because they are next to each other in memory.
LANES = 16

# All sums are in f32.
F32_ROUNDOFF = 2.0**-24

# Of the sums over all rows of a large problem, so many columns are checked, or as many as have so many elements.
LEAST_SAMPLED, SAMPLED_ELEMENTS = 16, 2**20


@dataclass(frozen=True)
class Rows(BaseProblem):
    """A row-major matrix; each of the `rows` is computed from its `columns`."""

    rows: int = size()
    columns: int = size()


class TwoPassOp(PartsOp):
    """An operation that passes over each part twice: for sums or a maximum of the part, then for its elements."""

    directions = ("forward", "backward")

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are summed in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def result_type(self, case: Case) -> str:
        """Results and their gradients have the type of the data."""
        return case.precision.data

    def read_twice(self, case: Case) -> int:
        """Bytes of the inputs that the second pass needs again: those that are as large as the result."""
        tensors = self.tensors(case)
        largest = max(tensor.size for tensor in tensors.values())
        return sum(t.bytes for name, t in tensors.items() if t.size == largest and name not in self.outputs)

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """Every array once. Of a part that does not fit into the level, the rest crosses again in the second pass."""
        least = super().traffic_bytes(case, capacity)
        if capacity is None or not least:
            return least
        parts = self.parts(case)
        return least + parts * max(0, self.read_twice(case) // parts - capacity)


class RowsOp(TwoPassOp):
    """A `TwoPassOp` whose parts are the rows of a matrix."""

    Problem = Rows
    sweep_field = "rows"
    smoke = (Rows(1, 2), Rows(3, 35), Rows(17, 64), Rows(40, 129))

    def whole(self, case: Case) -> Tensor:
        """The matrix."""
        return Tensor((case.problem.rows, case.problem.columns), case.precision.data)

    def parts(self, case: Case) -> int:
        """Rows."""
        return int(case.problem.rows)

    def title(self, problem: Any) -> str:
        """`8192 × 1024`: rows × columns."""
        return f"{problem.rows} × {problem.columns}"


@dataclass(frozen=True)
class Normalized:
    """Normalized rows in float64: z = (x - mean) / deviation, or x / deviation if they are not centered."""

    z: Array
    deviation: Array
    """sqrt(variance + EPSILON), or sqrt(mean square + EPSILON); shape (rows, 1)."""
    size: Array
    """Root mean square of x over `deviation`, shape (rows, 1)."""
    error: Array
    """Bound of the error of z, in units of the roundoff of a sum. docs/formulas.md derives it."""
    growth: float
    """See `growth_of_squares`."""

    @classmethod
    def of(cls, rows: Array, centered: bool, lanes: int = LANES) -> Normalized:
        """These rows, normalized with their own statistics, in kernels that add so many numbers side by side."""
        import numpy as np

        x = rows.astype(np.float64)
        square = (x**2).mean(axis=1, keepdims=True)
        mean = x.mean(axis=1, keepdims=True) if centered else 0.0
        deviation = np.sqrt((x.var(axis=1, keepdims=True) if centered else square) + EPSILON)
        z, size = (x - mean) / deviation, np.sqrt(square) / deviation
        growth = growth_of_squares(x.shape[1], lanes)
        return cls(z, deviation, size, error_of_z(z, size**2, growth, centered), growth)

    def gradient(self, g: Array, centered: bool) -> tuple[Array, Array]:
        """The gradient of x from the gradient `g` of z, and the bound of its error in units of a sum's roundoff."""
        import numpy as np

        mean = g.mean(axis=1, keepdims=True) if centered else 0.0
        product = (g * self.z).mean(axis=1, keepdims=True)
        size = np.sqrt((g**2).mean(axis=1, keepdims=True))
        error = (np.abs(g) + size * (1 + np.abs(self.z)) * (1 + self.growth * self.size**2)) / self.deviation
        return (g - mean - self.z * product) / self.deviation, error


def error_of_z(z: Array, size2: Array, growth: float, centered: bool) -> Array:
    """Bound of the error of a normalized number in units of a sum's roundoff; `size2` is the row's `size` squared."""
    import numpy as np

    error: Array = np.sqrt(size2) * centered + np.abs(z) * size2 * growth
    return error


def growth_of_squares(count: int, lanes: int = LANES) -> float:
    """How many times the tolerance of other sums a sum of so many positive numbers needs (docs/formulas.md)."""
    one_by_one = count / lanes
    lost = one_by_one * math.sqrt(one_by_one * F32_ROUNDOFF) / 400  # numbers far below the last bit of a large sum
    return max(1.0, math.sqrt(count) / (4 * lanes) + lost)


def strips(array: Array) -> Iterator[slice]:
    """Slices of the first axis with at most `STRIP` elements, if a row has no more."""
    step = max(1, STRIP * array.shape[0] // array.size)
    yield from (slice(start, start + step) for start in range(0, array.shape[0], step))


def gradients_of_parameters(arrays: Arrays, parts: Array, deviation: Array, unit: float) -> Iterator[Expected]:
    """`dscale` and, if rows have a `mean`, `dshift`: sums over all rows, with `unit` as the roundoff of a sum.

    `deviation` (rows) is what the centered rows are divided by. If `parts` are only some of the rows, a sample of the
    columns is computed, too.
    """
    import numpy as np

    from deepbench.core.operands import generator

    rows, columns = arrays["x"].shape
    chosen = np.arange(columns)
    if parts.size < rows:
        sampled = generator(stream=97).integers(0, columns, max(LEAST_SAMPLED, SAMPLED_ELEMENTS // rows))
        chosen = np.unique([0, columns - 1, *sampled])
    centered = "mean" in arrays
    dscale, dshift, dy2, z2, error2 = np.zeros((5, chosen.size))
    step = max(1, STRIP // chosen.size)
    for strip in (slice(start, start + step) for start in range(0, rows, step)):
        x, dy = (arrays[name][strip][:, chosen].astype(np.float64) for name in ("x", "dy"))
        mean = arrays["mean"][strip].astype(np.float64)[:, None] if centered else 0.0
        over = deviation[strip][:, None]
        z, size2 = (x - mean) / over, 1 + (mean / over) ** 2
        dscale += (dy * z).sum(axis=0)
        dshift += dy.sum(axis=0)
        dy2 += (dy**2).sum(axis=0)
        z2 += (z**2).sum(axis=0)
        error2 += (error_of_z(z, size2, growth_of_squares(columns), centered) ** 2).sum(axis=0)
    yield Expected("dscale", arrays["dscale"][chosen], dscale, unit * np.sqrt(dy2) * (np.sqrt(z2) + np.sqrt(error2)))
    if centered:
        yield Expected("dshift", arrays["dshift"][chosen], dshift, unit * np.sqrt(dy2 * rows))
