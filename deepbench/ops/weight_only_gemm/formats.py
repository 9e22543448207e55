"""Formats of quantized weights in files of type GGUF, as llama.cpp stores them: blocks of bytes with their own scales.

Weights along k are in blocks, one after the other; numbers of 16 bits are f16 and start with the lower byte. Within a
block the bytes are, with d and dmin of f16:

    q8_0    32 weights: d, 32 · q of s8                                               w = d · q
    q4_k    256 weights: d, dmin, 12 bytes with 6 bits for each of 8 scales s and of 8 offsets o, 128 · two q of 4 bits
                                                                                      w = d · s · q - dmin · o
    q6_k    256 weights: 128 · the lower 4 bits and 64 · the upper 2 bits of q, 16 scales s of s8, d
                                                                                      w = d · s · (q - 32)
    mxfp4   32 weights: an exponent e of 8 bits, 16 · two floats f of e2m1            w = 2^(e - 127) · f

`mxfp4` is the one of the Open Compute Project ("OCP Microscaling formats", version 1.0, 2023), in ggml's order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.ops.linear import FP4

if TYPE_CHECKING:
    import numpy as np

    from deepbench.core.op import Array

# Blocks that are drawn; larger arrays repeat them. A prime, so that few rows are equal.
DRAWN = 65_521


@dataclass(frozen=True)
class WeightFormat:
    """One format; a weight is a function of the bytes of its block and of its position there."""

    bits: int
    group: int
    """Weights with a common scale."""
    block: int
    block_bytes: int
    weights: Callable[[Any, Array], Array]
    """Of positions in blocks (a column), in float64; the first argument reads the bytes at offsets in these blocks."""
    halves: tuple[tuple[int, float], ...] = ()
    """Where a block has numbers of f16, and the largest that are drawn."""

    def draw(self, count: int, choices: np.random.Generator) -> Array:
        """Random blocks, whose weights are about 1 at most; shape (count, block_bytes)."""
        import numpy as np

        blocks = choices.integers(0, 256, (count, self.block_bytes), dtype=np.uint8)
        for offset, largest in self.halves:
            numbers = (largest * (0.25 + 0.75 * choices.random(count))).astype("<f2")
            blocks[:, offset : offset + 2] = numbers.view(np.uint8).reshape(count, 2)
        if not self.halves:
            blocks[:, 0] = choices.integers(122, 126, count)
        if self.bits == 8:
            blocks[:, 2:][blocks[:, 2:] == 0x80] = 0x81  # quantizers do not write -128
        return blocks


@dataclass(frozen=True)
class Blocks:
    """Aᵀ (k × m) in float64, a part at a time."""

    a: Array
    """(m, bytes of a row)."""
    format: WeightFormat

    @property
    def shape(self) -> tuple[int, int]:
        """k and m."""
        m, row_bytes = self.a.shape
        return row_bytes // self.format.block_bytes * self.format.block, m

    def __getitem__(self, index: Any) -> Array:
        import numpy as np

        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        k = np.arange(self.shape[0])[rows]
        starts, stored = k // self.format.block * self.format.block_bytes, self.a[columns].T

        def read(offsets: Array | int) -> Array:
            chosen: Array = stored[starts + offsets]
            return chosen

        return self.format.weights(read, (k % self.format.block)[:, None])


def _half(read: Any, offset: int) -> Array:
    """The number of f16 at an offset."""
    import numpy as np

    low, high = (read(offset + i).astype(np.uint16) for i in (0, 1))
    number: Array = (low | high << 8).view(np.float16).astype(np.float64)
    return number


def _q8_0(read: Any, at: Array) -> Array:
    import numpy as np

    weights: Array = _half(read, 0) * read(2 + at[:, 0]).view(np.int8)
    return weights


def _q4_k(read: Any, at: Array) -> Array:
    """Bits 0 to 5 of the first eight bytes are the first four scales and offsets; the others are put together."""
    import numpy as np

    part = at // 32
    first, second, third = (read(start + part[:, 0] % 4) for start in (4, 8, 12))
    scale = np.where(part < 4, first & 63, third & 15 | first >> 6 << 4)
    offset = np.where(part < 4, second & 63, third >> 4 | second >> 6 << 4)
    q = read((16 + at // 64 * 32 + at % 32)[:, 0]) >> (part % 2 * 4).astype(np.uint8) & 15
    weights: Array = _half(read, 0) * scale * q - _half(read, 2) * offset
    return weights


def _q6_k(read: Any, at: Array) -> Array:
    import numpy as np

    half, quarter, place = at // 128, at % 128 // 32, at % 32
    low = read((half * 64 + quarter % 2 * 32 + place)[:, 0]) >> (quarter // 2 * 4).astype(np.uint8) & 15
    high = read((128 + half * 32 + place)[:, 0]) >> (quarter * 2).astype(np.uint8) & 3
    scale = read((192 + half * 8 + quarter * 2 + place // 16)[:, 0]).view(np.int8)
    weights: Array = _half(read, 208) * scale * ((low | high << 4).astype(np.float64) - 32)
    return weights


def _mxfp4(read: Any, at: Array) -> Array:
    import numpy as np

    q = read((1 + at % 16)[:, 0]) >> (at // 16 * 4).astype(np.uint8) & 15
    weights: Array = np.array(FP4)[q] * 2.0 ** (read(0).astype(np.float64) - 127)
    return weights


FORMATS = {
    "q8_0": WeightFormat(8, 32, 32, 34, _q8_0, ((0, 1 / 127),)),
    "q4_k": WeightFormat(4, 32, 256, 144, _q4_k, ((0, 2 / (63 * 15)), (2, 1 / 63))),
    "q6_k": WeightFormat(6, 16, 256, 210, _q6_k, ((208, 1 / (64 * 32)),)),
    "mxfp4": WeightFormat(4, 32, 32, 17, _mxfp4),
}
