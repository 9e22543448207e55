"""Group normalization, in f32: of the axes (n, groups, c / groups, h, w)."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._norms import SERVES, gradients, normalized
from deepbench.native.stablehlo._values import HloValue

__all__ = ["SERVES", "backward", "forward"]


def forward(case: Case, arrays: Values) -> Values:
    y = arrays["y"]
    x, scale, shift = (_grouped(case, arrays[name]) for name in ("x", "scale", "shift"))
    return {"y": (normalized(x, [2, 3, 4])[0] * scale + shift).to(y.kind).reshape(*y.shape)}


def backward(case: Case, arrays: Values) -> Values:
    p, given = case.problem, arrays["x"]
    x, scale = (_grouped(case, arrays[name]) for name in ("x", "scale"))
    mean, variance = (arrays[name].reshape(p.n, p.groups, 1, 1, 1) for name in ("mean", "variance"))
    dy = _grouped(case, arrays["dy"]).to("f32")
    dx, z = gradients(x, dy * scale, mean, variance, [2, 3, 4])
    sums = {"dscale": (dy * z).sum(0, 3, 4), "dshift": dy.sum(0, 3, 4)}
    found = {name: value.reshape(p.c) for name, value in sums.items()}
    return {"dx": dx.to(given.kind).reshape(*given.shape), **found}


def _grouped(case: Case, array: HloValue) -> HloValue:
    """Images or numbers of the channels, with an axis of groups."""
    p = case.problem
    shape = (p.groups, p.c // p.groups)
    return array.reshape(p.n, *shape, p.h, p.w) if len(array.shape) > 1 else array.reshape(*shape, 1, 1)
