"""RCCL, AMD's counterpart of NCCL, with the same function names."""

from __future__ import annotations

from deepbench.backends.nccl import NCCL
from deepbench.native.gpu.vendor import HIP


class RCCL(NCCL):
    name = "rccl"
    title = "RCCL"
    tuning_variables = ("RCCL_*",)
    device = "hip"
    vendor = HIP


BACKEND = RCCL()
