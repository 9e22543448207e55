"""Times of LiteRT (TensorFlow Lite) on phones: they are imported from its benchmark_model, so it never runs here."""

from __future__ import annotations

from typing import Any

from deepbench.core.backend import DeviceBackend, FoundDevice, Mark
from deepbench.core.case import Case
from deepbench.core.errors import Unavailable
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays

REMEDY = "deepbench export --to tflite writes models for a phone, and deepbench import reads their times"


class LiteRT(DeviceBackend):
    """Its usual device is the CPU of the phone; `litert:gpu` and others are its delegates."""

    name = "litert"
    title = "LiteRT"
    default = False
    computes = False
    reaches_shared = ("cpu",)

    def open(self) -> dict[str, Any]:
        raise Unavailable("LiteRT runs on phones, and not here", REMEDY)

    def candidates(self) -> list[str]:
        return []

    def probe(self, candidate: str) -> list[FoundDevice]:
        raise Unavailable("LiteRT runs on phones, and not here", REMEDY)

    def is_default_on(self, device: str) -> bool:
        return False

    def marks(self) -> list[Mark]:
        """What models are written for."""
        floats, all_types = ("f32",), ("f32", "i8")
        forward = ("forward",)
        return [
            *(Mark(op, all_types, forward) for op in ("gemm", "conv")),
            *(Mark(op, floats, forward) for op in ("linear", "batched_gemm", "recurrent")),
        ]

    def prepare(self, case: Case, arrays: Arrays) -> Kernel:
        raise Unavailable("LiteRT runs on phones, and not here", REMEDY)


BACKEND = LiteRT()
