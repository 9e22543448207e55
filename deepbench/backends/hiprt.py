"""The HIP runtime, AMD's counterpart of the CUDA runtime."""

from __future__ import annotations

from deepbench.backends.cudart import CudaRuntime
from deepbench.native.gpu.vendor import HIP


class HipRuntime(CudaRuntime):
    name = "hiprt"
    title = "HIP runtime"
    device = "hip"
    vendor = HIP


BACKEND = HipRuntime()
