"""Upsampling by nearest neighbour; sums are in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._layouts import channels_last
from deepbench.native.stablehlo._values import FLOATS

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)


def forward(case: Case, arrays: Values) -> Values:
    x, y, (squares, axes) = arrays["x"], arrays["y"], _squares(case)
    large = x.reshape(*(1 if i in axes else n for i, n in enumerate(squares))).repeated(squares).reshape(*y.shape)
    return {"y": (large.to("f32") + arrays["z"].to("f32")).to(y.kind) if "z" in arrays else large}


def backward(case: Case, arrays: Values) -> Values:
    dy, dx, (squares, axes) = arrays["dy"], arrays["dx"], _squares(case)
    return {"dx": dy.to("f32").reshape(*squares).sum(*axes).reshape(*dx.shape).to(dx.kind)}


def _squares(case: Case) -> tuple[tuple[int, ...], tuple[int, int]]:
    """The shape of the large image with axes for the squares of one color, and which axes these are."""
    p, f = case.problem, case.problem.scale
    if channels_last(case):
        return (p.n, p.h, f, p.w, f, p.c), (2, 4)
    return (p.n, p.c, p.h, f, p.w, f), (3, 5)
