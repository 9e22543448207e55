"""Group normalization: bring the channels of each group of each image to mean 0 and variance 1, then scale and shift.

    z = (x - mean) / sqrt(variance + EPSILON)        y = z · scale + shift

The mean and the variance are those of a group of c / groups channels in one image; the variance divides by the number
of elements (Wu, He, "Group normalization", 2018). Each channel has its own scale and shift. The backward pass has the
gradient `dy` of y, and the mean and variance of each group from the forward pass. With g = dy · scale and means over a
group,

    dx = (g - mean(g) - z · mean(g · z)) / sqrt(variance + EPSILON)
    dscale = sum of dy · z over images and pixels    dshift = sum of dy over images and pixels

`x`, `y` and their gradients have the type of the data and the axes (n, c, h, w); everything else is f32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput
from deepbench.core.parts import Expected, Tensor
from deepbench.core.problem import BaseProblem, size
from deepbench.core.rows import (
    EPSILON,
    LEAST_SAMPLED,
    SAMPLED_ELEMENTS,
    Normalized,
    TwoPassOp,
    error_of_z,
    growth_of_squares,
    strips,
)

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays


@dataclass(frozen=True)
class GroupNorm(BaseProblem):
    """`n` images with `c` channels of `h` × `w` elements; the channels are divided into `groups`."""

    n: int = size()
    c: int = size()
    h: int = size()
    w: int = size()
    groups: int = size()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.c % self.groups:
            raise BadInput(f"c must be a multiple of groups, found c={self.c} and groups={self.groups}")


class GroupNormOp(TwoPassOp):
    name = "group_norm"
    Problem = GroupNorm
    outputs = ("y", "dx", "dscale", "dshift")
    weights = ("scale", "shift")
    sweep_field = "n"
    smoke = (GroupNorm(1, 2, 1, 1, 1), GroupNorm(3, 6, 5, 7, 2), GroupNorm(2, 32, 6, 5, 8), GroupNorm(2, 5, 3, 11, 5))

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`x`, `y` and their gradients (n, c, h, w); `scale`, `shift` (c); `mean` and `variance` (n, groups)."""
        p = case.problem
        whole, of_channel = Tensor((p.n, p.c, p.h, p.w), case.precision.data), Tensor((p.c,), "f32")
        if case.direction == "forward":
            return {"x": whole, "scale": of_channel, "shift": of_channel, "y": whole}
        statistics = dict.fromkeys(("mean", "variance"), Tensor((p.n, p.groups), "f32"))
        inputs = {"x": whole, "dy": whole, "scale": of_channel, **statistics}
        return {**inputs, "dx": whole, "dscale": of_channel, "dshift": of_channel}

    def operands(self, case: Case) -> Arrays:
        """Random numbers; the mean and the variance are those of `x`."""
        import numpy as np

        arrays = super().operands(case)
        if case.direction == "backward":
            rows = arrays["x"].reshape(self.parts(case), -1)
            mean, variance = (arrays[name].reshape(-1) for name in ("mean", "variance"))
            for strip in strips(rows):
                x = rows[strip].astype(np.float64)
                mean[strip], variance[strip] = x.mean(axis=1), x.var(axis=1)
        return arrays

    def parts(self, case: Case) -> int:
        """Groups of all images."""
        return int(case.problem.n * case.problem.groups)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """As for layer normalization: docs/formulas.md derives the tolerances. A part is a row of its elements."""
        import numpy as np

        from deepbench.core.tolerance import TOLERANCE_UNITS

        p, unit = case.problem, TOLERANCE_UNITS * case.precision.roundoff
        count = self.parts(case)

        def rows(name: str) -> Array:
            part: Array = arrays[name].reshape(count, -1)[parts]
            return part

        def of_channels(name: str) -> Array:
            """The numbers of the channels of each part, for each of its elements."""
            numbers = arrays[name].astype(np.float64).reshape(p.groups, -1)[parts % p.groups]
            return np.repeat(numbers, p.h * p.w, axis=1)

        def output(name: str, want: Array, tolerance: Array) -> Expected:
            shape = arrays[name].shape if parts.size == count else want.shape
            return Expected(name, rows(name).reshape(shape), want.reshape(shape), tolerance.reshape(shape))

        row, scale = Normalized.of(rows("x"), centered=True), of_channels("scale")
        if case.direction == "forward":
            shift = of_channels("shift")
            tolerance = unit * (np.abs(scale) * row.error + np.abs(shift))
            yield output("y", row.z * scale + shift, tolerance)
            return
        dx, error = row.gradient(rows("dy").astype(np.float64) * scale, centered=True)
        yield output("dx", dx, unit * error)
        yield from self._gradients(case, arrays, parts, unit)

    def _gradients(self, case: Case, arrays: Arrays, parts: Array, unit: float) -> Iterator[Expected]:
        """`dscale` and `dshift`: sums over the images and pixels of each channel, or of a sample of the channels."""
        import numpy as np

        from deepbench.core.operands import generator

        p = case.problem
        chosen = np.arange(p.c)
        if parts.size < self.parts(case):
            sampled = max(LEAST_SAMPLED, SAMPLED_ELEMENTS // (p.n * p.h * p.w))
            chosen = np.unique([0, p.c - 1, *generator(stream=97).integers(0, p.c, sampled)])
        growth = growth_of_squares(p.c // p.groups * p.h * p.w)
        deviations = np.sqrt(arrays["variance"].astype(np.float64) + EPSILON)
        dscale, dshift, of_scale, of_shift = np.zeros((4, chosen.size))
        for at, channel in enumerate(chosen):
            x, dy = (arrays[name][:, channel].reshape(p.n, -1).astype(np.float64) for name in ("x", "dy"))
            group = channel // (p.c // p.groups)
            mean, over = arrays["mean"][:, group, None].astype(np.float64), deviations[:, group, None]
            z = (x - mean) / over
            error = error_of_z(z, 1 + (mean / over) ** 2, growth, centered=True)
            dscale[at], dshift[at] = (dy * z).sum(), dy.sum()
            size = unit * np.sqrt((dy**2).sum())
            of_scale[at] = size * (np.sqrt((z**2).sum()) + np.sqrt((error**2).sum()))
            of_shift[at] = size * np.sqrt(dy.size)
        yield Expected("dscale", arrays["dscale"][chosen], dscale, of_scale)
        yield Expected("dshift", arrays["dshift"][chosen], dshift, of_shift)

    def flop(self, case: Case) -> int:
        """Per element: forward 6, backward 8, as for batch normalization (docs/formulas.md)."""
        p = case.problem
        return int((6 if case.direction == "forward" else 8) * p.n * p.c * p.h * p.w)

    def title(self, problem: Any) -> str:
        """`2 × 320 × 64 × 64, 32 groups`: n × c × h × w."""
        p = problem
        return f"{p.n} × {p.c} × {p.h} × {p.w}, {p.groups} group{'s' * (p.groups > 1)}"


OP = GroupNormOp()
