"""hipSPARSELt, AMD's counterpart of cuSPARSELt."""

from __future__ import annotations

from deepbench.backends.cusparselt import CuSPARSELt
from deepbench.native.gpu.vendor import HIP


class HipSPARSELt(CuSPARSELt):
    name = "hipsparselt"
    title = "hipSPARSELt"
    device = "hip"
    vendor = HIP


BACKEND = HipSPARSELt()
