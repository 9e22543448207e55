"""Reduction in oneDNN."""

from __future__ import annotations

import ctypes

from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native import onednn as c


def prepare(dnn: c.OneDNN, case: Case, arrays: Arrays) -> Kernel:
    """The result has an axis of length 1 where the matrix is reduced."""
    x = arrays["x"]
    y = arrays["y"].reshape((-1, 1) if case.problem.axis == "columns" else (1, -1))
    if x.shape == y.shape:
        raise Unsupported("oneDNN refuses a reduction of one number")
    zero = ctypes.c_float(0.0)
    primitive_desc = dnn.create(
        "dnnl_reduction_primitive_desc_create",
        dnn.engine,
        c.REDUCTION[case.problem.kind],
        dnn.desc_of(x),
        dnn.desc_of(y),
        zero,  # p and eps are for norms
        zero,
        None,
    )
    conversions = c.Conversions(dnn, primitive_desc)
    conversions.add(c.ARG_SRC, "x", x)
    conversions.add(c.ARG_DST, "y", y, output=True)
    return conversions.kernel(ahead=None)
