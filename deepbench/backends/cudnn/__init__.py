"""cuDNN: convolutions through its graph interface, recurrent layers through its RNN functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepbench.core.backend import kernel
from deepbench.core.kernel import Kernel
from deepbench.native.gpu.library import GpuBackend

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays
    from deepbench.native.gpu.cudnn import Descriptor

# Sums in f16 are left to matrix products: in layers they may be so far off that a check would say nothing.
FLOATS = ("f32", "tf32", "bf16", "f16")
DIRECTIONS = ("forward", "backward_data", "backward_weights")


class CuDNN(GpuBackend):
    name = "cudnn"
    title = "cuDNN"
    part = "dnn"

    def start(self) -> None:
        self.dnn = self.handle("cudnnCreate")
        self.gpu.call("cudnnSetStream", self.dnn, self.gpu.stream)
        # What the search chose, by case: configuration and plan.
        self.plans: dict[str, tuple[Descriptor, Descriptor]] = {}

    def version(self) -> str | None:
        number = self.gpu.function("cudnnGetVersion")()
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    @kernel("conv", precisions=FLOATS, directions=DIRECTIONS)
    def conv(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.cudnn import conv

        return conv.prepare(self, case, arrays)

    @kernel("conv", precisions=("i8",))
    def conv_integer(self, case: Case, arrays: Arrays) -> Kernel:
        """Forward only: there is no gradient of integers."""
        return self.conv(case, arrays)

    @kernel("recurrent", precisions=FLOATS, directions=("forward", "backward", "backward_data", "backward_weights"))
    def recurrent(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.cudnn import recurrent

        return recurrent.prepare(self, case, arrays)


BACKEND = CuDNN()
