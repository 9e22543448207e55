"""Softmax over the columns in oneDNN."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native import onednn as c


def prepare(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """The kernel of either direction. A backward primitive takes the forward primitive as a hint."""
    axis, descs = 1, {name: dnn.desc_of(array) for name, array in arrays.items()}
    if case.direction == "forward":
        primitive_desc = _forward(dnn, c.FORWARD_INFERENCE, descs["x"], descs["y"], axis)
        arguments = {"x": c.ARG_SRC, "y": c.ARG_DST}
    else:
        hint = _forward(dnn, c.FORWARD_TRAINING, descs["p"], descs["p"], axis)
        name = "dnnl_softmax_backward_primitive_desc_create"
        tensors = (descs["dx"], descs["dy"], descs["p"])
        primitive_desc = dnn.create(name, dnn.engine, c.SOFTMAX_ACCURATE, *tensors, axis, hint, None)
        arguments = {"p": c.ARG_DST, "dy": c.ARG_DIFF_DST, "dx": c.ARG_DIFF_SRC}
    conversions = c.Conversions(dnn, primitive_desc)
    for array, argument in arguments.items():
        conversions.add(argument, array, arrays[array], output=array in ("y", "dx"))
    return conversions.kernel(ahead=None)


def _forward(dnn: c.OneDNN, kind: int, x: c.Handle, y: c.Handle, axis: int) -> c.Handle:
    name = "dnnl_softmax_forward_primitive_desc_create"
    return dnn.create(name, dnn.engine, kind, c.SOFTMAX_ACCURATE, x, y, axis, None)
