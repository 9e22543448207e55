"""Layer normalization, computed rightly and with mistakes."""

from tests.ops.norm_kernels import gradient, normalized, spoiled, without_last
from tests.ops.wrong_kernels import every

SIZES = ["rows=3 columns=35", "rows=40 columns=129", "rows=60 columns=4096"]

FORWARD = ["mean not subtracted", "no scale", "no shift", "last row not written", "last row copied"]

EXACT = ["biased variance", "no epsilon"]

BACKWARD = [
    *("mean of the gradient forgotten", "product of the gradient forgotten", "gradient not divided", "no scale"),
    *("last row not written", "last row of the sums forgotten", "dscale zero", "dshift zero", "dscale of x"),
]


def kernel(case, a, mistake):
    z, reciprocal = normalized(a["x"], mistake)
    scale = a["scale"] * 0 + 1 if mistake == "no scale" else a["scale"]
    if case.direction == "forward":
        y = z * scale + (0 if mistake == "no shift" else a["shift"])
        return spoiled({"y": y}, mistake)
    dx = gradient(a["dy"] * scale, z, reciprocal, mistake)
    product = a["dy"] * (a["x"] if mistake == "dscale of x" else z)
    rows = [without_last(array, mistake, "last row of the sums forgotten") for array in (product, a["dy"])]
    return spoiled({"dx": dx, "dscale": rows[0].sum(axis=0), "dshift": rows[1].sum(axis=0)}, mistake)


BOTH = ["backward f32", "backward bf16"]
KERNELS = [
    *every("layer_norm", ["rows=1 columns=2", *SIZES], ["forward f32", "forward bf16", *BOTH], kernel, exact=True),
    *every("layer_norm", SIZES, ["forward f32"], kernel, FORWARD + EXACT),
    *every("layer_norm", SIZES, ["forward bf16"], kernel, FORWARD),
    *every("layer_norm", SIZES, BOTH, kernel, BACKWARD),
    # In so few columns, it is more than the rounding.
    *every("layer_norm", ["rows=17 columns=64"], ["forward bf16"], kernel, ["biased variance"]),
]
