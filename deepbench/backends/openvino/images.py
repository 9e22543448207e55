"""Models of operations on images: convolution, pooling, upsampling, and normalization of channels.

OpenVINO's operations have the axes (n, c, h, w). Arrays with the channels last are transposed within the model; the
library merges these with the layout that it chooses, so that most of them cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepbench.core.errors import Unsupported
from deepbench.core.precision import type_name
from deepbench.core.rows import EPSILON
from deepbench.native.openvino import Graph, Value

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays


def conv(case: Case, arrays: Arrays) -> Graph:
    """`Convolution` or `GroupConvolution`; with `layout=any` the filters are constants, else inputs."""
    p, kind, graph = case.problem, case.precision.data, Graph()
    groups = (p.groups, p.k // p.groups) if p.groups > 1 else (p.k,)
    source = graph.constant if case.settings["layout"] == "any" else graph.parameter
    x = channels_first(case, graph, graph.parameter(arrays["x"]))
    w = source(arrays["w"], shape=(*groups, *arrays["w"].shape[1:]))
    if case.settings["layout"] == "nhwc":
        w = _transposed(graph, w, len(groups), p.dimensions)
    if kind != "f32" and ("b" in arrays or type_name(arrays["y"].dtype) == "f32"):
        x, w = graph.convert(x, "f32"), graph.convert(w, "f32")  # so that sums stay in f32, as in products
    deep = slice(-p.dimensions, None)
    sizes = {"strides": p.stride[deep], "dilations": p.dilation[deep]}
    pads: dict[str, Any] = {"pads_begin": p.pad[deep], "pads_end": p.pad[deep], "auto_pad": "explicit"}
    y = graph.op("GroupConvolution" if p.groups > 1 else "Convolution", x, w, **sizes, **pads)
    if "b" in arrays:
        y = graph.op("Add", y, source(arrays["b"], shape=(1, p.k, *[1] * p.dimensions)))
    y = graph.convert(y, type_name(arrays["y"].dtype))
    graph.result(stored_order(case, graph, y), arrays["y"])
    return graph


def pooling(case: Case, arrays: Arrays) -> Graph:
    """`MaxPool` or `AvgPool`."""
    p, graph = case.problem, Graph()
    deep, average = slice(-p.dimensions, None), p.kind == "average"
    attributes: dict[str, Any] = {"kernel": p.window[deep], "strides": p.stride[deep], "rounding_type": "floor"}
    attributes |= {"pads_begin": p.pad[deep], "pads_end": p.pad[deep], "auto_pad": "explicit"}
    attributes |= {"exclude__pad": False} if average else {}
    x = channels_first(case, graph, graph.parameter(arrays["x"]))
    y = graph.op("AvgPool" if average else "MaxPool", x, **attributes)
    graph.result(stored_order(case, graph, y), arrays["y"])
    return graph


def upsample(case: Case, arrays: Arrays) -> Graph:
    """`Interpolate`, and `Add` if there is something to add."""
    p, graph = case.problem, Graph()
    x = channels_first(case, graph, graph.parameter(arrays["x"]))
    rules: dict[str, Any] = {"mode": "nearest", "nearest_mode": "floor", "shape_calculation_mode": "scales"}
    rules |= {"coordinate_transformation_mode": "asymmetric", "antialias": False, "cube_coeff": -0.75}
    scales = graph.constant(_f32(p.scale, p.scale))
    sizes = graph.axes(p.scale * p.h, p.scale * p.w)
    y = graph.op("Interpolate", x, sizes, scales, graph.axes(2, 3), **rules, pads_begin=[0], pads_end=[0])
    if "z" in arrays:
        y = graph.op("Add", y, channels_first(case, graph, graph.parameter(arrays["z"])))
    graph.result(stored_order(case, graph, y), arrays["y"])
    return graph


def batch_norm(case: Case, arrays: Arrays) -> Graph:
    """`BatchNormInference` in f32, as the operation says, with given statistics; parameters are constants."""
    if case.settings["mode"] != "inference":
        raise Unsupported("OpenVINO has batch normalization for inference only; choose mode=inference")
    graph, kind = Graph(), case.precision.data
    x = channels_first(case, graph, graph.parameter(arrays["x"]))
    names = ("scale", "shift", "mean", "variance")
    parameters = [graph.constant(arrays[name]) for name in names]
    y = graph.op("BatchNormInference", graph.convert(x, "f32"), *parameters, epsilon=EPSILON)
    graph.result(stored_order(case, graph, graph.convert(y, kind)), arrays["y"])
    return graph


def group_norm(case: Case, arrays: Arrays) -> Graph:
    """`GroupNormalization` in f32, as the operation says; scale and shift are constants."""
    graph, p = Graph(), case.problem
    x = graph.convert(graph.parameter(arrays["x"]), "f32")
    parameters = [graph.constant(arrays[name]) for name in ("scale", "shift")]
    y = graph.op("GroupNormalization", x, *parameters, num_groups=p.groups, epsilon=EPSILON)
    graph.result(graph.convert(y, case.precision.data), arrays["y"])
    return graph


def channels_first(case: Case, graph: Graph, value: Value) -> Value:
    """An image as operations want it, from the order in which the case stores it."""
    return value if case.settings["layout"] == "nchw" else _transposed(graph, value, 1, _dimensions(case))


def stored_order(case: Case, graph: Graph, value: Value) -> Value:
    """The other way round."""
    if case.settings["layout"] == "nchw":
        return value
    dimensions = _dimensions(case)
    return graph.op("Transpose", value, graph.axes(0, *range(2, dimensions + 2), 1))


def channels_last(array: Array) -> Array:
    """A copy with the channels last: the layout that OpenVINO's convolutions prefer."""
    from deepbench.core.operands import empty

    copied = empty((array.shape[0], *array.shape[2:], array.shape[1]), type_name(array.dtype))
    copied[...] = array.transpose(0, *range(2, array.ndim), 1)
    return copied


def _transposed(graph: Graph, value: Value, before: int, dimensions: int) -> Value:
    """From `before` axes, pixels, channels to these axes, channels, pixels."""
    last = before + dimensions
    return graph.op("Transpose", value, graph.axes(*range(before), last, *range(before, last)))


def _dimensions(case: Case) -> int:
    """2, or 3 for images with depth."""
    known: int | None = getattr(case.problem, "dimensions", None)
    return known or (3 if getattr(case.problem, "d", 1) > 1 else 2)


def _f32(*numbers: float) -> Array:
    import numpy as np

    return np.array(numbers, np.float32)
