"""RMS normalization, computed rightly and with mistakes."""

from tests.ops.norm_kernels import gradient, normalized, spoiled, without_last
from tests.ops.wrong_kernels import every

SIZES = ["rows=3 columns=35", "rows=40 columns=129", "rows=60 columns=4096"]

FORWARD = ["centered", "no scale", "one added to the scale", "last row not written", "last row copied"]

EXACT = ["biased variance", "no epsilon"]

BACKWARD = [
    *("centered", "product of the gradient forgotten", "gradient not divided", "no scale"),
    *("last row not written", "last row of the sums forgotten", "dscale zero"),
]


def kernel(case, a, mistake):
    z, reciprocal = normalized(a["x"], mistake, centered=mistake == "centered")
    scale = a["scale"] * (mistake != "no scale") + (mistake in ("no scale", "one added to the scale"))
    if case.direction == "forward":
        return spoiled({"y": z * scale}, mistake)
    dx = gradient(a["dy"] * scale, z, reciprocal, mistake, centered=mistake == "centered")
    dscale = without_last(a["dy"] * z, mistake, "last row of the sums forgotten").sum(axis=0)
    return spoiled({"dx": dx, "dscale": dscale}, mistake)


BOTH = ["backward f32", "backward bf16"]
KERNELS = [
    *every("rms_norm", ["rows=1 columns=2", *SIZES], ["forward f32", "forward bf16", *BOTH], kernel, exact=True),
    *every("rms_norm", SIZES, ["forward f32"], kernel, FORWARD + EXACT),
    *every("rms_norm", SIZES, ["forward bf16"], kernel, FORWARD),
    *every("rms_norm", SIZES, BOTH, kernel, BACKWARD),
]
