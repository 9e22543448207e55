"""oneDNN through its C API: products, convolution, recurrent layers, normalization, attention; see the files here.

`onednn-cpu-gomp` (GNU OpenMP) is the default, unless the system or conda has a newer libdnnl. After it comes the copy
in PyPI's `paddlepaddle`, which is newer and has GNU OpenMP, too: see docs/adding-a-library.md. PyPI's newest `onednn`
is built on SYCL, which adds microseconds to each call: such a build is used here only if the user names it, and has a
backend of its own, `backends/onednn_sycl.py`.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any, ClassVar

from deepbench.core.backend import Backend, kernel
from deepbench.core.case import Case
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.native import library

if TYPE_CHECKING:
    from deepbench.native.onednn import OneDNN

# Where it may be, in order of preference.
FILES = ("libdnnl.so*", "paddle/libs/libdnnl.so*")
# Since version 3.
NEEDS = ("dnnl_matmul_primitive_desc_create",)


def uses_sycl(path: str) -> bool:
    """Whether the file depends on a SYCL runtime."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"libsycl.so") >= 0


class OneDNNBackend(Backend):
    dnn: OneDNN
    name = "onednn"
    title = "oneDNN"
    loads_at_once = True
    path_variable = "DEEPBENCH_ONEDNN_PATH"
    tuning_variables: ClassVar[tuple[str, ...]] = ("ONEDNN_*", "DNNL_*")
    package: ClassVar[str | None] = "onednn-cpu-gomp"

    def open(self) -> dict[str, Any]:
        from deepbench.native.onednn import OneDNN

        loaded = library.load(
            self.title,
            self.path_variable,
            FILES,
            needs=NEEDS,
            remedy=library.remedy(
                "pip install onednn-cpu-gomp, or name a libdnnl.so.3 in DEEPBENCH_ONEDNN_PATH",
                "name a libdnnl.so.3 in DEEPBENCH_ONEDNN_PATH, because its wheel is for x86-64 only; PyTorch has most "
                "of its operations: pip install torch, then --backend torch",
            ),
            accept=lambda path: not uses_sycl(path),
        )
        self.dnn = OneDNN(loaded)
        return self.facts()

    def facts(self) -> dict[str, Any]:
        """Facts about the library that is open, for `open`."""
        version, loaded = self.dnn.version, self.dnn.library
        return {
            "name": self.title,
            "version": version.text,
            "path": library.path_of(loaded, "dnnl_version"),
            "build": (version.hash or b"").decode(errors="replace"),
            "cpu_kernels": f"isa {loaded.dnnl_get_effective_cpu_isa():#x}",
            "threading": version.threading,
        }

    def threads_in_use(self) -> int | None:
        return self.dnn.threads()

    @kernel("gemm", precisions=("f32", "bf16", "f16", "i8", "i8u8"))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.onednn import gemm

        return gemm.prepare(self.dnn, case, arrays)

    @kernel("batched_gemm", precisions=("f32", "bf16", "f16", "i8", "i8u8"))
    def batched_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.onednn import gemm

        return gemm.prepare_batched(self.dnn, case, arrays)

    @kernel("grouped_gemm", precisions=("f32", "bf16", "f16", "i8", "i8u8"))
    @kernel("grouped_gemm", precisions=("f32", "bf16", "f16"), directions=("backward_weights",))
    def grouped_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.onednn import gemm

        return gemm.prepare_grouped(self.dnn, case, arrays)

    @kernel("linear", precisions=("f32", "bf16", "f16"))
    def linear(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.onednn import gemm

        return gemm.prepare_linear(self.dnn, case, arrays)

    @kernel("weight_only_gemm", precisions=("f32", "bf16", "f16"))
    def weight_only_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.onednn import weight_only_gemm

        return weight_only_gemm.prepare(self.dnn, case, arrays)

    @kernel("conv", precisions=("f32", "bf16", "f16"), directions=("forward", "backward_data", "backward_weights"))
    @kernel("conv", precisions=("i8u8",))
    def conv(self, case: Case, arrays: Arrays) -> Kernel:
        """No s8 data: oneDNN then halves the weights on CPUs without 8-bit dot products, and results are not exact."""
        from deepbench.backends.onednn import conv

        return conv.prepare(self.dnn, case, arrays)

    @kernel("recurrent", precisions=("f32", "bf16"), directions=("forward", "backward"))
    @kernel("recurrent", precisions=("f16", "i8u8"))
    def recurrent(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.onednn import recurrent

        return recurrent.prepare(self.dnn, case, arrays)

    @kernel("sparse_gemm", precisions=("f32", "f16"))
    def sparse_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.onednn import sparse_gemm

        return sparse_gemm.prepare(self.dnn, case, arrays)

    @kernel("elementwise", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    def elementwise(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.onednn import elementwise

        return elementwise.prepare(self.dnn, case, arrays)

    @kernel("reduction", precisions=("f32", "bf16", "f16"))
    def reduction(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.onednn import reduction

        return reduction.prepare(self.dnn, case, arrays)

    @kernel("pooling", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    def pooling(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.onednn import pooling

        return pooling.prepare(self.dnn, case, arrays)

    @kernel("upsample", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    def upsample(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.onednn import upsample

        return upsample.prepare(self.dnn, case, arrays)

    @kernel("layer_norm", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    def layer_norm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.onednn import normalization

        return normalization.layer_norm(self.dnn, case, arrays)

    @kernel("rms_norm", precisions=("f32", "bf16", "f16"))
    def rms_norm(self, case: Case, arrays: Arrays) -> Kernel:
        """No gradient: oneDNN 3.13 subtracts the mean of dy · scale from it, as for layer normalization."""
        from deepbench.backends.onednn import normalization

        return normalization.rms_norm(self.dnn, case, arrays)

    @kernel("batch_norm", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    def batch_norm(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.onednn import normalization

        return normalization.batch_norm(self.dnn, case, arrays)

    @kernel("group_norm", precisions=("f32", "bf16", "f16"))
    def group_norm(self, case: Case, arrays: Arrays) -> Kernel:
        """No gradient: dx of oneDNN 3.6.2 is wrong (oneDNN's issue 3543)."""
        from deepbench.backends.onednn import normalization

        return normalization.group_norm(self.dnn, case, arrays)

    @kernel("softmax", precisions=("f32", "bf16", "f16"), directions=("forward", "backward"))
    def softmax(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.onednn import softmax

        return softmax.prepare(self.dnn, case, arrays)

    @kernel("attention", precisions=("f32", "bf16", "f16"))
    @kernel("attention", precisions=("f32", "bf16"), directions=("backward",))
    def attention(self, case: Case, arrays: Arrays) -> Kernel:
        from deepbench.backends.onednn import attention

        return attention.prepare(self.dnn, case, arrays)


BACKEND = OneDNNBackend()
