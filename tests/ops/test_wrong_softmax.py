"""Softmax: correct kernels pass with room, and each likely mistake is found."""

import numpy as np
import pytest

from tests.ops.norm_kernels import solved, spoiled, without_last

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


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("size", ["rows=1 columns=2", *SIZES, "rows=4 columns=128256"])
def test_a_correct_kernel_passes_with_room(size, kind, direction):
    verdict, error = solved(f"softmax {size} {direction} {kind}", kernel)

    assert verdict.passed, verdict.sentence
    assert error < 0.5


# In bf16, one of 4096 columns changes a result by less than it is rounded.
ROUNDED_AWAY = [("last column not summed", "bf16", "rows=60 columns=4096")]


@pytest.mark.parametrize(
    ("direction", "mistake", "kind", "size"),
    [
        (direction, mistake, kind, size)
        for direction, mistakes in (("forward", FORWARD), ("backward", BACKWARD))
        for mistake in mistakes
        for kind in ("f32", "bf16")
        for size in SIZES
        if (mistake, kind, size) not in ROUNDED_AWAY
    ],
)
def test_a_mistake_is_found(direction, mistake, kind, size):
    assert not solved(f"softmax {size} {direction} {kind}", kernel, mistake)[0].passed
