"""RMS normalization of rows, in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._norms import SERVES, gradients, normalized

__all__ = ["SERVES", "body"]


def body(case: Case, arrays: Values) -> Values:
    """As the operation has it."""
    x, scale = arrays["x"], arrays["scale"]
    if case.direction == "forward":
        return {"y": (normalized(x, [1], centered=False)[0] * scale).to(x.kind)}
    dy = arrays["dy"].to("f32")
    dx, z = gradients(x, dy * scale, None, arrays["mean_square"].reshape(case.problem.rows, 1), [1])
    return {"dx": dx.to(x.kind), "dscale": (dy * z).sum(0).reshape(case.problem.columns)}
