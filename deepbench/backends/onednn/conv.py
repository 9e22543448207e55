"""Convolution in oneDNN. With `layout=any` the library chooses the formats, and tensors are converted ahead."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from deepbench.core.case import Case
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.core.operands import full
from deepbench.core.precision import type_name
from deepbench.native import onednn as c

ARGUMENTS = {
    "forward": {"x": c.ARG_SRC, "w": c.ARG_WEIGHTS, "b": c.ARG_BIAS, "y": c.ARG_DST},
    "backward_data": {"dx": c.ARG_DIFF_SRC, "w": c.ARG_WEIGHTS, "dy": c.ARG_DIFF_DST},
    "backward_weights": {"x": c.ARG_SRC, "dw": c.ARG_DIFF_WEIGHTS, "db": c.ARG_DIFF_BIAS, "dy": c.ARG_DIFF_DST},
}
OUTPUTS = ("y", "dx", "dw", "db")


def prepare(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """The kernel of one convolution in any direction."""
    p, views = case.problem, {n: _view(case, n, a) for n, a in arrays.items()}
    # With `nhwc` the library works on data in the given layout; otherwise it chooses, and data are converted.
    descs = {
        name: dnn.desc_of(view)
        if view.ndim == 1 or (case.settings["layout"] == "nhwc" and name in ("x", "y", "dx", "dy"))
        else dnn.memory_desc_any(view.shape, type_name(view.dtype))
        for name, view in views.items()
    }
    deep = slice(0 if p.dimensions == 3 else 1, None)
    pad = c.dims(p.pad[deep])
    shape = (c.dims(p.stride[deep]), c.dims([d - 1 for d in p.dilation[deep]]), pad, pad)
    attribute = None
    scaled = case.direction == "forward" and type_name(arrays["y"].dtype) in ("s8", "u8")
    if scaled:
        attribute = dnn.create("dnnl_primitive_attr_create")
        dnn.call("dnnl_primitive_attr_set_scales_mask", attribute, c.ARG_DST, 0)
    if case.direction == "forward":
        tensors = (descs["x"], descs["w"], descs.get("b"), descs["y"])
        primitive_desc = _forward(dnn, c.FORWARD_INFERENCE, *tensors, shape, attribute)
    else:
        primitive_desc = _backward(dnn, case, descs, views, shape)
    conversions = c.Conversions(dnn, primitive_desc)
    for name, argument in ARGUMENTS[case.direction].items():
        if name in views:
            conversions.add(argument, name, views[name], output=name in OUTPUTS)
    if scaled:
        # oneDNN divides by the scale of a destination.
        scale = full((1,), "f32", 1 / case.operation.facts(case)["scale"])
        conversions.arguments[c.ARG_SCALES + c.ARG_DST] = dnn.memory(dnn.desc_of(scale), scale)
        conversions.keep.append(scale)
    algorithm = dnn.query(primitive_desc, c.QUERY_ALGORITHM, ctypes.c_int())
    notes = {"algorithm": c.ALGORITHM.get(algorithm, str(algorithm))}
    return conversions.kernel(ahead="convert_s" if case.settings["layout"] == "any" else None, notes=notes)


def _view(case: Case, name: str, array: Any) -> Any:
    """The array with oneDNN's axes: channels second, and an axis of its own for groups of filters."""
    if array.ndim == 1:
        return array
    view = np.moveaxis(array, -1, 1) if case.settings["layout"] == "nhwc" else array
    groups = case.problem.groups
    if name in ("w", "dw") and groups > 1:
        view = view.reshape(groups, view.shape[0] // groups, *view.shape[1:])
    return view


def _forward(
    dnn: c.OneDNN, kind: int, x: Any, w: Any, bias: Any, y: Any, shape: tuple[Any, ...], attribute: Any
) -> c.Handle:
    name = "dnnl_convolution_forward_primitive_desc_create"
    return dnn.create(name, dnn.engine, kind, c.CONVOLUTION_AUTO, x, w, bias, y, *shape, attribute)


def _backward(
    dnn: c.OneDNN, case: Case, descs: dict[str, Any], views: dict[str, Any], shape: tuple[Any, ...]
) -> c.Handle:
    """Backward primitives take the forward primitive as a hint."""
    x, w = ("dx" if "dx" in views else "x"), ("dw" if "dw" in views else "w")
    bias, dy = descs.get("db"), descs["dy"]
    # The forward pass multiplies and stores in the type of the data, even if gradients are f32.
    hint = [
        dnn.memory_desc_any(views[name].shape, case.precision.data)
        if type_name(views[name].dtype) != case.precision.data
        else descs[name]
        for name in (x, w)
    ]
    hint_desc = _forward(dnn, c.FORWARD_TRAINING, hint[0], hint[1], bias, dy, shape, None)
    tensors = [descs[x], descs[w], *([] if case.direction == "backward_data" else [bias]), dy]
    name = f"dnnl_convolution_{case.direction}_primitive_desc_create"
    return dnn.create(name, dnn.engine, c.CONVOLUTION_AUTO, *tensors, *shape, hint_desc, None)
