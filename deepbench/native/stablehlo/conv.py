"""Convolutions. Gradients are written as XLA recognizes them: that of data reverses the filter, not the windows."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._layouts import channel_axis, dimension_numbers, other_axes, per_channel
from deepbench.native.stablehlo._values import FLOATS
from deepbench.native.stablehlo._windows import HloWindow, convolution

SERVES = {"forward": (*FLOATS, "i8"), "backward_data": FLOATS, "backward_weights": FLOATS}


def forward(case: Case, arrays: Values) -> Values:
    """One convolution, and the bias. It has the type of the result if nothing follows it."""
    y, scale = arrays["y"], case.operation.facts(case).get("scale")  # of results of 8 bits
    is_last = "b" not in arrays and scale is None
    result = y.shape, y.kind if is_last else case.precision.accumulate
    axes = [HloWindow(f, stride, pad, pad, apart) for _, _, f, pad, stride, apart in _sizes(case)]
    numbers = dimension_numbers(case, "bf", "oi", "bf")
    found = convolution(arrays["x"], arrays["w"], numbers, axes, result, groups=case.problem.groups)
    if "b" in arrays:
        found = found + per_channel(case, arrays["b"], y)
    if scale is not None:
        found = (found.to("f32") * scale).apply("round_nearest_even").apply("maximum", -128).apply("minimum", 127)
    return {"y": found.to(y.kind)}


def backward_data(case: Case, arrays: Values) -> Values:
    """A convolution of `dy`, spread by the stride, with reversed filters."""
    p, w, dx, axes = case.problem, arrays["w"], arrays["dx"], []
    for size, out, f, pad, stride, apart in _sizes(case):
        low = (f - 1) * apart - pad
        high = size - 1 - (out - 1) * stride + pad
        axes.append(HloWindow(f, 1, low, high, apart, stride))
    filters = w.reversed(*other_axes(case, w)[1:])
    if p.groups > 1:  # (k, c / groups) becomes (k / groups, c)
        channels = channel_axis(case, w)
        order = [*range(1, channels + 1), 0, *range(channels + 1, len(w.shape) + 1)]
        shape = (p.k // p.groups, *(p.c if i == channels else w.shape[i] for i in range(1, len(w.shape))))
        filters = filters.reshape(p.groups, p.k // p.groups, *w.shape[1:]).transpose(*order).reshape(*shape)
    numbers, result = dimension_numbers(case, "bf", "io", "bf"), (dx.shape, dx.kind)
    return {"dx": convolution(arrays["dy"], filters, numbers, axes, result, groups=p.groups)}


def backward_weights(case: Case, arrays: Values) -> Values:
    """A convolution of `x` with `dy` whose batch is summed, and the gradient of the bias."""
    dw, dy, axes = arrays["dw"], arrays["dy"], []
    for size, out, f, pad, stride, apart in _sizes(case):
        axes.append(HloWindow(out, apart, pad, (f - 1) * apart + (out - 1) * stride + 1 - size - pad, stride))
    numbers, groups = dimension_numbers(case, "fb", "io", "fb"), case.problem.groups
    outputs = {"dw": convolution(arrays["x"], dy, numbers, axes, (dw.shape, dw.kind), batch_groups=groups)}
    if "db" in arrays:
        outputs["db"] = dy.to("f32").sum(*other_axes(case, dy)).to(arrays["db"].kind).reshape(-1)
    return outputs


def _sizes(case: Case) -> list[tuple[int, ...]]:
    """Of each dimension: image, result, filter, padding, stride and dilation."""
    p = case.problem
    return [*zip(p.image, p.output, p.filter, p.pad, p.stride, p.dilation, strict=True)][3 - p.dimensions :]
