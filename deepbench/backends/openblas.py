"""OpenBLAS: SGEMM, and SBGEMM (bf16) if the build has it. PyPI has it as `scipy-openblas64`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from deepbench.core.backend import Backend, kernel
from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.core.product import Product, products_of
from deepbench.native import blas, library

# SciPy's wheels add a prefix and a suffix to every name, so that two copies of OpenBLAS can be in one process. System
# builds with 64-bit integers add only the suffix.
SPELLINGS = ("scipy_{}64_", "{}64_", "{}")
FORTRAN_SPELLINGS = ("scipy_{}_64_", "{}_64_", "{}_")


class OpenBLAS(Backend):
    name = "openblas"
    title = "OpenBLAS"
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
            needs=[spelling.format("sgemm") for spelling in FORTRAN_SPELLINGS],
            remedy="pip install scipy-openblas64, or name a libopenblas.so in DEEPBENCH_OPENBLAS_PATH",
        )
        config = self._text("openblas_get_config")
        parallel = self._function(SPELLINGS, "openblas_get_parallel")
        return {
            "name": self.title,
            "version": config.split()[1] if config.startswith("OpenBLAS ") else config,
            "path": library.path_of(self.library, self._function(FORTRAN_SPELLINGS, "sgemm").__name__),
            "build": config,
            "cpu_kernels": self._text("openblas_get_corename"),
            "threading": {0: "none", 1: "own threads", 2: "OpenMP"}.get(parallel(), "unknown"),
        }

    def threads_in_use(self) -> int | None:
        return int(self._function(SPELLINGS, "openblas_get_num_threads")())

    @kernel("gemm", precisions=("f32", "bf16"))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        if case.settings["weights"] == "packed":
            raise Unsupported("OpenBLAS has no interface to pack weights ahead")
        routine = self._routine(case)
        call = blas.gemm_call(self._function(FORTRAN_SPELLINGS, routine), case.problem, case.settings, arrays)
        return Kernel(calls=(call,), notes={"implementation": routine})

    @kernel("batched_gemm", precisions=("f32", "bf16"))
    def batched_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """`sgemm_batch_strided` if the build has it; in bf16 one call of SBGEMM after another."""
        products = products_of(case, arrays)
        strided = self._find(FORTRAN_SPELLINGS, "sgemm_batch_strided")
        if case.precision.name != "f32" or strided is None:
            return self._one_by_one(case, products)
        call = blas.strided_call(strided, products, arrays)
        return Kernel(calls=(call,), notes={"implementation": "sgemm_batch_strided"})

    @kernel("grouped_gemm", precisions=("f32", "bf16"), directions=("forward", "backward_weights"))
    def grouped_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """`sgemm_batch` if the build has it, with a group for each expert; in bf16 one call after another."""
        products = products_of(case, arrays)
        batch = self._find(FORTRAN_SPELLINGS, "sgemm_batch")
        if case.precision.name != "f32" or batch is None:
            return self._one_by_one(case, products)
        call = blas.batch_call(batch, products)
        return Kernel(calls=(call,), keep=(arrays,), notes={"implementation": "sgemm_batch"})

    def _one_by_one(self, case: Case, products: Sequence[Product]) -> Kernel:
        """A call for each product."""
        routine = self._routine(case)
        calls = tuple(blas.product_call(self._function(FORTRAN_SPELLINGS, routine), p) for p in products)
        return Kernel(calls=calls, notes={"implementation": f"{routine}, {len(calls)} calls"})

    def _routine(self, case: Case) -> str:
        routine = {"f32": "sgemm", "bf16": "sbgemm"}[case.precision.name]
        if case.settings["result"] == "narrow" and routine == "sbgemm":
            raise Unsupported("OpenBLAS's sbgemm stores f32; choose result=wide")
        return routine

    def _find(self, spellings: tuple[str, ...], routine: str) -> Any:
        return library.first_symbol(self.library, [spelling.format(routine) for spelling in spellings])

    def _function(self, spellings: tuple[str, ...], routine: str) -> Any:
        function = self._find(spellings, routine)
        if function is None:
            raise Unsupported(f"this build of OpenBLAS has no {routine}")
        return function

    def _text(self, routine: str) -> str:
        function = self._function(SPELLINGS, routine)
        function.restype = ctypes.c_char_p
        return str(function().decode(errors="replace"))


BACKEND = OpenBLAS()
