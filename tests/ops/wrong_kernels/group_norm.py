"""Group normalization, computed rightly and with mistakes."""

import numpy as np

from tests.ops.norm_kernels import f32, gradient, normalized, spoiled, without_last
from tests.ops.wrong_kernels import every

SIZES = ["n=3 c=6 h=5 w=7 groups=2", "n=2 c=32 h=6 w=5 groups=8", "n=2 c=64 h=16 w=16 groups=32"]

FORWARD = [
    *("mean not subtracted", "no scale", "no shift", "over all channels", "over all images", "scale of groups"),
    *("other groups", "last row not written", "last row copied"),
]

EXACT = ["biased variance", "no epsilon"]

BACKWARD = [
    *("mean of the gradient forgotten", "product of the gradient forgotten", "gradient not divided", "no scale"),
    *(
        "last row not written",
        "last image not summed",
        "dscale zero",
        "dshift zero",
        "dscale of x",
        "over all channels",
    ),
    *("scale outside the means", "sums of channels over all images"),
]


def rows_of(p, array, mistake):
    """The elements of each group of each image as a row; inverse: `reshape` to the same shape."""
    if mistake == "over all channels":
        return array.reshape(p.n, -1)
    if mistake == "over all images":
        return array.reshape(p.n, p.groups, -1).swapaxes(0, 1).reshape(p.groups, -1)
    if mistake == "other groups":  # every so many channels instead of neighbours
        return array.reshape(p.n, -1, p.groups, p.h * p.w).swapaxes(1, 2).reshape(p.n * p.groups, -1)
    return array.reshape(p.n * p.groups, -1)


def images_of(p, rows, mistake):
    """The inverse of `rows_of`."""
    if mistake == "over all images":
        rows = rows.reshape(p.groups, p.n, -1).swapaxes(0, 1)
    if mistake == "other groups":
        rows = rows.reshape(p.n, p.groups, -1, p.h * p.w).swapaxes(1, 2)
    return rows.reshape(p.n, p.c, p.h, p.w)


def kernel(case, a, mistake):
    p = case.problem
    z, reciprocal = normalized(rows_of(p, a["x"], mistake), mistake)
    scale = a["scale"] * 0 + 1 if mistake == "no scale" else a["scale"]
    if mistake == "scale of groups":
        scale = np.repeat(scale[:: p.c // p.groups], p.c // p.groups)
    scale = scale[:, None, None]
    if case.direction == "forward":
        y = images_of(p, z, mistake) * scale + (0 if mistake == "no shift" else a["shift"][:, None, None])
        return spoiled({"y": y}, mistake)
    if mistake == "sums of channels over all images":  # as oneDNN 3.6.2 computes it
        whole_z = images_of(p, z, mistake)
        sums = [values.sum(axis=(0, 2, 3), keepdims=True) for values in (a["dy"], a["dy"] * whole_z)]
        inner = a["dy"] - (sums[0] + whole_z * sums[1]) / f32(z.shape[1])
        dx = scale * inner * np.repeat(reciprocal.reshape(p.n, p.groups), p.c // p.groups, axis=1)[..., None, None]
    elif mistake == "scale outside the means":
        dx = images_of(p, gradient(rows_of(p, a["dy"], mistake), z, reciprocal, mistake), mistake) * scale
    else:
        dx = images_of(p, gradient(rows_of(p, a["dy"] * scale, mistake), z, reciprocal, mistake), mistake)
    product = a["dy"] * (a["x"] if mistake == "dscale of x" else images_of(p, z, mistake))
    images = [without_last(array, mistake, "last image not summed") for array in (product, a["dy"])]
    return spoiled(
        {"dx": dx, **{n: i.sum(axis=(0, 2, 3)) for n, i in zip(("dscale", "dshift"), images, strict=True)}}, mistake
    )


RIGHT_SIZES = [*SIZES, "n=1 c=2 h=1 w=2 groups=1", "n=1 c=64 h=1 w=3199 groups=64"]
BOTH = ["backward f32", "backward bf16"]
KERNELS = [
    *every("group_norm", RIGHT_SIZES, ["forward f32", "forward bf16", *BOTH], kernel, exact=True),
    *every("group_norm", SIZES, ["forward f32"], kernel, FORWARD + EXACT),
    *every("group_norm", SIZES, ["forward bf16"], kernel, FORWARD),
    *every("group_norm", SIZES, BOTH, kernel, BACKWARD),
]
