"""Apple's Accelerate, part of macOS: SGEMM on the processor's matrix unit. It was never tried on such a machine."""

from __future__ import annotations

import platform
from typing import Any

from deepbench.core.errors import Unavailable
from deepbench.native import library
from deepbench.native.blas_backend import BlasBackend


class Accelerate(BlasBackend):
    name = "accelerate"
    title = "Accelerate"
    platforms = ("darwin-arm64", "darwin-x86_64")
    path_variable = "DEEPBENCH_ACCELERATE_PATH"
    loads_at_once = True
    fortran_spellings = ("{}_",)
    thread_variables = ("VECLIB_MAXIMUM_THREADS",)

    def open(self) -> dict[str, Any]:
        if not self.exists_here:
            raise Unavailable("part of macOS", "OpenBLAS has matrix products here")
        # The system's libraries are no files since macOS 11: the loader knows their paths.
        self.library = library.load(
            self.title,
            self.path_variable,
            ("/System/Library/Frameworks/Accelerate.framework/Accelerate",),
            needs=("sgemm_",),
            remedy="nothing: macOS should have it",
        )
        return {
            "name": self.title,
            "version": f"macOS {platform.mac_ver()[0]}",
            "path": library.path_of(self.library, "sgemm_"),
            "threading": "own threads",
        }


BACKEND = Accelerate()
