"""What normalizations share: everything in f32, with sums over the axes of a part."""

from __future__ import annotations

from collections.abc import Sequence

from deepbench.core.rows import EPSILON
from deepbench.native.stablehlo._values import FLOATS, HloValue

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)


def normalized(x: HloValue, axes: Sequence[int], centered: bool = True) -> tuple[HloValue, HloValue | None, HloValue]:
    """Parts with the mean 0, if they are `centered`, and mean square 1; and their means and mean squares before."""
    x = x.to("f32")
    mean = x.mean(*axes) if centered else None
    z = x if mean is None else x - mean
    square = (z * z).mean(*axes)
    return z * over_deviation(square), mean, square


def gradients(
    x: HloValue, g: HloValue, mean: HloValue | None, square: HloValue, axes: Sequence[int]
) -> tuple[HloValue, HloValue]:
    """The gradient of x from `g`, that of the normalized parts; and these."""
    over = over_deviation(square)
    z = (x.to("f32") if mean is None else x.to("f32") - mean) * over
    inner = z * (g * z).mean(*axes)
    return (g - inner if mean is None else g - g.mean(*axes) - inner) * over, z


def over_deviation(square: HloValue) -> HloValue:
    """1 over the square root of a variance or a mean square."""
    return (square + EPSILON).apply("rsqrt")
