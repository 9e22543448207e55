"""Pooling in oneDNN. With `layout=any`, channels are in blocks, as its convolutions leave them."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepbench.core.case import Case
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.core.precision import type_name
from deepbench.native import onednn as c


def prepare(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """For the gradient of `max`, a forward pass before the measurement leaves the positions in the workspace."""
    p, layout = case.problem, case.settings["layout"]
    views = {n: np.moveaxis(a, -1, 1) if layout == "nhwc" else a for n, a in arrays.items()}
    deep = slice(3 - p.dimensions, None)
    pad = c.dims(p.pad[deep])
    shape = (c.dims(p.stride[deep]), c.dims(p.window[deep]), c.dims([0] * p.dimensions), pad, pad)
    image, result = (views[n] for n in (("x", "y") if case.direction == "forward" else ("dx", "dy")))
    source = blocked(dnn, image) if layout == "any" else dnn.desc_of(image)
    target = any_format(dnn, result) if layout == "any" else dnn.desc_of(result)
    purpose = c.FORWARD_INFERENCE if case.direction == "forward" else c.FORWARD_TRAINING
    create = "dnnl_pooling_forward_primitive_desc_create"
    forward = dnn.create(create, dnn.engine, purpose, c.POOLING[p.kind], source, target, *shape, None)
    ahead = "convert_s" if layout == "any" else None
    if case.direction == "forward":
        conversions = c.Conversions(dnn, forward)
        conversions.add(c.ARG_SRC, "x", image)
        conversions.add(c.ARG_DST, "y", result, output=True)
        return conversions.kernel(ahead)
    target = dnn.query_desc(forward, c.QUERY_ARGUMENT, c.ARG_DST)
    create = "dnnl_pooling_backward_primitive_desc_create"
    backward = dnn.create(create, dnn.engine, c.POOLING[p.kind], source, target, *shape, forward, None)
    conversions = c.Conversions(dnn, backward)
    conversions.add(c.ARG_DIFF_DST, "dy", result)
    conversions.add(c.ARG_DIFF_SRC, "dx", image, output=True)
    conversions.add_workspace()
    kernel = conversions.kernel(ahead)
    if c.ARG_WORKSPACE in conversions.arguments:
        _run_forward(dnn, forward, views["x"], result.shape, conversions)
    return kernel


def _run_forward(dnn: c.OneDNN, forward: c.Handle, x: Any, shape: tuple[int, ...], after: c.Conversions) -> None:
    """Fill the workspace of `after`."""
    conversions = c.Conversions(dnn, forward)
    conversions.add(c.ARG_SRC, "x", x)
    conversions.add(c.ARG_DST, "y", np.empty(shape, x.dtype), output=True)
    conversions.arguments[c.ARG_WORKSPACE] = after.arguments[c.ARG_WORKSPACE]
    dnn.run(conversions.kernel(ahead=None).calls)


def any_format(dnn: c.OneDNN, view: Any) -> c.Handle:
    """The format that oneDNN chooses."""
    return dnn.memory_desc_any(view.shape, type_name(view.dtype))


def blocked(dnn: c.OneDNN, view: Any) -> c.Handle:
    """Channels in blocks, as its convolutions leave them."""
    return dnn.memory_desc_any(view.shape, type_name(view.dtype), c.FORMAT_BLOCKS_OF_16[view.ndim])
