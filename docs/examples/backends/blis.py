"""BLIS, an example of a new library: SGEMM through its Fortran interface."""

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
    path_variable = "DEEPBENCH_BLIS_PATH"
    thread_variables = ("BLIS_NUM_THREADS",)
    override_variables = ("BLIS_JC_NT", "BLIS_PC_NT", "BLIS_IC_NT", "BLIS_JR_NT", "BLIS_IR_NT")
    tuning_variables = ("BLIS_*",)

    def open(self) -> dict[str, Any]:
        self.library = library.load(
            self.title,
            self.path_variable,
            ("libblis.so*",),
            needs=("sgemm_",),
            remedy="apt install libblis4-openmp, or name a libblis.so in DEEPBENCH_BLIS_PATH",
        )
        version = None
        if hasattr(self.library, "bli_info_get_version_str"):
            self.library.bli_info_get_version_str.restype = ctypes.c_char_p
            version = self.library.bli_info_get_version_str().decode()
        return {"name": self.title, "version": version, "path": library.path_of(self.library, "sgemm_")}

    def threads_in_use(self) -> int | None:
        if not hasattr(self.library, "bli_thread_get_num_threads"):
            return None
        self.library.bli_thread_get_num_threads.restype = ctypes.c_int64
        return int(self.library.bli_thread_get_num_threads())

    @kernel("gemm", precisions=("f32",))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.native.blas import gemm_call

        if case.settings["weights"] == "packed":
            raise Unsupported("BLIS has no interface to pack weights in advance")
        call = gemm_call(self.library.sgemm_, case.problem, case.settings, arrays)
        return Kernel(calls=(call,), notes={"implementation": "sgemm"})


BACKEND = BLIS()
