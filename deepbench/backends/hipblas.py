"""hipBLAS, AMD's counterpart of cuBLAS."""

from __future__ import annotations

from deepbench.backends.cublas import CuBLAS
from deepbench.native.gpu.vendor import HIP


class HipBLAS(CuBLAS):
    name = "hipblas"
    title = "hipBLAS"
    tuning_variables = ("HIPBLAS_*", "ROCBLAS_*")
    device = "hip"
    vendor = HIP


BACKEND = HipBLAS()
