"""RCCL: AMD's NCCL, under the same names."""

from __future__ import annotations

from deepbench.backends.nccl import NCCL
from deepbench.native.gpu.vendor import HIP


class RCCL(NCCL):
    name = "rccl"
    title = "RCCL"
    device = "hip"
    vendor = HIP


BACKEND = RCCL()
