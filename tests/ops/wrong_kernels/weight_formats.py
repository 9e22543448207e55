"""Products with weights in the formats of llama.cpp, computed rightly and with mistakes.

Blocks are decoded here a second time, in the way of the format's definition: part by part, not position by position.
"""

import numpy as np

from deepbench.ops.weight_only_gemm.formats import FORMATS
from tests.ops.wrong_kernels import Kernel

SMALL, LARGE = (24, 4, 512), (48, 33, 1024)
FP4 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]


def half(blocks, start):
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def decoded_q8_0(blocks, mistake):
    q = blocks[:, 2:] if mistake == "unsigned integers" else blocks[:, 2:].astype(np.int8)
    return half(blocks, 0) * q


def scales_of_q4_k(packed, mistake):
    """Scales and offsets of the eight parts of each block, from 12 bytes."""
    packed = packed.astype(int)
    scales, offsets = np.zeros((2, len(packed), 8), np.float32)
    for part in range(4):
        scales[:, part], offsets[:, part] = packed[:, part] % 64, packed[:, part + 4] % 64
        upper = 0 if mistake == "upper bits of scales missing" else 16
        scales[:, part + 4] = packed[:, part + 8] % 16 + packed[:, part] // 64 * upper
        offsets[:, part + 4] = packed[:, part + 8] // 16 + packed[:, part + 4] // 64 * upper
    if mistake == "scales of the next part":
        scales = np.roll(scales, 1, axis=1)
    return scales[..., None], offsets[..., None] * (mistake != "offsets missing")


