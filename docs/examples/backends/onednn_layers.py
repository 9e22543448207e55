"""Standardization through oneDNN, an example of a new oneDNN kernel."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from deepbench.backends.onednn import OneDNNBackend
from deepbench.core.backend import kernel
from deepbench.core.kernel import Kernel

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays

EPSILON = 1e-5

NO_FLAGS = 0  # dnnl_normalization_flags_none of dnnl_types.h: no scale, no shift


class OneDNNLayers(OneDNNBackend):
    name = "onednn_layers"
    title = "oneDNN with standardize"
    default = False

    @kernel("standardize", precisions=("f32", "bf16", "f16"))
    def standardize(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.native import onednn as c

        dnn = self.dnn
        primitive_desc = dnn.create(
            "dnnl_layer_normalization_forward_primitive_desc_create",
            dnn.engine,
            c.FORWARD_INFERENCE,
            dnn.desc_of(arrays["x"]),
            dnn.desc_of(arrays["y"]),
            None,  # stat_desc: oneDNN derives it from x
            ctypes.c_float(EPSILON),
            NO_FLAGS,
            None,  # attr: no post-operations, no scales
        )
        conversions = c.Conversions(dnn, primitive_desc)
        conversions.add(c.ARG_SRC, "x", arrays["x"])
        conversions.add(c.ARG_DST, "y", arrays["y"], output=True)
        return conversions.kernel(ahead=None)


BACKEND = OneDNNLayers()
