"""cuDNN: convolutions through its graph interface, recurrent layers through its RNN functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepbench.core.backend import kernel
from deepbench.core.case import Case
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native.gpu.library import GpuBackend
from deepbench.native.library import version_text

if TYPE_CHECKING:
    from deepbench.native.gpu.cudnn import Descriptor

# Not `f16f16`: in layers, sums in f16 have errors so large that a check would mean nothing.
FLOATS = ("f32", "tf32", "bf16", "f16")


class CuDNN(GpuBackend):
    name = "cudnn"
    title = "cuDNN"
    part = "dnn"
    tuning_variables = ("CUDNN_*",)

    def start(self) -> None:
        self.handle = self.create("cudnnCreate")
        self.gpu.call("cudnnSetStream", self.handle, self.gpu.stream)
        # The search's choice by case: configuration and plan.
        self.plans: dict[str, tuple[Descriptor, Descriptor]] = {}

    def version(self) -> str:
        return version_text(self.gpu.function("cudnnGetVersion")())

    @kernel("conv", precisions=FLOATS, directions=("forward", "backward_data", "backward_weights"))
    @kernel("conv", precisions=("i8",))  # integers have no gradient
    def conv(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.cudnn import conv

        return conv.prepare(self, case, arrays, self.plans)

    @kernel("recurrent", precisions=FLOATS, directions=("forward", "backward", "backward_data", "backward_weights"))
    def recurrent(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.cudnn import recurrent

        return recurrent.prepare(self, case, arrays)


BACKEND = CuDNN()
