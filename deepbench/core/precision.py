"""Named precisions: the types that are multiplied, accumulated and stored.

`weights` is the type of the operand with a layer's parameters (matrix A of a GEMM), `data` the type of the activations
(matrix B). The original DeepBench sets a minimum, `MINIMUM`. Results below it are measured too, and marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.aliases import did_you_mean
from deepbench.core.errors import BadInput, shorten

if TYPE_CHECKING:
    import numpy as np

MINIMUM = "training multiplies at least 16 bits and inference at least 8 bits; both accumulate at least 32 bits"
LEAST_ACCUMULATED = 32
LEAST_MULTIPLIED = {True: 16, False: 8}
"""By whether the operation belongs to training."""


@dataclass(frozen=True)
class Precision:
    """One precision. Types are named as in `BITS`."""

    name: str
    weights: str
    data: str
    accumulate: str
    result: str
    roundoff: float
    """Unit roundoff of the accumulation: half the distance from 1 to the next number; 0 if sums are exact."""
    operand_roundoff: float = 0.0
    """Relative error of each operand, if fewer bits are multiplied than stored."""

    def below_minimum(self, is_training: bool) -> str | None:
        """Why results in this precision do not meet `MINIMUM`, for programs and people; None if they do."""
        multiplied, accumulated = min(BITS[self.weights], BITS[self.data]), BITS[self.accumulate]
        if accumulated < LEAST_ACCUMULATED:
            return f"accumulates {accumulated} bits"
        return f"multiplies {multiplied} bits" if multiplied < LEAST_MULTIPLIED[is_training] else None

    @property
    def multiplied_bits(self) -> int:
        """How many bits of an operand are multiplied; TF32 multiplies 19 of its 32."""
        bits = min(BITS[self.weights], BITS[self.data])
        return bits if not self.operand_roundoff else TF32_BITS

    def types(self) -> dict[str, str]:
        """The four types as a record has them."""
        return {"weights": self.weights, "data": self.data, "accumulate": self.accumulate, "result": self.result}


# f32 has a 24-bit significand, so its unit roundoff is 2^-24 (IEEE 754). Products of two 16-bit floats are exact in
# f32, but matrix units may truncate when they add (bf16 dot products on x86 and Arm do not round to nearest), which
# doubles the error; f16 is treated alike. TF32 is stored as f32 and truncated to 11 significant bits to multiply.
# For 8-bit floats, the matrix units of NVIDIA's Hopper accumulate in 14 bits (DeepSeek-V3 technical report, arXiv
# 2412.19437, section 3.3.2), so 2^-13 by truncation. `f8e5m2` has e4m3 weights, the combination that libraries support.
# `nvfp4` is NVIDIA's format of 4-bit floats with a scale for each 16 of them (`ops/linear.py`). How wide its sums are
# is not documented, so it is treated as 8-bit floats.
PRECISIONS = {
    p.name: p
    for p in (
        Precision("f32", "f32", "f32", "f32", "f32", 2.0**-24),
        Precision("bf16", "bf16", "bf16", "f32", "f32", 2.0**-23),
        Precision("f16", "f16", "f16", "f32", "f32", 2.0**-23),
        Precision("tf32", "f32", "f32", "f32", "f32", 2.0**-23, 2.0**-10),
        Precision("f16f16", "f16", "f16", "f16", "f16", 2.0**-11),
        Precision("f8e4m3", "f8e4m3", "f8e4m3", "f32", "f32", 2.0**-13),
        Precision("f8e5m2", "f8e4m3", "f8e5m2", "f32", "f32", 2.0**-13),
        Precision("nvfp4", "f4e2m1", "f4e2m1", "f32", "f32", 2.0**-13),
        Precision("i8", "s8", "s8", "s32", "s32", 0.0),
        Precision("i8u8", "s8", "u8", "s32", "s32", 0.0),
    )
}

# Precisions with sums wider than their operands, so that results may be stored in either type.
SIXTEEN_BITS = ("bf16", "f16")

# Unit roundoff of storing a result in each type; zero if the type is exact or no narrower than the accumulation.
STORAGE_ROUNDOFF = {"f32": 0.0, "bf16": 2.0**-8, "f16": 2.0**-11, "s8": 0.0, "u8": 0.0, "s32": 0.0}

# Names of the types in NumPy, to which ml_dtypes adds those that NumPy lacks.
NUMPY_NAMES = {
    **{"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"},
    **{"s8": "int8", "u8": "uint8", "s32": "int32", "f4e2m1": "float4_e2m1fn"},
}

TF32_BITS = 19
BITS = {"f32": 32, "bf16": 16, "f16": 16, "f8e4m3": 8, "f8e5m2": 8, "s8": 8, "u8": 8, "s32": 32, "f4e2m1": 4}


def find_precision(name: str) -> Precision:
    """The precision with this name; `BadInput` if there is none."""
    try:
        return PRECISIONS[name]
    except KeyError:
        choices = f"choose one of {', '.join(PRECISIONS)}{did_you_mean(name, PRECISIONS)}"
        raise BadInput(f"unknown precision {shorten(name)!r}; {choices}") from None


def dtype(type_name: str) -> np.dtype[Any]:
    """The NumPy type for a type name of `BITS`."""
    import ml_dtypes  # noqa: F401
    import numpy as np

    return np.dtype(NUMPY_NAMES[type_name])


def type_name(kind: np.dtype[Any]) -> str:
    """The inverse of `dtype`."""
    return next(name for name in BITS if dtype(name) == kind)
