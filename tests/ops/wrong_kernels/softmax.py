"""Softmax, computed rightly and with mistakes."""

import numpy as np

from tests.ops.norm_kernels import spoiled, without_last
from tests.ops.wrong_kernels import every

SIZES = ["rows=3 columns=35", "rows=40 columns=129", "rows=60 columns=4096"]

FORWARD = [
    *("maximum not subtracted", "last column not summed", "not divided", "over the rows"),
    *("last row not written", "last row copied", "logarithm"),
]

BACKWARD = ["product forgotten", "not multiplied", "over the rows", "last row not written", "last column not summed"]


def kernel(case, a, mistake):
    axis = 0 if mistake == "over the rows" else 1
    if case.direction == "forward":
        x = a["x"] - (0 if mistake == "maximum not subtracted" else a["x"].max(axis=axis, keepdims=True))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
            e = np.exp(x)
            total = without_last(e, mistake, "last column not summed", 1).sum(axis=axis, keepdims=True)
            y = e if mistake == "not divided" else e / total
        return spoiled({"y": np.log(y) if mistake == "logarithm" else y}, mistake)
    product = without_last(a["p"] * a["dy"], mistake, "last column not summed", 1).sum(axis=axis, keepdims=True)
    inner = a["dy"] - (0 if mistake == "product forgotten" else product)
    return spoiled({"dx": inner if mistake == "not multiplied" else a["p"] * inner}, mistake)


# In bf16, one of 4096 columns changes a result by less than it is rounded.
ROUNDED_AWAY = [
    ("last column not summed", f"softmax rows=60 columns=4096 {direction} bf16")
    for direction in ("forward", "backward")
]

FORWARDS, BACKWARDS = ["forward f32", "forward bf16"], ["backward f32", "backward bf16"]
WRONG = every("softmax", SIZES, FORWARDS, kernel, FORWARD) + every("softmax", SIZES, BACKWARDS, kernel, BACKWARD)
KERNELS = [
    *every("softmax", ["rows=1 columns=2", *SIZES, "rows=4 columns=128256"], FORWARDS + BACKWARDS, kernel, exact=True),
    *(wrong for wrong in WRONG if (wrong.mistake, wrong.text) not in ROUNDED_AWAY),
]
