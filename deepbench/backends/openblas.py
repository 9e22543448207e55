"""OpenBLAS: SGEMM, and SBGEMM (bf16) where the build has it. Found in the wheel `scipy-openblas64`."""

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

# SciPy's wheels put a prefix and a suffix on every name, so that two OpenBLAS can live in one process; system
# builds with 64-bit integers have the suffix alone.
SPELLINGS = ("scipy_{}64_", "{}64_", "{}")
FORTRAN_SPELLINGS = ("scipy_{}_64_", "{}_64_", "{}_")


class OpenBLAS(Backend):
    name = "openblas"
    title = "OpenBLAS"
    loads_at_once = True

    def open(self) -> dict[str, Any]:
        self.library = library.load(
            self.title,
            "DEEPBENCH_OPENBLAS_PATH",
            ("scipy_openblas64/lib/libscipy_openblas64_*.so*", "libopenblas64_.so*", "libopenblas.so*"),
            needs=[spelling.format("sgemm") for spelling in FORTRAN_SPELLINGS],
            remedy="pip install scipy-openblas64, or name a libopenblas.so in DEEPBENCH_OPENBLAS_PATH",
        )
        config = self._text("openblas_get_config")
        parallel = self._function(SPELLINGS, "openblas_get_parallel")
        return {
            "name": self.title,
            "version": config.split()[1] if config.startswith("OpenBLAS ") else config,
            "path": library.path_of(self.library, self._name(FORTRAN_SPELLINGS, "sgemm")),
            "build": config,
            "cpu_kernels": self._text("openblas_get_corename"),
            "threading": {0: "none", 1: "own threads", 2: "OpenMP"}.get(parallel(), "unknown"),
        }

    @kernel("gemm", precisions=("f32",))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        return self._gemm("sgemm", case, arrays)

    @kernel("gemm", precisions=("bf16",))
    def gemm_bf16(self, case: Case, arrays: Arrays) -> Kernel:
        return self._gemm("sbgemm", case, arrays)

    def _gemm(self, routine: str, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.native.blas import gemm_call

        if case.settings["weights"] == "packed":
            raise Unsupported("OpenBLAS has no interface to pack weights ahead")
        if case.settings["result"] == "narrow" and routine == "sbgemm":
            raise Unsupported("OpenBLAS's sbgemm stores f32; choose result=wide")
        function = self._function(FORTRAN_SPELLINGS, routine)
        return Kernel(
            calls=(gemm_call(function, case.problem, case.settings, arrays),),
            notes={"implementation": routine},
        )

    def _name(self, spellings: tuple[str, ...], routine: str) -> str:
        for spelling in spellings:
            if hasattr(self.library, spelling.format(routine)):
                return spelling.format(routine)
        raise Unsupported(f"this build of OpenBLAS has no {routine}")

    def _function(self, spellings: tuple[str, ...], routine: str) -> Any:
        return self.library[self._name(spellings, routine)]

    def _text(self, routine: str) -> str:
        function = self._function(SPELLINGS, routine)
        function.restype = ctypes.c_char_p
        return str(function().decode(errors="replace"))


BACKEND = OpenBLAS()
