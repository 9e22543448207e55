"""Batch normalization: bring each channel to mean 0 and variance 1 over all images and pixels, then scale and shift it.

    z = (x - mean) / sqrt(variance + EPSILON)        y = z · scale + shift

With `mode=training`, the mean and the variance are those of the batch and are results, too; the variance divides by the
number of elements (Ioffe, Szegedy, "Batch normalization", 2015). Running averages are not updated. With
`mode=inference`, they are given. The backward pass is that of training: it has the gradient `dy` of y, and the mean and
variance from the forward pass. With g = dy · scale and means over the elements of a channel,

    dx = (g - mean(g) - z · mean(g · z)) / sqrt(variance + EPSILON)
    dscale = sum of dy · z                           dshift = sum of dy

`x`, `y` and their gradients have the type of the data; everything else is f32. They have the axes (n, c, h, w), or
(n, c, d, h, w) if `d` is not 1; with `layout=nhwc` the channels come last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.parts import Expected, Tensor
from deepbench.core.problem import BaseProblem, size
from deepbench.core.rows import EPSILON, STRIP, Normalized, TwoPassOp

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays
    from deepbench.core.precision import Precision

# With the channels last, kernels compute many channels side by side, and add the numbers of each one by one.
LANES = 1


@dataclass(frozen=True)
class BatchNorm(BaseProblem):
    """`n` images with `c` channels of `d` × `h` × `w` elements."""

    n: int = size()
    c: int = size()
    h: int = size()
    w: int = size()
    d: int = size(default=1, omit_default=True)


class BatchNormOp(TwoPassOp):
    name = "batch_norm"
    Problem = BatchNorm
    settings = {"mode": ("inference", "training"), "layout": ("nchw", "nhwc")}  # noqa: RUF012  (ClassVar in Op)
    outputs = ("y", "batch_mean", "batch_variance", "dx", "dscale", "dshift")
    weights = ("scale", "shift")
    sweep_field = "n"
    smoke = (BatchNorm(2, 1, 1, 1), BatchNorm(3, 5, 7, 9), BatchNorm(4, 32, 6, 5), BatchNorm(2, 17, 4, 5, d=3))

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """There is a gradient in training only."""
        return () if direction == "forward" else ("mode",)

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`x`, `y` and their gradients; `scale`, `shift` and the statistics (c)."""
        p = case.problem
        pixels = (p.h, p.w) if p.d == 1 else (p.d, p.h, p.w)
        shape = (p.n, *pixels, p.c) if case.settings["layout"] == "nhwc" else (p.n, p.c, *pixels)
        whole, of_channel = Tensor(shape, case.precision.data), Tensor((p.c,), "f32")
        statistics = dict.fromkeys(("mean", "variance"), of_channel)
        if case.direction == "backward":
            inputs = {"x": whole, "dy": whole, "scale": of_channel, **statistics}
            return {**inputs, "dx": whole, "dscale": of_channel, "dshift": of_channel}
        inputs = {"x": whole, "scale": of_channel, "shift": of_channel}
        if case.settings["mode"] == "inference":
            return {**inputs, **statistics, "y": whole}
        return {**inputs, "y": whole, "batch_mean": of_channel, "batch_variance": of_channel}

    def operands(self, case: Case) -> Arrays:
        """Random numbers; the variances are positive. In the backward pass, the statistics are those of `x`."""
        import numpy as np

        arrays = super().operands(case)
        if case.direction == "backward":
            together = max(16, STRIP * case.problem.c // arrays["x"].size)
            for start in range(0, case.problem.c, together):
                parts = np.arange(start, min(start + together, case.problem.c))
                x = channels(case, arrays["x"], parts)
                arrays["mean"][parts], arrays["variance"][parts] = x.mean(axis=1), x.var(axis=1)
        elif "variance" in arrays:
            arrays["variance"][...] = np.abs(arrays["variance"])
        return arrays

    def parts(self, case: Case) -> int:
        """Channels."""
        return int(case.problem.c)

    def read_twice(self, case: Case) -> int:
        """In inference nothing, because the statistics are given."""
        return 0 if case.settings["mode"] == "inference" and case.direction == "forward" else super().read_twice(case)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """docs/formulas.md derives the tolerances."""
        import numpy as np

        from deepbench.core.tolerance import TOLERANCE_UNITS

        def stored(rows: Array) -> Array:
            """Rows of channels with the axes of the stored array."""
            return like_stored(case, rows)

        def column(name: str) -> Array:
            values: Array = arrays[name][parts].astype(np.float64)[:, None]
            return values

        unit = TOLERANCE_UNITS * case.precision.roundoff
        x, scale = channels(case, arrays["x"], parts), column("scale")
        row = Normalized.of(x, True, LANES)
        if case.direction == "backward":
            dy = channels(case, arrays["dy"], parts)
            dx, error = row.gradient(dy * scale, centered=True)
            yield Expected("dx", self._part(case, arrays["dx"], parts), stored(dx), stored(unit * error))
            yield from _gradients(arrays, parts, row, dy, unit)
            return
        shift = column("shift")
        if case.settings["mode"] == "inference":
            mean, deviation = column("mean"), np.sqrt(column("variance") + EPSILON)
            y = (x - mean) / deviation * scale + shift
            error = np.abs(scale) * (np.abs(x) + np.abs(mean)) / deviation
        else:
            y, error = row.z * scale + shift, np.abs(scale) * row.error
        got = self._part(case, arrays["y"], parts)
        yield Expected("y", got, stored(y), stored(unit * (error + np.abs(shift))))
        if "batch_mean" in arrays:
            square, growth = (x**2).mean(axis=1), unit * row.growth
            yield Expected("batch_mean", arrays["batch_mean"][parts], x.mean(axis=1), unit * np.sqrt(square))
            yield Expected("batch_variance", arrays["batch_variance"][parts], x.var(axis=1), growth * square)

    def _part(self, case: Case, array: Array, parts: Array) -> Array:
        """These channels of a stored array."""
        part: Array = array[..., parts] if case.settings["layout"] == "nhwc" else array[:, parts]
        return part

    def flop(self, case: Case) -> int:
        """Per element: inference 2, training 6, backward 8 (docs/formulas.md)."""
        p = case.problem
        forward = 2 if case.settings["mode"] == "inference" else 6
        return int((forward if case.direction == "forward" else 8) * p.n * p.c * p.d * p.h * p.w)

    def title(self, problem: Any) -> str:
        """`32 × 64 × 56 × 56`: n × c × (d ×) h × w."""
        p = problem
        return " × ".join(map(str, (p.n, p.c, *([p.d] if p.d > 1 else []), p.h, p.w)))


def channels(case: Case, array: Array, parts: Array) -> Array:
    """These channels as rows in float64."""
    import numpy as np

    axis = array.ndim - 1 if case.settings["layout"] == "nhwc" else 1
    rows: Array = np.moveaxis(array, axis, 0)[parts].reshape(parts.size, -1).astype(np.float64)
    return rows


def like_stored(case: Case, rows: Array) -> Array:
    """The inverse of `channels`: rows of channels with the axes of the stored array."""
    import numpy as np

    p = case.problem
    pixels = (p.h, p.w) if p.d == 1 else (p.d, p.h, p.w)
    stored: Array = np.moveaxis(rows.reshape(-1, p.n, *pixels), 0, -1 if case.settings["layout"] == "nhwc" else 1)
    return stored


def _gradients(arrays: Arrays, parts: Array, row: Normalized, dy: Array, unit: float) -> Iterator[Expected]:
    """`dscale` and `dshift`: sums over the elements of each channel."""
    import numpy as np

    size = unit * np.sqrt((dy**2).sum(axis=1))
    errors = np.sqrt((row.z**2).sum(axis=1)) + np.sqrt((row.error**2).sum(axis=1))
    yield Expected("dscale", arrays["dscale"][parts], (dy * row.z).sum(axis=1), size * errors)
    yield Expected("dshift", arrays["dshift"][parts], dy.sum(axis=1), size * np.sqrt(dy.shape[1]))


OP = BatchNormOp()