def decoded_q4_k(blocks, mistake):
    scales, offsets = scales_of_q4_k(blocks[:, 4:16], mistake)
    pairs = blocks[:, 16:].reshape(-1, 4, 1, 32)
    q = np.concatenate([pairs % 16, pairs // 16], axis=2).reshape(-1, 8, 32)
    if mistake == "halves swapped":
        q = q.reshape(-1, 4, 2, 32)[:, :, ::-1].reshape(-1, 8, 32)
    d, dmin = half(blocks, 0)[..., None], half(blocks, 2)[..., None]
    return (d * scales * q - dmin * offsets).reshape(-1, 256)


def decoded_q6_k(blocks, mistake):
    found = []
    scales = blocks[:, 192:208].astype(np.int8).astype(np.float32)
    for number in range(2):
        lower, upper = blocks[:, 64 * number : 64 * number + 64], blocks[:, 128 + 32 * number : 160 + 32 * number]
        for quarter, four in enumerate(
            (lower[:, :32] % 16, lower[:, 32:] % 16, lower[:, :32] // 16, lower[:, 32:] // 16)
        ):
            two = upper // 4**quarter % 4 * (mistake != "upper bits missing")
            q = four + 16.0 * two - 32 * (mistake != "unsigned integers")
            found.append(q * np.repeat(scales[:, 8 * number + 2 * quarter :][:, :2], 16, axis=1))
    return half(blocks, 208) * np.concatenate(found, axis=1)


def decoded_mxfp4(blocks, mistake):
    pairs = blocks[:, 1:]
    in_turn = np.stack([pairs % 16, pairs // 16], axis=2).reshape(-1, 32)
    q = in_turn if mistake == "halves in turn" else np.concatenate([pairs % 16, pairs // 16], axis=1)
    bias = 128 if mistake == "half as large" else 127
    return np.array(FP4, np.float32)[q] * np.float32(2) ** (blocks[:, :1].astype(np.float32) - bias)


def decoded_q2_k(blocks, mistake):
    scales, offsets = blocks[:, :16, None] % 16, blocks[:, :16, None] // 16 * (mistake != "offsets missing")
    if mistake == "scales of the next part":
        scales = np.roll(scales, 1, axis=1)
    if mistake == "scales and offsets exchanged":
        scales, offsets = offsets, scales
    q = quarters(blocks[:, 16:80], mistake).reshape(-1, 16, 16)
    d, dmin = half(blocks, 80)[..., None], half(blocks, 82)[..., None]
    return (d * scales * q - dmin * offsets).reshape(-1, 256)


def quarters(stored, mistake):
    """Four integers of 2 bits in each byte: 128 of them after the other, 32 at a time."""
    fours = np.stack([stored % 4, stored // 4 % 4, stored // 16 % 4, stored // 64], axis=1)
    if mistake == "quarters in turn":
        return fours.swapaxes(1, 2).reshape(-1, 256)
    return fours.reshape(-1, 4, 2, 32).swapaxes(1, 2).reshape(-1, 256)


def decoded_q2_0(blocks, mistake):
    stored = blocks[:, 2:]
    fours = [stored % 4, stored // 4 % 4, stored // 16 % 4, stored // 64]
    q = np.stack(fours[::-1] if mistake == "highest bits first" else fours, axis=2).reshape(-1, 64)
    return half(blocks, 0) * (q - 1.0 * (mistake != "unsigned integers"))


def decoded_tq2_0(blocks, mistake):
    return half(blocks, 64) * (quarters(blocks[:, :64], mistake) - 1.0 * (mistake != "unsigned integers"))


def decoded_tq1_0(blocks, mistake):
    """The number of five digits in base 3 is the byte times 243 / 256, rounded down."""
    found = []
    for start, stop, digits in ((0, 32, 5), (32, 48, 5), (48, 52, 4)):
        number = blocks[:, start:stop].astype(int) * 243 // 256
        powers = [3**i for i in range(4, 4 - digits, -1)]
        if mistake == "lowest digit first":
            powers.reverse()
        found += [number // power % 3 for power in powers]
    return half(blocks, 52) * (np.concatenate(found, axis=1) - 1.0 * (mistake != "unsigned integers"))


def decoded_q1_0(blocks, mistake):
    q = np.unpackbits(blocks[:, 2:], axis=1, bitorder="big" if mistake == "highest bit first" else "little")
    if mistake == "unsigned integers":
        return half(blocks, 0) * q
    return half(blocks, 0) * (2.0 * q - 1) * (-1 if mistake == "signs flipped" else 1)


DECODED = {
    **{"q8_0": decoded_q8_0, "q4_k": decoded_q4_k, "q6_k": decoded_q6_k, "mxfp4": decoded_mxfp4, "q2_k": decoded_q2_k},
    **{"q2_0": decoded_q2_0, "tq2_0": decoded_tq2_0, "tq1_0": decoded_tq1_0, "q1_0": decoded_q1_0},
}
MISTAKES = {
    "q8_0": ("unsigned integers",),
    "q4_k": ("scales of the next part", "offsets missing", "upper bits of scales missing", "halves swapped"),
    "q6_k": ("unsigned integers", "upper bits missing"),
    "mxfp4": ("halves in turn", "half as large"),
    "q2_k": ("scales of the next part", "offsets missing", "scales and offsets exchanged", "quarters in turn"),
    "q2_0": ("unsigned integers", "highest bits first"),
    "tq2_0": ("unsigned integers", "quarters in turn"),
    "tq1_0": ("unsigned integers", "lowest digit first"),
    "q1_0": ("unsigned integers", "highest bit first", "signs flipped"),
}
# Of any format.
OTHERS = ("last block missing", "last token missing", "data in 6 bits")


def weights(name, a, mistake):
    """A in float32, (m, k)."""
    form = FORMATS[name]
    return DECODED[name](a.reshape(-1, form.block_bytes), mistake).reshape(len(a), -1)


def rounded(b, block, largest):
    """B in integers up to `largest`, with a scale for each block."""
    blocks = b.reshape(len(b), -1, block)
    steps = np.abs(blocks).max(axis=2, keepdims=True) / largest
    return (np.round(blocks / steps) * steps).reshape(b.shape)


def evaluate(case, arrays, mistake):
    name = case.settings["format"]
    block = FORMATS[name].block
    a, b = weights(name, arrays["a"], mistake), rounded(arrays["b"], block, 31 if mistake == "data in 6 bits" else 127)
    if mistake == "last block missing":
        a[:, -block:] = 0
    c = b @ a.T
    if mistake == "last token missing":
        c[-1] = 0
    return {"c": c}


def text(name, sizes):
    m, n, k = sizes
    form = FORMATS[name]
    return f"weight_only_gemm m={m} n={n} k={k} group={form.group} bits={form.bits} forward f32 format={name}"


KERNELS = [
    Kernel(text(name, sizes), mistake, evaluate)
    for name, mistakes in MISTAKES.items()
    for sizes in (SMALL, LARGE)
    for mistake in (None, *mistakes, *OTHERS)
]
