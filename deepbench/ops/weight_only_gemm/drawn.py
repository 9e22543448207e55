"""Weights before quantization, and simple rules that quantize them.

Weights of a group have a normal distribution, whose standard deviation differs from group to group. Only so many are
drawn that tables of them stay small; larger matrices repeat the groups. What is drawn is the same in every process.

**The rule for scales** (`fitted`): of 18 scales, from 0.3 to 1.15 of the one that brings the largest weight of the
group to the end of the range of integers, that with the least squared error. With two values, -1 and 1, the scale is
the mean magnitude, which has the least squared error of all. Then each weight is rounded to the nearest integer of the
range. The data that are multiplied have no influence, unlike in methods such as GPTQ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import isqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepbench.core.op import Array

# Standard deviations of groups are drawn from this range, evenly: of the weights of trained layers, too, they differ,
# and a library that takes the scale of another group is far from the right result.
LEAST_DEVIATION, LARGEST_DEVIATION = 0.125, 0.5

# At least so many groups are drawn, so that most rows of the matrix differ where a group is a long row.
LEAST_GROUPS = 7

# Shares of the scale with which no weight is out of range.
SHARES = tuple(0.3 + 0.05 * i for i in range(18))

# No scale is smaller, so that it is a normal number in every type.
LEAST_SCALE = 2.0**-14

# Weights that are quantized at a time: temporary arrays stay in a cache.
STRIP = 2**16

# The stream of random numbers of the weights; arrays have 0, 1 and so on.
STREAM = 40


@dataclass(frozen=True)
class FullWeights:
    """Aᵀ (k × m) before quantization, in float64, a part at a time."""

    drawn: Array
    """(groups, weights of a group): row i of A has the groups i · k / group and following, from the first one again
    after the last one."""
    m: int
    k: int

    @property
    def shape(self) -> tuple[int, int]:
        """k and m."""
        return self.k, self.m

    def __getitem__(self, index: Any) -> Array:
        import numpy as np

        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        k, m = np.arange(self.k)[rows][:, None], np.arange(self.m)[columns][None, :]
        number, size = self.drawn.shape
        weights: Array = self.drawn[(m * (self.k // size) + k // size) % number, k % size].astype(np.float64)
        return weights


def groups_to_draw(total: int, size: int, per_row: int) -> int:
    """How many groups of `size` weights are drawn for `total` of them, with `per_row` in each row of A.

    All of them; or about as many as have `TILE` weights, a prime number that does not divide `per_row`, so that rows
    differ.
    """
    from deepbench.core.operands import TILE

    most = max(LEAST_GROUPS, TILE // size)
    if total <= most:
        return total
    return min(total, next(n for n in count(most) if per_row % n and is_prime(n)))


def is_prime(number: int) -> bool:
    """Whether nothing but 1 and itself divides it."""
    return number > 1 and all(number % divisor for divisor in range(2, isqrt(number) + 1))


@lru_cache(maxsize=2)
def normal_weights(groups: int, size: int) -> Array:
    """(groups, size) in float32, the same in every process. Not to be changed."""
    import numpy as np

    from deepbench.core import operands

    choices = operands.generator(STREAM)
    deviations = LEAST_DEVIATION + (LARGEST_DEVIATION - LEAST_DEVIATION) * choices.random((groups, 1), dtype=np.float32)
    weights = choices.standard_normal((groups, size), dtype=np.float32)
    weights *= deviations
    weights.setflags(write=False)
    return weights


def fitted(weights: Array, low: int, high: int, kind: str) -> tuple[Array, Array]:
    """The integers from `low` to `high` of each group, as s8, and its scale, by the rule above.

    `weights` has a row for each group. Scales have the type `kind`, and integers are those for the scale in this type.
    With `low` = -1 and `high` = 1 there are three integers; `signs` has two.
    """
    import numpy as np

    from deepbench.core.precision import dtype

    integers, scales = np.empty(weights.shape, np.int8), np.empty(len(weights), dtype(kind))
    step = max(1, STRIP // weights.shape[1])
    for start in range(0, len(weights), step):
        some = weights[start : start + step]
        full_range = np.abs(some).max(axis=1) / max(-low, high)
        best, least = np.empty(len(some), scales.dtype), np.full(len(some), np.inf, np.float32)
        for share in SHARES:
            scale = np.maximum(share * full_range, LEAST_SCALE).astype(scales.dtype)
            found = scale.astype(np.float32)[:, None]
            difference = np.clip(np.rint(some / found), low, high) * found - some
            error = np.einsum("ij,ij->i", difference, difference)
            best, least = np.where(error < least, scale, best), np.minimum(error, least)
        scales[start : start + step] = best
        integers[start : start + step] = np.clip(np.rint(some / best.astype(np.float32)[:, None]), low, high)
    return integers, scales


def signs(weights: Array, kind: str) -> tuple[Array, Array]:
    """-1 or 1 for each weight, as s8, and the scale of each group: the mean magnitude."""
    import numpy as np

    from deepbench.core.precision import dtype

    scales = np.maximum(np.abs(weights).mean(axis=1), LEAST_SCALE).astype(dtype(kind))
    return np.where(weights < 0, np.int8(-1), np.int8(1)), scales


@lru_cache(maxsize=2)
def integers_and_scales(groups: int, size: int, bits: int, kind: str) -> tuple[Array, Array]:
    """Quantized `normal_weights`: integers (groups, size) of s8 and scales (groups,). Not to be changed."""
    weights = normal_weights(groups, size)
    if bits == 1:
        return signs(weights, kind)
    # of 8 bits, -128 is not used
    return fitted(weights, -127 if bits == 8 else -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, kind)


@lru_cache(maxsize=2)
def blocks(groups: int, size: int, block: int, quantize: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Blocks of `block` weights of a format with groups of `size`: (blocks, block) and their bytes. Not to be changed.

    `groups` groups are a whole number of blocks.
    """
    weights = normal_weights(groups, size).reshape(-1, block)
    return weights, quantize(weights)


def packed(integers: Array, bits: int) -> Array:
    """Integers of 1, 2 or 4 bits as bytes, the first one in the lowest bits; one dimension, whole bytes.

    Of 1 bit, 1 is stored as 1 and -1 as 0. Others are in two's complement.
    """
    import numpy as np

    if bits == 1:
        return np.packbits(integers > 0, bitorder="little")
    per_byte = 8 // bits
    fields = integers.view(np.uint8).reshape(-1, per_byte) & np.uint8(2**bits - 1)
    stored: Array = np.bitwise_or.reduce(fields << (np.arange(per_byte) * bits).astype(np.uint8), axis=1)
    return stored


def unpack(a: Array, bits: int = 4) -> Array:
    """The signed integers of 1, 2 or 4 bits in rows of bytes, the lowest bits of a byte first, as s8: see `packed`."""
    import numpy as np

    if bits == 1:
        return np.unpackbits(a, axis=1, bitorder="little").view(np.int8) * np.int8(2) - np.int8(1)
    fields: Array = np.stack([a << (8 - bits * (i + 1)) for i in range(8 // bits)], axis=-1).view(np.int8) >> (8 - bits)
    return fields.reshape(a.shape[0], -1)


def half_bytes(numbers: Array) -> Array:
    """Numbers as f16, the lower byte first: (count, 2)."""
    import numpy as np

    return np.ascontiguousarray(numbers, "<f2").view(np.uint8).reshape(-1, 2)
