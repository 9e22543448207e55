"""OpenBLAS: SGEMM, and SBGEMM (bf16) if the build has it. PyPI has it as `scipy-openblas64`."""

from __future__ import annotations

import ctypes
from typing import Any

from deepbench.core.backend import kernel
from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native import library
from deepbench.native.blas_backend import BlasBackend

# SciPy's wheels add a prefix and a suffix to every name, so that two copies of OpenBLAS can be in one process. System
# builds with 64-bit integers add only the suffix.
SPELLINGS = ("scipy_{}64_", "{}64_", "{}")


class OpenBLAS(BlasBackend):
    name = "openblas"
    title = "OpenBLAS"
    fortran_spellings = ("scipy_{}_64_", "{}_64_", "{}_")
    loads_at_once = True
    path_variable = "DEEPBENCH_OPENBLAS_PATH"
    package = "scipy-openblas64"
    thread_variables = ("OPENBLAS_NUM_THREADS",)
    override_variables = ("GOTO_NUM_THREADS", "OPENBLAS_MAIN_FREE")
    tuning_variables = (
        *("OPENBLAS_CORETYPE", "OPENBLAS_VERBOSE", "OPENBLAS_THREAD_TIMEOUT", "OPENBLAS_DEFAULT_NUM_THREADS"),
        *("OPENBLAS_BLOCK_FACTOR", "OPENBLAS_L2_SIZE"),
    )

    def open(self) -> dict[str, Any]:
        self.library = library.load(
            self.title,
            self.path_variable,
            ("scipy_openblas64/lib/libscipy_openblas64_*.so*", "libopenblas64_.so*", "libopenblas.so*"),
            needs=[spelling.format("sgemm") for spelling in self.fortran_spellings],
            remedy="pip install scipy-openblas64, or name a libopenblas.so in DEEPBENCH_OPENBLAS_PATH",
        )
        config = self._text("openblas_get_config")
        parallel = self._own("openblas_get_parallel")
        return {
            "name": self.title,
            "version": config.split()[1] if config.startswith("OpenBLAS ") else config,
            "path": library.path_of(self.library, self.fortran("sgemm").__name__),
            "build": config,
            "cpu_kernels": self._text("openblas_get_corename"),
            "threading": {0: "none", 1: "own threads", 2: "OpenMP"}.get(parallel(), "unknown"),
        }

    def threads_in_use(self) -> int | None:
        return int(self._own("openblas_get_num_threads")())

    @kernel("gemm", precisions=("f32", "bf16"))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        return super().gemm(case, arrays)

    @kernel("batched_gemm", precisions=("f32", "bf16"))
    def batched_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        return super().batched_gemm(case, arrays)

    @kernel("grouped_gemm", precisions=("f32", "bf16"), directions=("forward", "backward_weights"))
    def grouped_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        return super().grouped_gemm(case, arrays)

    def _own(self, routine: str) -> Any:
        """A function of OpenBLAS alone."""
        function = library.first_symbol(self.library, [spelling.format(routine) for spelling in SPELLINGS])
        if function is None:
            raise Unsupported(f"this build of OpenBLAS has no {routine}")
        return function

    def _text(self, routine: str) -> str:
        function = self._own(routine)
        function.restype = ctypes.c_char_p
        return str(function().decode(errors="replace"))


BACKEND = OpenBLAS()
