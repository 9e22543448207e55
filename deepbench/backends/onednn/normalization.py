"""Layer, RMS, batch and group normalization in oneDNN, in the format of the arrays."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from deepbench.core.case import Case
from deepbench.core.errors import LibraryError, Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.core.rows import EPSILON
from deepbench.native import onednn as c

# The arguments of all arrays.
ARGUMENTS = {
    **{"x": c.ARG_SRC, "y": c.ARG_DST, "dy": c.ARG_DIFF_DST, "dx": c.ARG_DIFF_SRC},
    **{"scale": c.ARG_SCALE, "shift": c.ARG_SHIFT, "dscale": c.ARG_DIFF_SCALE, "dshift": c.ARG_DIFF_SHIFT},
    **{"mean": c.ARG_MEAN, "variance": c.ARG_VARIANCE},
    **{"batch_mean": c.ARG_MEAN, "batch_variance": c.ARG_VARIANCE},
}


def layer_norm(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """The primitive normalizes the last axis, as the operation does."""
    return _kernel(dnn, case, arrays, "layer", c.USE_SCALE | c.USE_SHIFT)


def rms_norm(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """Layer normalization with a flag that older versions refuse as invalid."""
    try:
        return _kernel(dnn, case, arrays, "layer", c.USE_SCALE | c.RMS_NORM)
    except LibraryError as error:
        if error.status != c.INVALID_ARGUMENTS:
            raise
        raise Unsupported("this build of oneDNN has no RMS normalization; newer versions have") from None


def batch_norm(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """The axes are (n, c, …) for oneDNN, whatever the layout."""
    given = "mean" in arrays and case.direction == "forward"
    views = {n: _channels_second(case, a) for n, a in arrays.items()}
    return _kernel(dnn, case, views, "batch", c.USE_SCALE | c.USE_SHIFT | c.GLOBAL_STATISTICS * given)


def group_norm(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """A primitive of its own, in versions from 3.3 on."""
    if not hasattr(dnn.library, "dnnl_group_normalization_forward_primitive_desc_create"):
        raise Unsupported("this build of oneDNN has no group normalization; version 3.3 and later have")
    return _kernel(dnn, case, arrays, "group", c.USE_SCALE | c.USE_SHIFT)


def _kernel(dnn: c.OneDNN, case: Case, views: dict[str, Any], family: str, flags: int) -> Kernel:
    """One primitive on these views. A backward primitive takes the forward primitive as a hint."""
    descs = {name: dnn.desc_of(view) for name, view in views.items()}
    own: tuple[Any, ...] = ()
    if family == "layer":
        own = (descs.get("mean"),)  # the descriptor of the statistics
    elif family == "group":
        own = (ctypes.c_int64(case.problem.groups),)
    last = (*own, ctypes.c_float(EPSILON), flags)
    name, x = f"dnnl_{family}_normalization_{{}}_primitive_desc_create", descs["x"]
    if case.direction == "forward":
        kind = c.FORWARD_TRAINING if "batch_mean" in views else c.FORWARD_INFERENCE
        primitive_desc = dnn.create(name.format("forward"), dnn.engine, kind, x, descs["y"], *last, None)
    else:
        hint = dnn.create(name.format("forward"), dnn.engine, c.FORWARD_TRAINING, x, descs["dy"], *last, None)
        gradients = (descs["dx"], descs["dy"], x)
        primitive_desc = dnn.create(name.format("backward"), dnn.engine, c.BACKWARD, *gradients, *last, hint, None)
    conversions = c.Conversions(dnn, primitive_desc)
    outputs = case.operation.outputs
    for array, view in views.items():
        conversions.add(ARGUMENTS[array], array, view, output=array in outputs)
    if "dshift" in views and family == "layer":
        # The primitive of older versions asks for the shift, too, and does not read it.
        asked = dnn.query_desc(primitive_desc, c.QUERY_ARGUMENT, c.ARG_SHIFT)
        if asked and dnn.size_bytes(asked):
            conversions.add(c.ARG_SHIFT, "shift", np.zeros_like(views["scale"]))
    return conversions.kernel(ahead=None)


def _channels_second(case: Case, array: Any) -> Any:
    return np.moveaxis(array, -1, 1) if case.settings["layout"] == "nhwc" and array.ndim > 1 else array
