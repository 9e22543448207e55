"""Reductions, computed rightly and with mistakes."""

import numpy as np

from deepbench.core.op import find_op
from tests.ops.wrong_kernels import Kernel, of_problem

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


EVERY = [(kind, precision) for kind in ("sum", "mean", "max") for precision in ("f32", "bf16")]
WRONG = [
    *(("without the last", without_the_last, "sum", precision) for precision in ("f32", "bf16")),
    ("divided by one less", by_one_less, "mean", "f32"),
    *(("of the sizes", of_sizes, *how) for how in EVERY),
    *(("one result missing", one_result_missing, *how) for how in EVERY),
]
KERNELS = [
    *(
        Kernel(f"reduction {sizes} forward {precision}", None, of_problem(right))
        for sizes in SMALL + LARGE
        for precision in ("f32", "bf16", "f16")
    ),
    *(
        Kernel(f"reduction kind={kind} {sizes} forward {precision}", name, of_problem(function))
        for name, function, kind, precision in WRONG
        for sizes in ["rows=17 columns=64", "rows=41 columns=67 axis=rows", *REALISTIC]
    ),
]
