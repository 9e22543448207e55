"""SciPy's compressed sparse rows: plain C++ loops on one thread. Takes the place of Eigen in the original benchmark."""

from __future__ import annotations

from typing import Any

from deepbench.core.backend import Backend, kernel
from deepbench.core.case import Case
from deepbench.core.errors import IMPORT_ERRORS, not_loaded
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays


class SciPy(Backend):
    name = "scipy"
    title = "SciPy"
    loads_at_once = True

    def open(self) -> dict[str, Any]:
        try:
            import scipy.sparse
        except IMPORT_ERRORS as error:
            raise not_loaded("SciPy", error, "pip install scipy") from None
        return {"name": self.title, "version": scipy.__version__, "path": scipy.__file__, "threading": "none"}

    @kernel("sparse_gemm", precisions=("f32",))
    def sparse_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """`c += a @ b`, or `c[:] = a @ b` if beta = 0; always on one thread."""
        import numpy as np
        from scipy.sparse import csr_array

        p = case.problem
        a = csr_array((p.m, p.k), dtype=np.float32)
        # The constructor would copy our arrays, which are aligned views of larger ones.
        a.data, a.indices, a.indptr = arrays["values"], arrays["columns"], arrays["row_starts"]
        by_row = case.settings["order"] == "row"
        b, c = (arrays[x] if by_row else arrays[x].T for x in "bc")
        if p.n == 1:
            b, c = b[:, 0], c[:, 0]

        def accumulate() -> None:
            np.add(c, a @ b, out=c)

        def overwrite() -> None:
            c[...] = a @ b

        run = accumulate if case.settings["beta"] == "1" else overwrite
        return Kernel(run=run, notes={"implementation": "csr_array @", "threads_used": 1})


BACKEND = SciPy()
