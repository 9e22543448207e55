"""Pooling of windows; sums are in f32."""

from __future__ import annotations

import math

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._layouts import channels_last
from deepbench.native.stablehlo._values import FLOATS
from deepbench.native.stablehlo._windows import HloWindow, scatter_to_largest, windows

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)


def forward(case: Case, arrays: Values) -> Values:
    x, y = arrays["x"], arrays["y"]
    if case.problem.kind == "max":
        return {"y": windows(x, "maximum", -math.inf, _of_image(case)).to(y.kind)}
    return {"y": (windows(x.to("f32"), "add", 0, _of_image(case)) / math.prod(case.problem.window)).to(y.kind)}


def backward(case: Case, arrays: Values) -> Values:
    """The gradient of an average is a sum of windows over `dy`, with zeros between its elements."""
    dx, dy = arrays["dx"], arrays["dy"].to("f32")
    if case.problem.kind == "max":
        return {"dx": scatter_to_largest(arrays["x"].to("f32"), dy, _of_image(case)).to(dx.kind)}
    axes = [
        HloWindow(size, 1, size - 1 - pad, n - 1 + pad - (out - 1) * stride, spread=stride)
        for n, out, size, pad, stride in _sizes(case)
    ]
    return {"dx": (windows(dy, "add", 0, _all_axes(case, axes)) / math.prod(case.problem.window)).to(dx.kind)}


def _of_image(case: Case) -> list[HloWindow]:
    """The windows that move over an image."""
    return _all_axes(case, [HloWindow(size, stride, pad, pad) for _, _, size, pad, stride in _sizes(case)])


def _sizes(case: Case) -> list[tuple[int, int, int, int, int]]:
    """Of each dimension: image, result, window, padding and stride."""
    p = case.problem
    return [*zip(p.image, p.output, p.window, p.pad, p.stride, strict=True)][3 - p.dimensions :]


def _all_axes(case: Case, axes: list[HloWindow]) -> list[HloWindow]:
    """With one element of the batch and of the channels."""
    one = HloWindow()
    return [one, *axes, one] if channels_last(case) else [one, one, *axes]
