"""Batch normalization of channels, in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._norms import SERVES, gradients, normalized, over_deviation

__all__ = ["SERVES", "body"]


def body(case: Case, arrays: Values) -> Values:
    """As the operation has it, in training and in inference."""
    x, count = arrays["x"], case.problem.c
    axis = len(x.shape) - 1 if case.settings["layout"] == "nhwc" else 1
    axes = [i for i in range(len(x.shape)) if i != axis]
    shape = [count if i == axis else 1 for i in range(len(x.shape))]
    given = {name: value.reshape(*shape) for name, value in arrays.items() if value.shape == (count,)}
    if case.direction == "backward":
        dy = arrays["dy"].to("f32")
        dx, z = gradients(x, dy * given["scale"], given["mean"], given["variance"], axes)
        sums = {"dscale": (dy * z).sum(*axes), "dshift": dy.sum(*axes)}
        return {"dx": dx.to(x.kind), **{name: value.reshape(count) for name, value in sums.items()}}
    if case.settings["mode"] == "inference":
        z = (x.to("f32") - given["mean"]) * over_deviation(given["variance"])
        return {"y": (z * given["scale"] + given["shift"]).to(x.kind)}
    z, mean, variance = normalized(x, axes)
    statistics = {"batch_mean": mean, "batch_variance": variance}
    found = {name: value.reshape(count) for name, value in statistics.items() if value is not None}
    return {"y": (z * given["scale"] + given["shift"]).to(x.kind), **found}
