"""BLIS, as an example of a new library: SGEMM through its Fortran interface."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from deepbench.core.backend import Backend, kernel
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.native import library

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays


class BLIS(Backend):
    name = "blis"
    title = "BLIS"

    def open(self) -> dict[str, Any]:
        self.library = library.load(
            self.title,
            "DEEPBENCH_BLIS_PATH",
            ("libblis.so*",),
            needs=("sgemm_",),
            remedy="apt install libblis4-openmp, or name a libblis.so in DEEPBENCH_BLIS_PATH",
        )
        version = None
        if hasattr(self.library, "bli_info_get_version_str"):
            self.library.bli_info_get_version_str.restype = ctypes.c_char_p
            version = self.library.bli_info_get_version_str().decode()
        return {"name": self.title, "version": version, "path": library.path_of(self.library, "sgemm_")}

    @kernel("gemm", precisions=("f32",))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.native.blas import gemm_call

        if case.settings["weights"] == "packed":
            raise Unsupported("BLIS has no interface to pack weights ahead")
        call = gemm_call(self.library.sgemm_, case.problem, case.settings, arrays)
        return Kernel(calls=(call,), notes={"implementation": "sgemm"})


BACKEND = BLIS()
