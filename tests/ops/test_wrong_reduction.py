"""The check of reductions passes float32 and finds likely mistakes."""

import numpy as np
import pytest

from deepbench.core.op import find_op
from tests.ops.evaluation import is_found, is_right_with_room

REALISTIC = ("rows=3000 columns=1024", "rows=1024 columns=4000 axis=rows")


def reduced(x, problem, kind=None):
    """Sums one after the other, with a single sum, as the least accurate kernel does."""
    axis = 1 if problem.axis == "columns" else 0
    kind = kind or problem.kind
    if kind == "max":
        return x.max(axis=axis)
    total = np.cumsum(x, axis=axis, dtype=np.float32).take(-1, axis=axis)
    return total / np.float32(x.shape[axis]) if kind == "mean" else total


def right(problem, arrays):
    return {"y": reduced(arrays["x"], problem)}


SMALL = [p.text for p in find_op("reduction").smoke]
LARGE = [f"kind={kind} {sizes}" for kind in ("sum", "mean", "max") for sizes in REALISTIC]


@pytest.mark.parametrize("precision", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("text", SMALL + LARGE)
def test_float32_passes(text, precision):
    assert is_right_with_room(f"reduction {text} forward {precision}", right)


def without_the_last(problem, arrays):
    x = arrays["x"]
    return {"y": reduced(x[:, :-1] if problem.axis == "columns" else x[:-1], problem, "sum")}


def by_one_less(problem, arrays):
    count = arrays["x"].shape[1 if problem.axis == "columns" else 0]
    return {"y": reduced(arrays["x"], problem, "sum") / np.float32(count - 1)}


def of_sizes(problem, arrays):
    return {"y": reduced(np.abs(arrays["x"]), problem)}


def one_result_missing(problem, arrays):
    y = reduced(arrays["x"], problem)
    y[-1] = 0
    return {"y": y}


@pytest.mark.parametrize(
    ("wrong", "kind", "precision"),
    [
        *((without_the_last, "sum", p) for p in ("f32", "bf16")),
        (by_one_less, "mean", "f32"),
        *(
            (f, kind, p)
            for f in (of_sizes, one_result_missing)
            for kind in ("sum", "mean", "max")
            for p in ("f32", "bf16")
        ),
    ],
)
@pytest.mark.parametrize("sizes", ["rows=17 columns=64", "rows=41 columns=67 axis=rows", *REALISTIC])
def test_a_wrong_reduction_is_found(wrong, kind, precision, sizes):
    assert is_found(f"reduction kind={kind} {sizes} forward {precision}", wrong)
