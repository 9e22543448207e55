"""ONNX Runtime through its C API: one operator at a time, as a graph that is made ready before timing.

The time of a call is that of a session: about a microsecond more than its kernel. There is no backward pass.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deepbench.backends.onnxruntime.library import NO_TELEMETRY, PATH_VARIABLE, TITLE
from deepbench.core import devices
from deepbench.core.backend import DeviceBackend, FoundDevice, kernel
from deepbench.core.errors import Unavailable, Unsupported

if TYPE_CHECKING:
    from deepbench.backends.onnxruntime.providers import PluginDevice
    from deepbench.core.case import Case
    from deepbench.core.kernel import Kernel
    from deepbench.core.op import Arrays

# The candidate that is no file: the CPU.
BUILT_IN = "built in"

PRODUCTS = ("gemm", "batched_gemm", "linear", "weight_only_gemm", "conv", "attention")
"""Operations that sum products."""


class OnnxRuntimeBackend(DeviceBackend):
    name = "onnxruntime"
    title = TITLE
    default = False
    reaches_shared = ("cpu",)
    path_variable = PATH_VARIABLE
    fixed_variables = NO_TELEMETRY
    override_variables = ("ORT_INTRA_OP_NUM_THREADS", "ORT_INTER_OP_NUM_THREADS", "ORT_LOAD_CONFIG_FROM_MODEL")
    device_of_provider: PluginDevice | None = None
    tuning_variables = (
        *("ORT_DISABLE_FLASH_ATTENTION", "ORT_MLAS_QKGEMM_S8_APPROX_VNNI", "ORT_USE_MLAS_Q4_GEMM_MOE"),
        "MLAS_NCHWC_*",
    )

    def open(self) -> dict[str, Any]:
        from deepbench.backends.onnxruntime.library import opened

        self.ort, self.device_of_provider = opened(os.environ.get(PATH_VARIABLE)), None
        facts = {
            "name": self.title,
            "version": self.ort.version,
            "path": self.ort.path,
            "build": self.ort.build,
            "threading": "own threads",
        }
        if (self.chosen or devices.CPU) != devices.CPU:
            self.device_of_provider = found = self._find(self.chosen or "")
            facts |= {"device": found.name, "build": f"{found.provider} {found.version or ''}".strip()}
        return facts

    def _find(self, wanted: str) -> PluginDevice:
        """The device of this name, of the first provider that has it; those whose file has its name come first."""
        from deepbench.backends.onnxruntime.providers import PROVIDERS_VARIABLE, devices_of, provider_paths

        self.ort.start(1)
        word, reasons = devices.base(wanted).partition(":")[2], []
        for path in sorted(provider_paths(), key=lambda path: word not in path.lower()):
            try:
                found = devices_of(self.ort, path)
            except Unavailable as error:
                reasons.append(error.reason)
                continue
            for device in found:
                if devices.named(self.name, device.platform) == devices.base(wanted) and device.index == devices.index(
                    wanted
                ):
                    return device
            reasons.append(f"{path} reaches {', '.join(device.platform for device in found)}")
        raise Unavailable(
            f"no provider of {self.title} for {wanted} found{': ' + '; '.join(reasons) if reasons else ''}",
            f"install a package onnxruntime-ep-…, or name the files of providers in {PROVIDERS_VARIABLE}",
        )

    def candidates(self) -> list[str]:
        """What is built in, and the files of providers."""
        from deepbench.backends.onnxruntime.providers import provider_paths

        return [BUILT_IN, *provider_paths()]

    def probe(self, candidate: str) -> list[FoundDevice]:
        from deepbench.backends.onnxruntime.providers import devices_of

        self.chosen = None
        version = self.open()["version"]
        if candidate == BUILT_IN:
            return [FoundDevice(devices.CPU, "CPU", f"{self.title} {version}", self.ort.path)]
        self.ort.start(1)
        found = devices_of(self.ort, candidate)
        return [
            FoundDevice(
                devices.named(self.name, device.platform) + (f":{device.index}" if device.index else ""),
                device.name,
                f"{device.provider} {device.version or ''}, {self.title} {version}",
                candidate,
            )
            for device in found
        ]

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
        """`Unsupported` for what runs in another precision than that of the case."""
        from deepbench.backends.onnxruntime import operations, providers
        from deepbench.backends.onnxruntime.session import prepare
        from deepbench.native.slope import QueueDevice

        if self.device_of_provider is not None:
            graph = getattr(operations, case.op)(case, arrays)
            queue = providers.prepare(self.ort, self.device_of_provider, graph)
            return replace(queue.kernel, device=QueueDevice(queue), keep=(*queue.kernel.keep, queue))
        if case.op == "elementwise" and case.problem.kind in ("sigmoid", "silu", "swiglu"):
            # The result is 227 to 283 times the tolerance away, with version 1.32.
            raise Unsupported(f"the sigmoid of {TITLE} loses digits of small results on CPUs; choose another kind")
        if case.op in PRODUCTS and case.precision.data == "f16":
            _refuse_on_arm(case.op)
        self.ort.start(case.threads)
        return prepare(self.ort, getattr(operations, case.op)(case, arrays))


def _refuse_on_arm(op: str) -> None:
    """`Unsupported` for products of f16 that are another operation on Arm, or end the process, with version 1.32."""
    from deepbench.machine import describe

    found = describe.instructions()
    if "asimdhp" in found:
        # A product with k=129 was 21 times the tolerance away, as sums in f16 are.
        raise Unsupported(f"{TITLE} sums products of f16 in 16 bits on this CPU (asimdhp); choose f32")
    if "asimd" in found and op == "weight_only_gemm":
        # An illegal instruction on a Cortex-A72.
        raise Unsupported(f"{TITLE}'s kernel needs arithmetic in f16, which this CPU lacks (asimdhp); choose f32")


BACKEND = OnnxRuntimeBackend()
