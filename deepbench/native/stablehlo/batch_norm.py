"""Batch normalization of channels, in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._layouts import other_axes, per_channel
from deepbench.native.stablehlo._norms import SERVES, gradients, normalized, over_deviation

__all__ = ["SERVES", "backward", "forward"]


def forward(case: Case, arrays: Values) -> Values:
    """In training with the statistics of the batch, which are results too; in inference with given ones."""
    x, given, found = arrays["x"], _given(case, arrays), {}
    if case.settings["mode"] == "inference":
        z = (x.to("f32") - given["mean"]) * over_deviation(given["variance"])
    else:
        z, mean, variance = normalized(x, other_axes(case, x))
        statistics = {"batch_mean": mean, "batch_variance": variance}
        found = {name: value.reshape(case.problem.c) for name, value in statistics.items() if value is not None}
    return {"y": (z * given["scale"] + given["shift"]).to(x.kind), **found}


def backward(case: Case, arrays: Values) -> Values:
    x, given, axes = arrays["x"], _given(case, arrays), other_axes(case, arrays["x"])
    dy = arrays["dy"].to("f32")
    dx, z = gradients(x, dy * given["scale"], given["mean"], given["variance"], axes)
    sums = {"dscale": (dy * z).sum(*axes), "dshift": dy.sum(*axes)}
    return {"dx": dx.to(x.kind), **{name: value.reshape(case.problem.c) for name, value in sums.items()}}


def _given(case: Case, arrays: Values) -> Values:
    """The arrays with a number for each channel, for arithmetic with `x`."""
    x, shape = arrays["x"], (case.problem.c,)
    return {name: per_channel(case, value, x) for name, value in arrays.items() if value.shape == shape}
