"""Convolutions, with gradients as XLA recognizes them: the data gradient has a reversed filter, not reversed windows."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values, refuse
from deepbench.native.stablehlo._values import Value, convolution
from deepbench.ops.conv.problem import RANGES, is_quantized, quantization_scale

FLOATS = ("f32", "bf16", "f16")
SERVES = {"forward": (*FLOATS, "i8"), "backward_data": FLOATS, "backward_weights": FLOATS}


def body(case: Case, arrays: Values) -> Values:
    """One convolution, and the bias."""
    refuse(case.settings["layout"] == "any", "the layout of arguments is that of the text; choose layout=nchw or nhwc")
    result = next(name for name in ("y", "dx", "dw") if name in arrays)
    narrow = case.direction == "forward" and ("b" in arrays or is_quantized(case))
    kind = case.precision.accumulate if narrow else arrays[result].kind
    found = {"y": _forward, "dx": _backward_data, "dw": _backward_weights}[result](case, arrays, kind)
    axes = [i for i in range(len(found.shape)) if i != _channels(case, len(found.shape))]
    if "b" in arrays:
        found = found + arrays["b"].reshape(*(1 if i in axes else n for i, n in enumerate(found.shape)))
    if is_quantized(case):
        scaled = (found.to("f32") * quantization_scale(case)).apply("round_nearest_even")
        low, high = RANGES[case.precision.data]
        found = scaled.apply("maximum", low).apply("minimum", high)
    sums = {"db": arrays["dy"].to("f32").sum(*axes)} if "db" in arrays else {}
    return {result: found.to(arrays[result].kind), **{n: v.to(arrays[n].kind).reshape(-1) for n, v in sums.items()}}


def _forward(case: Case, arrays: Values, kind: str) -> Value:
    p, (x, w, y) = case.problem, _numbers(case, "bf", "oi", "bf")
    pads = [(pad, pad) for pad in _of(case, p.pad)]
    window = {"stride": _of(case, p.stride), "pad": pads, "rhs_dilate": _of(case, p.dilation)}
    return convolution(arrays["x"], arrays["w"], f"{x}x{w}->{y}", window, arrays["y"].shape, kind, groups=p.groups)


def _backward_data(case: Case, arrays: Values, kind: str) -> Value:
    p, (dy, w, dx) = case.problem, _numbers(case, "bf", "io", "bf")
    pads = []
    for size, out, f, pad, stride, dilation in _sizes(case):
        low = (f - 1) * dilation - pad
        pads.append((low, size - ((out - 1) * stride + 1) - low + (f - 1) * dilation))
    window = {"pad": pads, "lhs_dilate": _of(case, p.stride), "rhs_dilate": _of(case, p.dilation)}
    shape = arrays["w"].shape
    axis = _channels(case, len(shape))
    filters = arrays["w"].reversed(*(i for i in range(len(shape)) if i not in (0, axis)))
    if p.groups > 1:  # (k, c / groups) becomes (k / groups, c)
        filters = filters.reshape(p.groups, p.k // p.groups, *shape[1:])
        order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)]
        whole = [p.k // p.groups, *shape[1:]]
        whole[axis] = p.c
        filters = filters.transpose(*order).reshape(*whole)
    return convolution(arrays["dy"], filters, f"{dy}x{w}->{dx}", window, arrays["dx"].shape, kind, groups=p.groups)


def _backward_weights(case: Case, arrays: Values, kind: str) -> Value:
    p, (x, dy, dw) = case.problem, _numbers(case, "fb", "io", "fb")
    pads = [
        (pad, (f - 1) * dilation + (out - 1) * stride + 1 - size - pad)
        for size, out, f, pad, stride, dilation in _sizes(case)
    ]
    window = {"stride": _of(case, p.dilation), "pad": pads, "rhs_dilate": _of(case, p.stride)}
    shape = arrays["dw"].shape
    return convolution(arrays["x"], arrays["dy"], f"{x}x{dy}->{dw}", window, shape, kind, batch_groups=p.groups)


def _of(case: Case, sizes: tuple[int, int, int]) -> list[int]:
    return list(sizes[3 - case.problem.dimensions :])


def _sizes(case: Case) -> list[tuple[int, ...]]:
    p = case.problem
    return [*zip(*(_of(case, s) for s in (p.image, p.output, p.filter, p.pad, p.stride, p.dilation)), strict=True)]


def _channels(case: Case, rank: int) -> int:
    return rank - 1 if case.settings["layout"] == "nhwc" else 1


def _numbers(case: Case, *names: str) -> list[str]:
    """The meaning of the axes of each array: two letters, and the numbers of the dimensions of the image."""
    spatial = [str(i) for i in range(case.problem.dimensions)]
    last = case.settings["layout"] == "nhwc"
    return [f"[{', '.join([a, *spatial, b] if last else [a, b, *spatial])}]" for a, b in names]
