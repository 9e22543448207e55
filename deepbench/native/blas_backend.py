"""The base class of libraries that are called through Fortran's BLAS interface: one product, and several."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar

from deepbench.core.backend import Backend, kernel
from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel, NativeFunction
from deepbench.core.op import Arrays
from deepbench.core.product import Product, products_of
from deepbench.native import blas, library


class BlasBackend(Backend):
    """SGEMM, alone and in batches. `open` sets `library`. Where a library has SBGEMM, methods are marked anew."""

    library: ctypes.CDLL
    fortran_spellings: ClassVar[tuple[str, ...]] = ("{}_64_", "{}_")
    """How the library may spell a routine of Fortran, in the order of preference."""

    @kernel("gemm", precisions=("f32",))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        if case.settings["weights"] == "packed":
            raise Unsupported(f"{self.title} has no interface to pack weights ahead")
        routine = self._routine(case)
        call = blas.gemm_call(self.fortran(routine), case.problem, case.settings, arrays)
        return Kernel(calls=(call,), notes={"implementation": routine})

    @kernel("batched_gemm", precisions=("f32",))
    def batched_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """`sgemm_batch_strided` if the build has it; in bf16 one call of SBGEMM after another."""
        products = products_of(case, arrays)
        strided = self.find_fortran("sgemm_batch_strided")
        if case.precision.name != "f32" or strided is None:
            return self._one_by_one(case, products)
        call = blas.strided_call(strided, products, arrays)
        return Kernel(calls=(call,), notes={"implementation": "sgemm_batch_strided"})

    @kernel("grouped_gemm", precisions=("f32",), directions=("forward", "backward_weights"))
    def grouped_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """`sgemm_batch` if the build has it, with a group for each expert; in bf16 one call after another."""
        products = products_of(case, arrays)
        batch = self.find_fortran("sgemm_batch")
        if case.precision.name != "f32" or batch is None:
            return self._one_by_one(case, products)
        call = blas.batch_call(batch, products)
        return Kernel(calls=(call,), keep=(arrays,), notes={"implementation": "sgemm_batch"})

    def _one_by_one(self, case: Case, products: Sequence[Product]) -> Kernel:
        """A call for each product."""
        routine = self._routine(case)
        calls = tuple(blas.product_call(self.fortran(routine), p) for p in products)
        return Kernel(calls=calls, notes={"implementation": f"{routine}, {len(calls)} calls"})

    def _routine(self, case: Case) -> str:
        routine = {"f32": "sgemm", "bf16": "sbgemm"}[case.precision.name]
        if case.settings["result"] == "narrow" and routine == "sbgemm":
            raise Unsupported(f"{self.title}'s sbgemm stores f32; choose result=wide")
        return routine

    def find_fortran(self, routine: str) -> Any:
        """A routine of Fortran's interface, or None."""
        return library.first_symbol(self.library, [spelling.format(routine) for spelling in self.fortran_spellings])

    def fortran(self, routine: str) -> NativeFunction:
        """The same; `Unsupported` where this build lacks it."""
        function: NativeFunction | None = self.find_fortran(routine)
        if function is None:
            raise Unsupported(f"this build of {self.title} has no {routine}")
        return function
