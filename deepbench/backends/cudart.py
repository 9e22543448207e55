"""The CUDA runtime: copies within the memory of the GPU, which measure its bandwidth."""

from __future__ import annotations

from deepbench.core.backend import kernel
from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native.gpu.library import GpuBackend


class CudaRuntime(GpuBackend):
    name = "cudart"
    title = "CUDA runtime"
    part = "runtime"

    def version(self) -> str:
        return self.vendor.runtime_version(self.number("cudaRuntimeGetVersion"))

    @kernel("memory", precisions=("f32",))
    def memory(self, case: Case, arrays: Arrays) -> Kernel:
        if case.problem.kind != "copy":
            raise Unsupported(f"the {self.title} has no function for kind={case.problem.kind}; choose kind=copy")
        buffers = self.buffers(case, arrays)
        to, source, size = buffers.address["c"], buffers.address["a"], arrays["a"].nbytes
        copy = self.prepare_call("cudaMemcpyAsync", to, source, size, self.vendor.ON_DEVICE, self.gpu.stream)
        return self.kernel([copy], buffers, arrays, {"implementation": self.vendor.symbol("cudaMemcpyAsync")})


BACKEND = CudaRuntime()
