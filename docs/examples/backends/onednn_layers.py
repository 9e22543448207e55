"""Layer normalisation through oneDNN, an example of a new oneDNN kernel."""

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

# dnnl_types.h of oneDNN 3.2: dnnl_normalization_flags_t and DNNL_ARG_*
USE_SCALE, USE_SHIFT = 0x2, 0x4
ARG_SCALE, ARG_SHIFT = 51, 52


class OneDNNLayers(OneDNNBackend):
    name = "onednn_layers"
    title = "oneDNN with layer_norm"
    default = False

    @kernel("layer_norm", precisions=("f32", "bf16", "f16"))
    def layer_norm(self, case: Case, arrays: Arrays) -> Kernel:
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
            USE_SCALE | USE_SHIFT,
            None,  # attr: no post-operations, no scales
        )
        conversions = c.Conversions(dnn, primitive_desc)
        conversions.add(c.ARG_SRC, "x", arrays["x"])
        conversions.add(ARG_SCALE, "scale", arrays["scale"])
        conversions.add(ARG_SHIFT, "shift", arrays["shift"])
        conversions.add(c.ARG_DST, "y", arrays["y"], output=True)
        return conversions.kernel(ahead=None)


BACKEND = OneDNNLayers()
