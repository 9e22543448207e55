"""cuDNN: recurrent layers through its RNN functions, everything else through its graph interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepbench.core.backend import kernel
from deepbench.core.case import Case
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native.gpu.library import GpuBackend
from deepbench.native.library import version_text

if TYPE_CHECKING:
    from deepbench.backends.cudnn.plans import ChosenPlan

# Not `f16f16`: in layers, sums in f16 have errors so large that a check would mean nothing.
FLOATS = ("f32", "tf32", "bf16", "f16")
DATA, HALVES = ("f32", "bf16", "f16"), ("bf16", "f16")


class CuDNN(GpuBackend):
    name = "cudnn"
    title = "cuDNN"
    part = "dnn"
    tuning_variables = ("CUDNN_*",)

    def start(self) -> None:
        self.handle = self.create("cudnnCreate")
        self.gpu.call("cudnnSetStream", self.handle, self.gpu.stream)
        # The search's choice by case.
        self.plans: dict[str, ChosenPlan] = {}

    def version(self) -> str:
        return version_text(self.gpu.function("cudnnGetVersion")())

    @kernel("conv", precisions=FLOATS, directions=("forward", "backward_data", "backward_weights"))
    @kernel("conv", precisions=("i8",))  # integers have no gradient
    def conv(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.cudnn import conv

        return conv.prepare(self, case, arrays, self.plans)

    @kernel("attention", precisions=HALVES, directions=("forward", "backward"))
    def attention(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.cudnn import attention

        return attention.prepare(self, case, arrays, self.plans)

    @kernel("layer_norm", precisions=DATA, directions=("forward", "backward"))
    @kernel("rms_norm", precisions=DATA, directions=("forward", "backward"))
    @kernel("batch_norm", precisions=DATA, directions=("forward", "backward"))
    def norm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.cudnn import norm

        return norm.prepare(self, case, arrays, self.plans)

    @kernel("recurrent", precisions=FLOATS, directions=("forward", "backward", "backward_data", "backward_weights"))
    def recurrent(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.cudnn import recurrent

        return recurrent.prepare(self, case, arrays)


BACKEND = CuDNN()
