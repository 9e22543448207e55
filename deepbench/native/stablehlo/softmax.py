"""Softmax of rows, in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._values import FLOATS, HloValue

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)


def forward(case: Case, arrays: Values) -> Values:
    return {"y": softmax(arrays["x"].to("f32"), 1).to(arrays["y"].kind)}


def backward(case: Case, arrays: Values) -> Values:
    p, dy = arrays["p"].to("f32"), arrays["dy"].to("f32")
    return {"dx": (p * (dy - (p * dy).sum(1))).to(arrays["dx"].kind)}


def softmax(x: HloValue, axis: int) -> HloValue:
    """Exponentials over their sum along an axis."""
    e = (x - x.max(axis)).apply("exponential")
    return e / e.sum(axis)
