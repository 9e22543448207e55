"""Convolutions. Gradients are written as XLA recognizes them: that of data reverses the filter, not the windows."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values, refuse
from deepbench.native.stablehlo._values import FLOATS, HloValue
from deepbench.native.stablehlo._windows import ANY_LAYOUT, HloWindow, convolution

SERVES = {"forward": (*FLOATS, "i8"), "backward_data": FLOATS, "backward_weights": FLOATS}


def body(case: Case, arrays: Values) -> Values:
    """One convolution, and the bias. It has the type of the result if nothing follows it."""
    refuse(case.settings["layout"] == "any", ANY_LAYOUT)
    name, write = {
        "forward": ("y", _forward),
        "backward_data": ("dx", _backward_data),
        "backward_weights": ("dw", _backward_weights),
    }[case.direction]
    result = arrays[name]
    scale = case.operation.facts(case).get("scale")  # of results of 8 bits
    is_last = "b" not in arrays and scale is None
    found = write(case, arrays, result.kind if is_last else case.precision.accumulate)
    channels = _channels(case, result)
    if "b" in arrays:
        found = found + arrays["b"].reshape(*(n if i == channels else 1 for i, n in enumerate(result.shape)))
    if scale is not None:
        found = (found.to("f32") * scale).apply("round_nearest_even").apply("maximum", -128).apply("minimum", 127)
    outputs = {name: found.to(result.kind)}
    if "db" in arrays:
        axes = (i for i in range(len(result.shape)) if i != channels)
        outputs["db"] = arrays["dy"].to("f32").sum(*axes).to(arrays["db"].kind).reshape(-1)
    return outputs


def _forward(case: Case, arrays: Values, kind: str) -> HloValue:
    p, result = case.problem, (arrays["y"].shape, kind)
    axes = [HloWindow(f, stride, pad, pad, apart) for _, _, f, pad, stride, apart in _sizes(case)]
    return convolution(arrays["x"], arrays["w"], _numbers(case, "bf", "oi", "bf"), axes, result, groups=p.groups)


def _backward_data(case: Case, arrays: Values, kind: str) -> HloValue:
    p, w, axes = case.problem, arrays["w"], []
    for size, out, f, pad, stride, apart in _sizes(case):
        low = (f - 1) * apart - pad
        high = size - 1 - (out - 1) * stride + pad
        axes.append(HloWindow(f, 1, low, high, apart, stride))
    channels = _channels(case, w)
    filters = w.reversed(*(i for i in range(1, len(w.shape)) if i != channels))
    if p.groups > 1:  # (k, c / groups) becomes (k / groups, c)
        order = [*range(1, channels + 1), 0, *range(channels + 1, len(w.shape) + 1)]
        shape = (p.k // p.groups, *(p.c if i == channels else w.shape[i] for i in range(1, len(w.shape))))
        filters = filters.reshape(p.groups, p.k // p.groups, *w.shape[1:]).transpose(*order).reshape(*shape)
    result = arrays["dx"].shape, kind
    return convolution(arrays["dy"], filters, _numbers(case, "bf", "io", "bf"), axes, result, groups=p.groups)


def _backward_weights(case: Case, arrays: Values, kind: str) -> HloValue:
    axes, groups, result = [], case.problem.groups, (arrays["dw"].shape, kind)
    for size, out, f, pad, stride, apart in _sizes(case):
        axes.append(HloWindow(out, apart, pad, (f - 1) * apart + (out - 1) * stride + 1 - size - pad, stride))
    numbers = _numbers(case, "fb", "io", "fb")
    return convolution(arrays["x"], arrays["dy"], numbers, axes, result, batch_groups=groups)


def _sizes(case: Case) -> list[tuple[int, ...]]:
    """Of each dimension: image, result, filter, padding, stride and dilation."""
    p = case.problem
    return [*zip(p.image, p.output, p.filter, p.pad, p.stride, p.dilation, strict=True)][3 - p.dimensions :]


def _channels(case: Case, array: HloValue) -> int:
    return len(array.shape) - 1 if case.settings["layout"] == "nhwc" else 1


def _numbers(case: Case, *arrays: str) -> str:
    """The meaning of the axes of three arrays, from two letters of each."""
    spatial = [str(i) for i in range(case.problem.dimensions)]
    last = case.settings["layout"] == "nhwc"
    left, right, result = (
        f"[{', '.join([array[0], *spatial, array[1]] if last else [array[0], array[1], *spatial])}]" for array in arrays
    )
    return f"{left}x{right}->{result}"
