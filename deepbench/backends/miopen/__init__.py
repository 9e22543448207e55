"""MIOpen: AMD's convolutions and recurrent layers, in the place of cuDNN."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from deepbench.core.backend import kernel
from deepbench.core.kernel import Kernel
from deepbench.native.gpu.library import GpuBackend
from deepbench.native.gpu.vendor import HIP

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays

FLOATS = ("f32", "bf16", "f16")
DIRECTIONS = ("forward", "backward_data", "backward_weights")

# miopenDataType_t
TYPES = {"f16": 0, "f32": 1, "s32": 2, "s8": 3, "bf16": 5}


class MIOpen(GpuBackend):
    name = "miopen"
    title = "MIOpen"
    part = "miopen"
    device = "hip"
    vendor = HIP

    def start(self) -> None:
        self.miopen = self.handle("miopenCreateWithStream", self.gpu.stream)

    def version(self) -> str | None:
        numbers = [ctypes.c_size_t() for _ in range(3)]
        self.gpu.call("miopenGetVersion", *map(ctypes.byref, numbers))
        return ".".join(str(n.value) for n in numbers)

    def tensor(self, kind: str, sizes: list[int], strides: list[int]) -> ctypes.c_void_p:
        """A description of an array of a type of ours: its sizes, and strides in elements."""
        made, row = self.handle("miopenCreateTensorDescriptor"), ctypes.c_int * len(sizes)
        self.gpu.call("miopenSetTensorDescriptor", made, TYPES[kind], len(sizes), row(*sizes), row(*strides))
        return made

    @kernel("conv", precisions=FLOATS, directions=DIRECTIONS)
    def conv(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.miopen import conv

        return conv.prepare(self, case, arrays)

    @kernel("conv", precisions=("i8",))
    def conv_integer(self, case: Case, arrays: Arrays) -> Kernel:
        """Forward only: there is no gradient of integers."""
        return self.conv(case, arrays)

    @kernel("recurrent", precisions=FLOATS, directions=("forward", "backward", "backward_data", "backward_weights"))
    def recurrent(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.miopen import recurrent

        return recurrent.prepare(self, case, arrays)


BACKEND = MIOpen()
