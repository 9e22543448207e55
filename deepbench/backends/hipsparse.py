"""hipSPARSE, AMD's counterpart of cuSPARSE."""

from __future__ import annotations

from deepbench.backends.cusparse import CuSPARSE
from deepbench.native.gpu.vendor import HIP


class HipSPARSE(CuSPARSE):
    name = "hipsparse"
    title = "hipSPARSE"
    device = "hip"
    vendor = HIP


BACKEND = HipSPARSE()
