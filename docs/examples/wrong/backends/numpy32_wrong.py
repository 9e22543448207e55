"""NumPy in float32 with a deliberate mistake, which the check must find: the variance divides by one column less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepbench.core.backend import Backend, kernel
from deepbench.core.kernel import Kernel

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays

EPSILON = 1e-5


class WrongNumPy32(Backend):
    name = "numpy32_wrong"
    title = "NumPy float32, wrong"
    default = False

    def open(self) -> dict[str, Any]:
        import numpy

        return {"name": self.title, "version": numpy.__version__, "path": numpy.__file__}

    @kernel("standardize", precisions=("f32",))
    def standardize(self, case: Case, arrays: Arrays) -> Kernel:
        import numpy as np

        x, y = arrays["x"], arrays["y"]

        def run() -> None:
            mean = x.mean(axis=1, keepdims=True)
            variance = x.var(axis=1, keepdims=True, ddof=1)
            y[...] = (x - mean) / np.sqrt(variance + np.float32(EPSILON))

        return Kernel(run=run)


BACKEND = WrongNumPy32()
