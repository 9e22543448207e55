"""Formats of quantized weights in files of type GGUF, as llama.cpp stores them: blocks of bytes with their own scales.

Weights along k are in blocks, one after the other; numbers of 16 bits are f16 and start with the lower byte. Within a
block the bytes are, with d and dmin of f16:

    q8_0    32 weights: d, 32 · q of s8                                               w = d · q
    q6_k    256 weights: 128 · the lower 4 bits and 64 · the upper 2 bits of q, 16 scales s of s8, d
                                                                                      w = d · s · (q - 32)
    q4_k    256 weights: d, dmin, 12 bytes with 6 bits for each of 8 scales s and of 8 offsets o, 128 · two q of 4 bits
                                                                                      w = d · s · q - dmin · o
    mxfp4   32 weights: an exponent e of 8 bits, 16 · two floats f of e2m1            w = 2^(e - 127) · f
    q2_k    256 weights: 16 · a scale s and an offset o of 4 bits, 64 · four q of 2 bits, d, dmin
                                                                                      w = d · s · q - dmin · o
    q2_0    64 weights: d, 16 · four q of 2 bits                                      w = d · (q - 1)
    tq2_0   256 weights: 64 · four q of 2 bits, of which 0, 1 and 2 are used, d       w = d · (q - 1)
    tq1_0   256 weights: 48 · five and 4 · four q in base 3, d                        w = d · (q - 1)
    q1_0    128 weights: d, 16 · eight q of 1 bit                                     w = d · (2 · q - 1)

`mxfp4` is the one of the Open Compute Project ("OCP Microscaling formats", version 1.0, 2023), in ggml's order. A byte
of `tq1_0` is ⌈256 · t / 243⌉, where t has five digits in base 3, the first q in the highest one; with four q the last
digit is 0. `tq1_0` counts as 2 bits, the least whole number that tells three values apart. `bits` of `q2_k` and others
do not count scales either: `block_bytes` has all.

llama.cpp searches scales with weights of importance. The rules here are simpler, so errors of models in files of
llama.cpp are smaller:

- one scale per block (`q2_0`, `tq2_0`, `tq1_0`, `q1_0`): as in `drawn.py`.
- `q8_0`: the largest magnitude of a block becomes 127. `mxfp4`: its exponent minus 2, as the standard proposes.
- `q6_k`: the weight of the largest magnitude of 16 becomes -32, so that scales have both signs.
- scales and offsets (`q4_k`, `q2_k`): the offset is the smallest weight of a part, if that is negative, and the scale
  brings the largest one to the end of the range. Both are shortened to the share, of seven from 0.7 to 1, that has the
  least squared error, and are rounded to multiples of d and dmin, which are the largest of a block over 63 or 15.

Formats that look weights up in tables of points (`iq1_s`, `iq2_xxs` and their relatives) are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.ops.linear import FP4
from deepbench.ops.weight_only_gemm import drawn

if TYPE_CHECKING:
    from deepbench.core.op import Array

# Shares of a range with an offset.
SHARES = tuple(0.7 + 0.05 * i for i in range(7))


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
    quantize: Callable[[Array], Array]
    """Of blocks (count, block) of weights in float32: their bytes (count, block_bytes)."""

    def quantized(self, m: int, k: int) -> tuple[Array, Array]:
        """Blocks of a matrix m × k before quantization (count, block), and their bytes (count, block_bytes).

        The matrix repeats them. Not to be changed.
        """
        count = drawn.groups_to_draw(m * (k // self.block), self.block, k // self.block)
        return drawn.blocks(count * (self.block // self.group), self.group, self.block, self.quantize)


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


def _q2_k(read: Any, at: Array) -> Array:
    both = read(at[:, 0] // 16)
    q = read((16 + at // 128 * 32 + at % 32)[:, 0]) >> (at % 128 // 32 * 2).astype("u1") & 3
    weights: Array = _half(read, 80) * (both & 15) * q - _half(read, 82) * (both >> 4)
    return weights


def _q2_0(read: Any, at: Array) -> Array:
    q = read((2 + at // 4)[:, 0]) >> (at % 4 * 2).astype("u1") & 3
    weights: Array = _half(read, 0) * (q - 1.0)
    return weights


def _tq2_0(read: Any, at: Array) -> Array:
    q = read((at // 128 * 32 + at % 32)[:, 0]) >> (at % 128 // 32 * 2).astype("u1") & 3
    weights: Array = _half(read, 64) * (q - 1.0)
    return weights


def _tq1_0(read: Any, at: Array) -> Array:
    """The first digit of a fraction of 256 in base 3, after as many digits as there are before it."""
    import numpy as np

    which = [at < 160, at < 240]
    byte = np.select(which, [at % 32, 32 + at % 16], 48 + at % 4)
    digit = np.select(which, [at // 32, (at - 160) // 16], (at - 240) // 4)
    rest = read(byte[:, 0]).astype(np.int64) * 3**digit % 256
    weights: Array = _half(read, 52) * (rest * 3 // 256 - 1.0)
    return weights


def _q1_0(read: Any, at: Array) -> Array:
    q = read((2 + at // 8)[:, 0]) >> (at % 8).astype("u1") & 1
    weights: Array = _half(read, 0) * (q * 2.0 - 1)
    return weights


# ---- quantizers


def _to_q8_0(weights: Array) -> Array:
    import numpy as np

    d = (np.abs(weights).max(axis=1, keepdims=True) / 127).astype(np.float16)
    q = np.clip(np.rint(weights / d.astype(np.float32)), -127, 127).astype(np.int8)
    return np.hstack([drawn.half_bytes(d), q.view(np.uint8)])


def _to_q6_k(weights: Array) -> Array:
    import numpy as np

    parts = weights.reshape(-1, 16, 16)
    largest = np.take_along_axis(parts, np.abs(parts).argmax(axis=2, keepdims=True), axis=2)[:, :, 0] / -32
    d = (np.abs(largest).max(axis=1, keepdims=True) / 127).astype(np.float16)
    s = np.clip(np.rint(largest / d.astype(np.float32)), -127, 127)
    scale = np.where(s == 0, 1, s) * d.astype(np.float32)
    q = np.clip(np.rint(parts / scale[:, :, None]), -32, 31).astype(np.int8).reshape(-1, 2, 4, 32).view(np.uint8) + 32
    low, high = q & 15, q >> 4
    lower = (low[:, :, :2] | low[:, :, 2:] << 4).reshape(-1, 128)
    upper = high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6
    return np.hstack([lower, upper.reshape(-1, 64), s.astype(np.int8).view(np.uint8), drawn.half_bytes(d)])


def _with_offsets(weights: Array, part: int, levels: int, most: int) -> tuple[Array, Array, Array, Array, Array]:
    """q (blocks, parts, part) below `levels`; scales and offsets (blocks, parts) up to `most`; d, dmin (blocks, 1)."""
    import numpy as np

    parts = weights.reshape(len(weights), -1, part)
    offset = np.maximum(0, -parts.min(axis=2))
    scale = (parts.max(axis=2) + offset) / (levels - 1)
    chosen, least = np.ones_like(scale), np.full_like(scale, np.inf)
    for share in SHARES:
        step, start = share * scale[:, :, None], share * offset[:, :, None]
        found = np.clip(np.rint((parts + start) / step), 0, levels - 1) * step - start
        error = ((found - parts) ** 2).sum(axis=2)
        chosen, least = np.where(error < least, np.float32(share), chosen), np.minimum(error, least)
    rounded, whole = [], []
    for values in (chosen * scale, chosen * offset):
        unit = (values.max(axis=1, keepdims=True) / most).astype(np.float16)
        rounded.append(np.clip(np.rint(values / unit.astype(np.float32)), 0, most))
        whole.append(unit)
    step, start = (r * u.astype(np.float32) for r, u in zip(rounded, whole, strict=True))
    step = np.where(step == 0, 1, step)
    q = np.clip(np.rint((parts + start[:, :, None]) / step[:, :, None]), 0, levels - 1).astype(np.uint8)
    return q, rounded[0].astype(np.uint8), rounded[1].astype(np.uint8), whole[0], whole[1]


def _to_q4_k(weights: Array) -> Array:
    import numpy as np

    q, s, o, d, dmin = _with_offsets(weights, 32, 16, 63)
    first, second = s[:, :4] | s[:, 4:] >> 4 << 6, o[:, :4] | o[:, 4:] >> 4 << 6
    third = s[:, 4:] & 15 | o[:, 4:] << 4
    pairs = q.reshape(-1, 4, 2, 32)
    both = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(-1, 128)
    return np.hstack([drawn.half_bytes(d), drawn.half_bytes(dmin), first, second, third, both])


def _to_mxfp4(weights: Array) -> Array:
    import numpy as np

    exponent = np.floor(np.log2(np.abs(weights).max(axis=1, keepdims=True))) - 2
    scaled, values = weights / np.exp2(exponent), np.array(FP4[:8], np.float32)
    magnitude = np.searchsorted((values[1:] + values[:-1]) / 2, np.abs(scaled)).astype(np.uint8)
    q = magnitude | np.signbit(scaled).astype(np.uint8) << 3
    return np.hstack([(exponent + 127).astype(np.uint8), q[:, :16] | q[:, 16:] << 4])


def _to_q2_k(weights: Array) -> Array:
    import numpy as np

    q, s, o, d, dmin = _with_offsets(weights, 16, 4, 15)
    return np.hstack([s | o << 4, _quarters(q), drawn.half_bytes(d), drawn.half_bytes(dmin)])


def _quarters(q: Array) -> Array:
    """64 bytes for each block of 256 q of 2 bits: of 128, each byte has one from every 32."""
    fours = q.reshape(-1, 2, 4, 32)
    stored: Array = fours[:, :, 0] | fours[:, :, 1] << 2 | fours[:, :, 2] << 4 | fours[:, :, 3] << 6
    return stored.reshape(-1, 64)


def _to_q2_0(weights: Array) -> Array:
    import numpy as np

    integers, d = drawn.fitted(weights, -1, 2, "f16")
    bytes_of_q = drawn.packed((integers + np.int8(1)).reshape(-1), 2).reshape(-1, 16)
    return np.hstack([drawn.half_bytes(d), bytes_of_q])


def _to_tq2_0(weights: Array) -> Array:
    import numpy as np

    integers, d = drawn.fitted(weights, -1, 1, "f16")
    return np.hstack([_quarters((integers + 1).astype(np.uint8)), drawn.half_bytes(d)])


def _to_tq1_0(weights: Array) -> Array:
    import numpy as np

    integers, d = drawn.fitted(weights, -1, 1, "f16")
    q, parts = integers + 1, []
    for start, stop, digits in ((0, 160, 5), (160, 240, 5), (240, 256, 4)):
        powers = 3 ** np.arange(4, 4 - digits, -1)
        number = np.einsum("idj,d->ij", q[:, start:stop].reshape(len(q), digits, -1).astype(np.int64), powers)
        parts.append((-(-256 * number // 243)).astype(np.uint8))
    return np.hstack([*parts, drawn.half_bytes(d)])


def _to_q1_0(weights: Array) -> Array:
    import numpy as np

    integers, d = drawn.signs(weights, "f16")
    return np.hstack([drawn.half_bytes(d), drawn.packed(integers.reshape(-1), 1).reshape(-1, 16)])


FORMATS = {
    "q8_0": WeightFormat(8, 32, 32, 34, _q8_0, _to_q8_0),
    "q4_k": WeightFormat(4, 32, 256, 144, _q4_k, _to_q4_k),
    "q6_k": WeightFormat(6, 16, 256, 210, _q6_k, _to_q6_k),
    "mxfp4": WeightFormat(4, 32, 32, 17, _mxfp4, _to_mxfp4),
    "q2_k": WeightFormat(2, 16, 256, 84, _q2_k, _to_q2_k),
    "q2_0": WeightFormat(2, 64, 64, 18, _q2_0, _to_q2_0),
    "tq2_0": WeightFormat(2, 256, 256, 66, _tq2_0, _to_tq2_0),
    "tq1_0": WeightFormat(2, 256, 256, 54, _tq1_0, _to_tq1_0),
    "q1_0": WeightFormat(1, 128, 128, 18, _q1_0, _to_q1_0),
}
