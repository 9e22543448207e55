"""Upsampling by nearest neighbour: each pixel of each channel becomes a square of `scale` × `scale` equal ones.

    y[n, c, i, j] = x[n, c, ⌊i / scale⌋, ⌊j / scale⌋]

With `add=yes` a second image `z` of the size of y is added, as feature pyramids do (Lin et al., "Feature pyramid
networks for object detection", 2017). The backward pass has the gradient `dy` of y and computes that of x, the sum over
each square; that of z is dy itself. Everything has the type of the data. Layouts are as in convolutions: (n, c, h, w),
with `layout=nhwc` (n, h, w, c); `layout=any` as the convolutions of a library leave them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from deepbench.core.parts import Expected, PartsOp, Tensor
from deepbench.core.precision import STORAGE_ROUNDOFF, Precision
from deepbench.core.problem import BaseProblem, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

LARGEST_SCALE = 64

# Roundoffs of a sum whose partial sums are rounded to 16 bits.
PARTIAL_SUMS = 2


@dataclass(frozen=True)
class Upsample(BaseProblem):
    """`n` images of `c` channels with h × w pixels become (scale · h) × (scale · w)."""

    n: int = size()
    c: int = size()
    h: int = size()
    w: int = size()
    scale: int = size(default=2, most=LARGEST_SCALE, omit_default=True)


class UpsampleOp(PartsOp):
    name = "upsample"
    Problem = Upsample
    directions = ("forward", "backward")
    settings: ClassVar[dict[str, tuple[str, ...]]] = {"layout": ("nchw", "nhwc", "any"), "add": ("no", "yes")}
    outputs = ("y", "dx")
    sweep_field = "n"
    smoke = (
        Upsample(1, 1, 1, 1),
        Upsample(2, 5, 7, 9),
        Upsample(1, 17, 8, 3, scale=3),
        Upsample(2, 32, 6, 16),
    )

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are summed in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def result_type(self, case: Case) -> str:
        """Results have the type of the data."""
        return case.precision.data

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """The gradient of x is the same with and without an addition."""
        return ("add",) if direction == "backward" else ()

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """The arrays of the formula above."""
        p, kind = case.problem, case.precision.data
        last = case.settings["layout"] == "nhwc"
        small, large = (
            Tensor((p.n, f * p.h, f * p.w, p.c) if last else (p.n, p.c, f * p.h, f * p.w), kind) for f in (1, p.scale)
        )
        if case.direction == "backward":
            return {"dy": large, "dx": small}
        return {"x": small, **({"z": large} if case.settings["add"] == "yes" else {}), "y": large}

    def parts(self, case: Case) -> int:
        """Channels of all images."""
        return int(case.problem.n * case.problem.c)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """Copies are exact; sums have the tolerance of a product with ones."""
        import numpy as np

        from deepbench.core.tolerance import TOLERANCE_UNITS

        p, f = case.problem, case.problem.scale
        at = np.divmod(parts, p.c)
        squares = {name: self._squares(case, array)[at] for name, array in arrays.items()}
        unit = TOLERANCE_UNITS * case.precision.roundoff
        if case.direction == "forward":
            want = np.broadcast_to(squares["x"].astype(np.float64), squares["y"].shape)
            tolerance = np.zeros_like(want)
            if "z" in squares:
                z = squares["z"].astype(np.float64)
                want, tolerance = want + z, unit * (abs(want) + abs(z))
            yield Expected("y", squares["y"], want, tolerance)
            return
        dy = squares["dy"].astype(np.float64)
        norms = np.sqrt((dy**2).sum(axis=(-3, -1), keepdims=True)) * f
        unit += PARTIAL_SUMS * STORAGE_ROUNDOFF[case.precision.data]
        want = dy.sum(axis=(-3, -1), keepdims=True)
        yield Expected("dx", squares["dx"], want, unit * norms * (p.scale > 1))

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """Shaped like the arrays."""
        import numpy as np

        found = {}
        for e in self.expected(case, arrays, np.arange(self.parts(case))):
            found[e.output] = np.empty(arrays[e.output].shape)
            self._squares(case, found[e.output])[...] = e.want.reshape(
                case.problem.n, case.problem.c, *e.want.shape[1:]
            )
        return found

    def _squares(self, case: Case, array: Array) -> Array:
        """A view of x or y with the axes (n, c, h, 1, w, 1) or (n, c, h, scale, w, scale)."""
        p = case.problem
        view = array.transpose(0, 3, 1, 2) if case.settings["layout"] == "nhwc" else array
        n, c, rows, columns = view.shape
        squares: Array = view.reshape(n, c, p.h, rows // p.h, p.w, columns // p.w)
        return squares

    def flop(self, case: Case) -> int:
        """An addition for each number of dy, or of z; none for a copy."""
        p = case.problem
        adds = case.direction == "backward" or case.settings["add"] == "yes"
        return int(p.n * p.c * p.h * p.w * p.scale**2) * adds

    def title(self, problem: Any) -> str:
        """`8 × 1280 × 32 × 32, 2 times as large`."""
        p = problem
        return f"{p.n} × {p.c} × {p.h} × {p.w}, {p.scale} times as large"


OP = UpsampleOp()
