"""hipBLAS, AMD's counterpart of cuBLAS. Since version 3 (ROCm 7) its functions take the types that are passed here."""

from __future__ import annotations

import re

from deepbench.backends.cublas import CuBLAS
from deepbench.core.errors import Unavailable, Unsupported
from deepbench.native import library
from deepbench.native.gpu.vendor import HIP

# Version 2 numbers its types differently, so it would take ours for others.
LEAST_VERSION = 3


class HipBLAS(CuBLAS):
    name = "hipblas"
    title = "hipBLAS"
    tuning_variables = ("HIPBLAS_*", "ROCBLAS_*")
    device = "hip"
    vendor = HIP

    def start(self) -> None:
        version = self._version_of_file()
        if version is not None and int(version.split(".")[0]) < LEAST_VERSION:
            raise Unavailable(
                f"hipBLAS {LEAST_VERSION} or newer (ROCm 7) is needed, found version {version}",
                f"install ROCm 7 or newer, or name the file in {self.path_variable}",
            )
        super().start()

    def version(self) -> str:
        """From the library; before 3.5, which cannot tell it, from the name of its file."""
        try:
            return super().version()
        except Unsupported:
            return self._version_of_file() or f"{LEAST_VERSION} or newer"

    def _version_of_file(self) -> str | None:
        """`3.0.70000` of libhipblas.so.3.0.70000."""
        path = library.path_of(self.gpu.library(self.part), self.vendor.symbol("cublasGemmEx")) or ""
        found = re.search(r"\.so\.(\d+(?:\.\d+)*)$", path)
        return found[1] if found else None


BACKEND = HipBLAS()
