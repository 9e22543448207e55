"""Batch normalization, computed rightly and with mistakes."""

import numpy as np

from deepbench.core.rows import EPSILON
from deepbench.ops.batch_norm import channels, like_stored
from tests.ops.norm_kernels import f32, gradient, normalized, spoiled, without_last
from tests.ops.wrong_kernels import every

SIZES = ["n=3 c=5 h=7 w=9", "n=2 c=17 h=4 w=5 d=3", "n=16 c=40 h=14 w=14"]


INFERENCE = ["own statistics", "no scale", "no shift", "no epsilon", "last row not written", "channels exchanged"]

ROUGH = ["mean not subtracted", "no scale", "no shift", "last row not written", "last image forgotten"]

EXACT = ["biased variance", "no epsilon", "batch_mean zero", "unbiased variance stored"]

BACKWARD = [
    *("mean of the gradient forgotten", "product of the gradient forgotten", "gradient not divided", "no scale"),
    *("last row not written", "last element of the sums forgotten", "dscale zero", "dshift zero"),
]


def kernel(case, a, mistake):
    every = np.arange(case.problem.c)
    x, scale = f32(channels(case, a["x"], every)), a["scale"][:, None]
    if mistake == "no scale":
        scale = scale * 0 + 1
    if mistake == "channels exchanged":
        scale = scale[::-1]
    if case.direction == "backward":
        z, reciprocal = normalized(x, mistake)
        dy = f32(channels(case, a["dy"], every))
        dx = gradient(dy * scale, z, reciprocal, mistake)
        sums = [without_last(array, mistake, "last element of the sums forgotten", 1) for array in (dy * z, dy)]
        found = {"dx": like_stored(case, dx), "dscale": sums[0].sum(axis=1), "dshift": sums[1].sum(axis=1)}
        return spoiled(found, mistake)
    shift = f32(0) if mistake == "no shift" else a["shift"][:, None]
    if "mean" in a and mistake != "own statistics":
        z = (x - a["mean"][:, None]) / np.sqrt(a["variance"][:, None] + f32(0 if mistake == "no epsilon" else EPSILON))
        return spoiled({"y": like_stored(case, z * scale + shift)}, mistake)
    z, _ = normalized(x, mistake)
    seen = x[:, : -(x.shape[1] // case.problem.n)] if mistake == "last image forgotten" else x
    if mistake == "last image forgotten":
        z = (x - seen.mean(axis=1, keepdims=True)) / np.sqrt(seen.var(axis=1, keepdims=True) + f32(EPSILON))
    found = {"y": like_stored(case, z * scale + shift)}
    if "mean" not in a:
        found["batch_mean"] = seen.mean(axis=1)
        found["batch_variance"] = seen.var(axis=1, ddof=int(mistake == "unbiased variance stored"))
    return spoiled(found, mistake)


TRAINING = ["forward f32 mode=training", "forward f32 mode=training layout=nhwc"]
GRADIENTS = ["backward f32", "backward bf16", "backward f32 layout=nhwc"]
OTHER = ["forward f32", "forward bf16", *(way.replace("f32", "bf16") for way in TRAINING), "backward bf16 layout=nhwc"]
RIGHT_SIZES = ["n=2 c=1 h=1 w=1", *SIZES, "n=8 c=2 h=112 w=112"]
KERNELS = [
    *every("batch_norm", RIGHT_SIZES, [*TRAINING, *GRADIENTS, *OTHER], kernel, exact=True),
    *every("batch_norm", SIZES, ["forward f32"], kernel, INFERENCE),
    *every("batch_norm", SIZES, ["forward bf16"], kernel, [m for m in INFERENCE if m != "no epsilon"]),
    *every("batch_norm", SIZES, TRAINING, kernel, ROUGH + EXACT),
    *every("batch_norm", SIZES, ["forward bf16 mode=training"], kernel, ROUGH),
    *every("batch_norm", SIZES, GRADIENTS, kernel, BACKWARD),
]
