"""MIOpen, AMD's library for convolutions and recurrent layers; the counterpart of cuDNN."""

from __future__ import annotations

import ctypes

from deepbench.core.backend import kernel
from deepbench.core.case import Case
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native.gpu.library import GpuBackend
from deepbench.native.gpu.vendor import HIP

FLOATS = ("f32", "bf16", "f16")


class MIOpen(GpuBackend):
    name = "miopen"
    title = "MIOpen"
    part = "miopen"
    device = "hip"
    vendor = HIP
    tuning_variables = ("MIOPEN_*",)

    def start(self) -> None:
        self.handle = self.create("miopenCreateWithStream", self.gpu.stream)

    def version(self) -> str:
        numbers = [ctypes.c_size_t() for _ in range(3)]
        self.gpu.call("miopenGetVersion", *map(ctypes.byref, numbers))
        return ".".join(str(n.value) for n in numbers)

    @kernel("conv", precisions=FLOATS, directions=("forward", "backward_data", "backward_weights"))
    @kernel("conv", precisions=("i8",))  # integers have no gradient
    def conv(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.miopen import conv

        return conv.prepare(self, case, arrays)

    @kernel("recurrent", precisions=FLOATS, directions=("forward", "backward", "backward_data", "backward_weights"))
    def recurrent(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.miopen import recurrent

        return recurrent.prepare(self, case, arrays)


BACKEND = MIOpen()
