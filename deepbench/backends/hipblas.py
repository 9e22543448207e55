"""hipBLAS: AMD's cuBLAS."""

from __future__ import annotations

from deepbench.backends.cublas import CuBLAS
from deepbench.native.gpu.vendor import HIP


class HipBLAS(CuBLAS):
    name = "hipblas"
    title = "hipBLAS"
    device = "hip"
    vendor = HIP


BACKEND = HipBLAS()
