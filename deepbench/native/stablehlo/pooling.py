"""Pooling of windows; sums are in f32."""

from __future__ import annotations

import math

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values, refuse
from deepbench.native.stablehlo._values import FLOATS
from deepbench.native.stablehlo._windows import ANY_LAYOUT, HloWindow, scatter_to_largest, windows

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)


def body(case: Case, arrays: Values) -> Values:
    """The gradient of an average is a sum of windows over dy, with zeros between its elements."""
    refuse(case.settings["layout"] == "any", ANY_LAYOUT)
    p, count, forward = case.problem, math.prod(case.problem.window), case.direction == "forward"
    axes = []
    for n, out, size, pad, stride in [*zip(p.image, p.output, p.window, p.pad, p.stride, strict=True)]:
        spread = HloWindow(size, 1, size - 1 - pad, n - 1 + pad - (out - 1) * stride, spread=stride)
        axes.append(HloWindow(size, stride, pad, pad) if forward or p.kind == "max" else spread)
    axes = axes[3 - p.dimensions :]
    axes = [HloWindow(), *axes, HloWindow()] if case.settings["layout"] == "nhwc" else [HloWindow(), HloWindow(), *axes]
    result = "y" if forward else "dx"
    if p.kind == "average":
        found = windows(arrays["x" if forward else "dy"].to("f32"), "add", 0, axes) / count
    elif forward:
        found = windows(arrays["x"], "maximum", -math.inf, axes)
    else:
        found = scatter_to_largest(arrays["x"].to("f32"), arrays["dy"].to("f32"), axes)
    return {result: found.to(arrays[result].kind)}
