"""ONNX Runtime through its C API: one operator at a time, as a graph that is made ready before timing.

The time of a call is that of a session: about a microsecond more than its kernel. There is no backward pass.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from deepbench.backends.onnxruntime.library import NO_TELEMETRY, PATH_VARIABLE, TITLE
from deepbench.core.backend import Backend, kernel
from deepbench.core.errors import Unsupported

if TYPE_CHECKING:
    from deepbench.backends.onnxruntime.providers import PluginDevice
    from deepbench.core.case import Case
    from deepbench.core.kernel import Kernel
    from deepbench.core.op import Arrays


class OnnxRuntimeBackend(Backend):
    name = "onnxruntime"
    title = TITLE
    default = False
    path_variable = PATH_VARIABLE
    fixed_variables = NO_TELEMETRY
    override_variables = ("ORT_INTRA_OP_NUM_THREADS", "ORT_INTER_OP_NUM_THREADS", "ORT_LOAD_CONFIG_FROM_MODEL")
    tuning_variables = (
        *("ORT_DISABLE_FLASH_ATTENTION", "ORT_MLAS_QKGEMM_S8_APPROX_VNNI", "ORT_USE_MLAS_Q4_GEMM_MOE"),
        "MLAS_NCHWC_*",
    )

    def open(self) -> dict[str, Any]:
        from deepbench.backends.onnxruntime.library import opened

        self.ort = opened(os.environ.get(PATH_VARIABLE))
        return {
            "name": self.title,
            "version": self.ort.version,
            "path": self.ort.path,
            "build": self.ort.build,
            "threading": "own threads",
        }

    def devices(self) -> list[PluginDevice]:
        """Those of plug-in providers. Each provider is tried in a process of its own."""
        from deepbench.backends.onnxruntime.providers import providers

        return [device for provider in providers() for device in provider.devices]

    @kernel("gemm", precisions=("f32", "bf16", "f16", "i8", "i8u8"))
    @kernel("batched_gemm", precisions=("f32", "bf16", "f16"))
    @kernel("linear", precisions=("f32", "bf16", "f16"))
    @kernel("weight_only_gemm", precisions=("f32", "f16"))
    @kernel("conv", precisions=("f32", "bf16", "f16", "i8u8"))
    @kernel("pooling", precisions=("f32",))
    @kernel("attention", precisions=("f32", "f16"))
    @kernel("softmax", precisions=("f32",))
    @kernel("layer_norm", precisions=("f32",))
    @kernel("rms_norm", precisions=("f32",))
    @kernel("reduction", precisions=("f32",))
    @kernel("elementwise", precisions=("f32", "f16"))
    @kernel("embedding_bag", precisions=("f32", "bf16", "f16"))
    @kernel("recurrent", precisions=("f32",))
    def operation(self, case: Case, arrays: Arrays) -> Kernel:
        """On the CPU. `Unsupported` for what runs in another precision than that of the case."""
        from deepbench.backends.onnxruntime import operations
        from deepbench.backends.onnxruntime.session import prepare

        if case.op == "elementwise" and case.problem.kind in ("sigmoid", "silu", "swiglu"):
            # The result is 227 to 283 times the tolerance away, with version 1.32.
            raise Unsupported(f"the sigmoid of {TITLE} loses digits of small results on CPUs; choose another kind")
        self.ort.start(case.threads)
        return prepare(self.ort, getattr(operations, case.op)(case, arrays))


BACKEND = OnnxRuntimeBackend()
