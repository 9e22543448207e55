"""Layer normalization of rows, in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._norms import SERVES, gradients, normalized

__all__ = ["SERVES", "backward", "forward"]


def forward(case: Case, arrays: Values) -> Values:
    x = arrays["x"]
    return {"y": (normalized(x, [1])[0] * arrays["scale"] + arrays["shift"]).to(x.kind)}


def backward(case: Case, arrays: Values) -> Values:
    x, columns = arrays["x"], case.problem.columns
    mean, variance = (arrays[name].reshape(case.problem.rows, 1) for name in ("mean", "variance"))
    dy = arrays["dy"].to("f32")
    dx, z = gradients(x, dy * arrays["scale"], mean, variance, [1])
    sums = {"dscale": (dy * z).sum(0), "dshift": dy.sum(0)}
    return {"dx": dx.to(x.kind), **{name: value.reshape(columns) for name, value in sums.items()}}
