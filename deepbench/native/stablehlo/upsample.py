"""Upsampling by nearest neighbour; sums are in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values, refuse
from deepbench.native.stablehlo._values import FLOATS
from deepbench.native.stablehlo._windows import ANY_LAYOUT

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)


def body(case: Case, arrays: Values) -> Values:
    """Squares have axes of their own."""
    refuse(case.settings["layout"] == "any", ANY_LAYOUT)
    p, f = case.problem, case.problem.scale
    last = case.settings["layout"] == "nhwc"
    axes = (2, 4) if last else (3, 5)
    squares = (p.n, p.h, f, p.w, f, p.c) if last else (p.n, p.c, p.h, f, p.w, f)
    if case.direction == "backward":
        dy, dx = arrays["dy"], arrays["dx"]
        return {"dx": dy.to("f32").reshape(*squares).sum(*axes).reshape(*dx.shape).to(dx.kind)}
    x, y = arrays["x"], arrays["y"]
    large = x.reshape(*(1 if i in axes else n for i, n in enumerate(squares))).repeated(squares).reshape(*y.shape)
    return {"y": (large.to("f32") + arrays["z"].to("f32")).to(y.kind) if "z" in arrays else large}
