"""Named precisions: what is multiplied, what sums are kept in, what is stored.

`weights` is the type of the operand that holds a layer's parameters (matrix A of a GEMM), `data` the type of
the activations (matrix B). DeepBench's floor is kept: training multiplies 16 bits and accumulates 32, inference
multiplies 8 bits and accumulates 32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Precision:
    """One precision; every type is named as in `BITS`."""

    name: str
    weights: str
    data: str
    accumulate: str
    result: str
    roundoff: float
    """Unit roundoff of the accumulation, 0 where sums are exact. Half the distance from 1 to the next number."""
    operand_roundoff: float = 0.0
    """What multiplying may change of each operand, relative to it: where fewer bits are multiplied than are stored."""

    def types(self) -> dict[str, str]:
        """The four types as a record states them."""
        return {
            "weights": self.weights,
            "data": self.data,
            "accumulate": self.accumulate,
            "result": self.result,
        }


# f32 has a 24-bit significand, so the unit roundoff is 2^-24 (IEEE 754). Products of two 16-bit floats are exact
# in f32; matrix units may truncate when they add (bf16 dot products of x86 and Arm do not round to nearest),
# which costs a factor of two, and f16 inputs go the same way. TF32 stores f32 and multiplies 11 bits of it, cut off.
# Sums of 8-bit floats are kept in 14 bits by the matrix units of NVIDIA's Hopper (DeepSeek-V3 technical report, arXiv
# 2412.19437, section 3.3.2), so 2^-13 by truncation; that of e5m2 has e4m3 weights, the mixture libraries multiply.
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
        Precision("i8", "s8", "s8", "s32", "s32", 0.0),
        Precision("i8u8", "s8", "u8", "s32", "s32", 0.0),
    )
}

# Precisions whose sums are wider than their operands, so that results may be stored in either.
SIXTEEN_BITS = ("bf16", "f16")

# What storing a result in this type may change, relative to its size: the unit roundoff. Zero where it is that of the
# sums themselves, or exact.
STORING = {"f32": 0.0, "bf16": 2.0**-8, "f16": 2.0**-11, "s8": 0.0, "u8": 0.0, "s32": 0.0}

BITS = {"f32": 32, "bf16": 16, "f16": 16, "f8e4m3": 8, "f8e5m2": 8, "s8": 8, "u8": 8, "s32": 32}


def find_precision(name: str) -> Precision:
    """The precision of that name; `BadInput` for any other word."""
    try:
        return PRECISIONS[name]
    except KeyError:
        raise BadInput(f"unknown precision {name!r}; there are {', '.join(PRECISIONS)}") from None


def dtype(type_name: str) -> np.dtype[Any]:
    """The NumPy type that stores a type of `BITS`."""
    import ml_dtypes
    import numpy as np

    types: dict[str, Any] = {
        "f32": np.float32,
        "bf16": ml_dtypes.bfloat16,
        "f16": np.float16,
        "f8e4m3": ml_dtypes.float8_e4m3fn,
        "f8e5m2": ml_dtypes.float8_e5m2,
        "s8": np.int8,
        "u8": np.uint8,
        "s32": np.int32,
    }
    found: np.dtype[Any] = np.dtype(types[type_name])
    return found


def type_name(kind: np.dtype[Any]) -> str:
    """The inverse of `dtype`."""
    return next(name for name in BITS if dtype(name) == kind)
