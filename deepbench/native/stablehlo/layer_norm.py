"""Layer normalization of rows, in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._norms import SERVES, gradients, normalized

__all__ = ["SERVES", "body"]


def body(case: Case, arrays: Values) -> Values:
    """As the operation has it."""
    x, scale = arrays["x"], arrays["scale"]
    if case.direction == "forward":
        return {"y": (normalized(x, [1])[0] * scale + arrays["shift"]).to(x.kind)}
    mean, variance = (arrays[name].reshape(case.problem.rows, 1) for name in ("mean", "variance"))
    dy, columns = arrays["dy"].to("f32"), case.problem.columns
    dx, z = gradients(x, dy * scale, mean, variance, [1])
    sums = {"dscale": (dy * z).sum(0), "dshift": dy.sum(0)}
    return {"dx": dx.to(x.kind), **{name: value.reshape(columns) for name, value in sums.items()}}
