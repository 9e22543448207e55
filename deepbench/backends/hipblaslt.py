"""hipBLASLt: AMD's cuBLASLt."""

from __future__ import annotations

from deepbench.backends.cublaslt import CuBLASLt
from deepbench.native.gpu.vendor import HIP


class HipBLASLt(CuBLASLt):
    name = "hipblaslt"
    title = "hipBLASLt"
    device = "hip"
    vendor = HIP


BACKEND = HipBLASLt()
