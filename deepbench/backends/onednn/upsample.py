"""Upsampling by oneDNN's resampling primitive, and an addition by a second primitive, in place.

In oneDNN 3.2, an addition as a post-operation of resampling runs in a slow general implementation and, with the
channels last, adds the wrong elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deepbench.backends.onednn.pooling import any_format, blocked
from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel, in_turn
from deepbench.core.op import Arrays
from deepbench.native import onednn as c


def prepare(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """With `layout=any`, channels are in blocks, as oneDNN's convolutions leave them."""
    layout = case.settings["layout"]
    views = {n: np.moveaxis(a, -1, 1) if layout == "nhwc" else a for n, a in arrays.items()}
    forward = case.direction == "forward"
    small, large = (views[n] for n in (("x", "y") if forward else ("dx", "dy")))
    if layout == "any" and "z" in views:
        raise Unsupported("the addition is described for arrays as they are stored only; choose layout=nchw or nhwc")
    source = blocked(dnn, small) if layout == "any" else dnn.desc_of(small)
    target = any_format(dnn, large) if layout == "any" else dnn.desc_of(large)
    purpose = c.FORWARD_INFERENCE if forward else c.FORWARD_TRAINING
    # The factors follow from the sizes.
    shape = (c.RESAMPLING_NEAREST, None, source, target)
    hint = dnn.create("dnnl_resampling_forward_primitive_desc_create", dnn.engine, purpose, *shape, None)
    ahead = "convert_s" if layout == "any" else None
    if forward:
        conversions = c.Conversions(dnn, hint)
        conversions.add(c.ARG_SRC, "x", small)
        conversions.add(c.ARG_DST, "y", large, output=True)
        kernel = conversions.kernel(ahead)
        return _then_added(dnn, kernel, large, views["z"]) if "z" in views else kernel
    target = dnn.query_desc(hint, c.QUERY_ARGUMENT, c.ARG_DST)
    shape = (c.RESAMPLING_NEAREST, None, source, target)
    backward = dnn.create("dnnl_resampling_backward_primitive_desc_create", dnn.engine, *shape, hint, None)
    conversions = c.Conversions(dnn, backward)
    conversions.add(c.ARG_DIFF_DST, "dy", large)
    conversions.add(c.ARG_DIFF_SRC, "dx", small, output=True)
    return conversions.kernel(ahead)


def _then_added(dnn: c.OneDNN, kernel: Kernel, y: Any, z: Any) -> Kernel:
    """The kernel and then y = y + z."""
    desc_y, desc_z = dnn.desc_of(y), dnn.desc_of(z)
    create = "dnnl_binary_primitive_desc_create"
    desc = dnn.create(create, dnn.engine, c.BINARY_ADD, desc_y, desc_z, desc_y, None)
    target = dnn.memory(desc_y, y)
    memories = {c.ARG_SRC: target, c.ARG_SRC_1: dnn.memory(desc_z, z), c.ARG_DST: target}
    calls = dnn.execution(dnn.create("dnnl_primitive_create", desc), memories)
    both = in_turn([kernel, Kernel(calls=calls, keep=(y, z))])
    name = f"{kernel.notes['implementation']} and {dnn.facts(desc)['implementation']}"
    both.notes = {**kernel.notes, "implementation": name}
    return both
