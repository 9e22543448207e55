"""Rotary positions, computed rightly and with mistakes."""

import numpy as np

from tests.ops.norm_kernels import spoiled
from tests.ops.wrong_kernels import every

SIZES = ["tokens=5 heads=3 dim=14", "tokens=40 heads=6 dim=96", "tokens=70 heads=9 dim=128"]

MISTAKES = [
    *("copied", "other sign", "other pairs", "sine of the next frequency", "cosine of the next frequency"),
    *("angle of the next token", "angle of the first token", "first half only", "sine and cosine exchanged"),
    *("first head only", "last row not written", "last row copied"),
]


def kernel(case, a, mistake):
    p = case.problem
    source, result = ("x", "y") if case.direction == "forward" else ("dy", "dx")
    x, cos, sin = a[source], a["cos"], a["sin"] * np.float32(1 if case.direction == "forward" else -1)
    if mistake == "other sign":
        sin = -sin
    if mistake == "sine and cosine exchanged":
        cos, sin = sin, cos
    if mistake == "sine of the next frequency":
        sin = np.roll(sin, -1, axis=1)
    if mistake == "cosine of the next frequency":
        cos = np.roll(cos, -1, axis=1)
    if mistake == "angle of the next token":
        cos, sin = (np.roll(array, -1, axis=0) for array in (cos, sin))
    if mistake == "angle of the first token":
        cos, sin = (np.broadcast_to(array[:1], array.shape) for array in (cos, sin))
    interleaved = (case.settings["pairs"] == "interleaved") != (mistake == "other pairs")
    pairs = x.reshape(p.tokens, p.heads, *((-1, 2) if interleaved else (2, -1)))
    first, second = (pairs[..., 0], pairs[..., 1]) if interleaved else (pairs[..., 0, :], pairs[..., 1, :])
    cos, sin = cos[:, None], sin[:, None]
    turned = [first * cos - second * sin, second * cos + first * sin]
    if mistake == "first half only":
        turned[1] = second
    y = np.stack(turned, axis=-1 if interleaved else -2).reshape(x.shape)
    if mistake == "copied":
        y = x.copy()
    if mistake == "first head only":
        y[:, 1:] = x[:, 1:]
    return spoiled({result: y}, mistake)


WAYS = [
    f"{direction} {kind} pairs={pairs}"
    for direction in ("forward", "backward")
    for kind in ("f32", "bf16", "f16")
    for pairs in ("halves", "interleaved")
]
KERNELS = [
    *every("rope", ["tokens=1 heads=1 dim=2", *SIZES], WAYS, kernel, exact=True),
    *every("rope", SIZES, [way for way in WAYS if " f16" not in way], kernel, MISTAKES),
]
