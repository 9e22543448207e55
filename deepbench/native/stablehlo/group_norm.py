"""Group normalization, in f32: of the axes (n, groups, c / groups, h, w)."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._norms import SERVES, gradients, normalized

__all__ = ["SERVES", "body"]


def body(case: Case, arrays: Values) -> Values:
    """As the operation has it."""
    p, kind = case.problem, arrays["x"].kind
    whole, parameters = (p.n, p.groups, p.c // p.groups, p.h, p.w), (p.groups, p.c // p.groups, 1, 1)
    x, scale = arrays["x"].reshape(*whole), arrays["scale"].reshape(*parameters)
    if case.direction == "forward":
        y = normalized(x, [2, 3, 4])[0] * scale + arrays["shift"].reshape(*parameters)
        return {"y": y.to(kind).reshape(p.n, p.c, p.h, p.w)}
    mean, variance = (arrays[name].reshape(p.n, p.groups, 1, 1, 1) for name in ("mean", "variance"))
    dy = arrays["dy"].reshape(*whole).to("f32")
    dx, z = gradients(x, dy * scale, mean, variance, [2, 3, 4])
    sums = {"dscale": (dy * z).sum(0, 3, 4), "dshift": dy.sum(0, 3, 4)}
    found = {name: value.reshape(p.c) for name, value in sums.items()}
    return {"dx": dx.to(kind).reshape(p.n, p.c, p.h, p.w), **found}
