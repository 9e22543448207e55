"""hipBLASLt, AMD's counterpart of cuBLASLt."""

from __future__ import annotations

from deepbench.backends.cublaslt import CuBLASLt
from deepbench.native.gpu.vendor import HIP


class HipBLASLt(CuBLASLt):
    name = "hipblaslt"
    title = "hipBLASLt"
    tuning_variables = ("HIPBLASLT_*",)
    device = "hip"
    vendor = HIP


BACKEND = HipBLASLt()
