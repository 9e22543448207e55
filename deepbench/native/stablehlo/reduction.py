"""The sum, the mean or the largest number of each row or column; sums are in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._values import FLOATS

SERVES = {"forward": FLOATS}


def forward(case: Case, arrays: Values) -> Values:
    """One reduction."""
    p, x, y = case.problem, arrays["x"], arrays["y"]
    axis = 1 if p.axis == "columns" else 0
    wide = x.to("f32")
    found = {"sum": wide.sum, "mean": wide.mean, "max": x.max}[p.kind](axis)
    return {"y": found.to(y.kind).reshape(*y.shape)}
