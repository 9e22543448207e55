"""NVIDIA's NVPL BLAS for Arm processors, such as Grace: SGEMM, alone and in batches. PyPI has it as `nvpl-blas`."""

from __future__ import annotations

from typing import Any

from deepbench.core.errors import Unavailable
from deepbench.machine import describe
from deepbench.native import library
from deepbench.native.blas_backend import BlasBackend


class NVPL(BlasBackend):
    name = "nvpl"
    title = "NVPL BLAS"
    platforms = ("linux-aarch64",)
    path_variable = "DEEPBENCH_NVPL_PATH"
    package = "nvpl-blas"

    def open(self) -> dict[str, Any]:
        if not self.exists_here:
            raise Unavailable("made for Linux on Arm processors", "OpenBLAS has matrix products here")
        if "atomics" not in describe.instructions():  # its first product would end the process
            raise Unavailable("needs Armv8.1, which this CPU is not (atomics)", "OpenBLAS has matrix products here")
        # Of the two with OpenMP: GCC's runtime is the one that other libraries here use.
        self.library = library.load(
            self.title,
            self.path_variable,
            ("nvpl/lib/libnvpl_blas_ilp64_gomp.so*", "libnvpl_blas_ilp64_gomp.so*", "libnvpl_blas_lp64_gomp.so*"),
            needs=("sgemm_64_", "sgemm_"),
            remedy="pip install nvpl-blas, or name a libnvpl_blas_ilp64_gomp.so in DEEPBENCH_NVPL_PATH",
        )
        return {
            "name": self.title,
            "version": library.version_text(self.library.nvpl_blas_get_version()),
            "path": library.path_of(self.library, "sgemm_"),
            "threading": "OpenMP",
        }

    def threads_in_use(self) -> int | None:
        return int(self.library.nvpl_blas_get_max_threads())


BACKEND = NVPL()
