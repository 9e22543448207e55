"""BLIS with a deliberate mistake, which the check must find: it ignores beta and overwrites C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepbench.core.backend import Backend, kernel
from deepbench.core.kernel import Kernel
from deepbench.native import library

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays


class WrongBLIS(Backend):
    name = "blis_wrong"
    title = "BLIS, wrong"
    default = False
    path_variable = "DEEPBENCH_BLIS_PATH"

    def open(self) -> dict[str, Any]:
        remedy = "name a libblis.so in DEEPBENCH_BLIS_PATH"
        self.library = library.load(self.title, self.path_variable, ("libblis.so*",), ("sgemm_",), remedy)
        return {"name": self.title, "version": None, "path": library.path_of(self.library, "sgemm_")}

    @kernel("gemm", precisions=("f32",))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.native.blas import gemm_call

        settings = {**case.settings, "beta": "0"}
        return Kernel(calls=(gemm_call(self.library.sgemm_, case.problem, settings, arrays),))


BACKEND = WrongBLIS()
