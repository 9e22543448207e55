"""Pooling of windows; sums are in f32."""

from __future__ import annotations

import math

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values, refuse
from deepbench.native.stablehlo._values import Window, scatter_to_largest, windows

SERVES = dict.fromkeys(("forward", "backward"), ("f32", "bf16", "f16"))


def body(case: Case, arrays: Values) -> Values:
    """The gradient of an average is a sum of windows over dy, with zeros between its elements."""
    refuse(case.settings["layout"] == "any", "the layout of arguments is that of the text; choose layout=nchw or nhwc")
    p, shown, count = case.problem, slice(3 - case.problem.dimensions, None), math.prod(case.problem.window)
    sizes = [*zip(p.image[shown], p.output[shown], p.window[shown], p.pad[shown], p.stride[shown], strict=True)]
    axes = [Window(size, stride, pad, pad) for _, _, size, pad, stride in sizes]
    if case.direction == "backward" and p.kind == "average":
        spread = ((n - 1 + pad - (out - 1) * s, out, size, pad, s) for n, out, size, pad, s in sizes)
        axes = [Window(size, 1, size - 1 - pad, high, s) for high, _, size, pad, s in spread]
    axes = [Window(), *axes, Window()] if case.settings["layout"] == "nhwc" else [Window(), Window(), *axes]
    if case.direction == "backward":
        dy, dx = arrays["dy"].to("f32"), arrays["dx"]
        found = windows(dy, "add", 0, axes) / count if p.kind == "average" else None
        return {"dx": (found or scatter_to_largest(arrays["x"].to("f32"), dy, axes)).to(dx.kind)}
    x, y = arrays["x"], arrays["y"]
    if p.kind == "max":
        return {"y": windows(x, "maximum", -math.inf, axes)}
    return {"y": (windows(x.to("f32"), "add", 0, axes) / count).to(y.kind)}
