"""RMS normalization of rows, in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._norms import SERVES, gradients, normalized

__all__ = ["SERVES", "backward", "forward"]


def forward(case: Case, arrays: Values) -> Values:
    x = arrays["x"]
    return {"y": (normalized(x, [1], centered=False)[0] * arrays["scale"]).to(x.kind)}


def backward(case: Case, arrays: Values) -> Values:
    x, dy = arrays["x"], arrays["dy"].to("f32")
    dx, z = gradients(x, dy * arrays["scale"], None, arrays["mean_square"].reshape(case.problem.rows, 1), [1])
    return {"dx": dx.to(x.kind), "dscale": (dy * z).sum(0).reshape(case.problem.columns)}
