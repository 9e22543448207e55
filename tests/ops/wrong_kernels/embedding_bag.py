"""Embedding bags, computed rightly and with mistakes."""

import numpy as np

from deepbench.core.op import find_op
from tests.ops.wrong_kernels import Kernel, of_problem

REALISTIC = "rows=20000 dim=64 bags=400 bag=20"


def forward(problem, arrays, bag=None, shift=0):
    places = arrays["indices"].reshape(problem.bags, problem.bag)[:, :bag]
    y = np.zeros((problem.bags, problem.dim), np.float32)
    for column in places.T:
        y += arrays["table"][(column + shift) % problem.rows]
    return {"y": y}


def backward(problem, arrays, lookups=None, add=True, shift=0):
    dtable = np.zeros((problem.rows, problem.dim), np.float32)
    rows = (arrays["indices"][:lookups] + shift) % problem.rows
    dy = np.repeat(arrays["dy"], problem.bag, axis=0)[:lookups]
    if add:
        np.add.at(dtable, rows, dy)
    else:
        dtable[rows] = dy
    return {"dtable": dtable}


SMALL = [p.text for p in find_op("embedding_bag").smoke]


def mean(problem, arrays):
    return {"y": forward(problem, arrays)["y"] / np.float32(problem.bag)}


def without_the_last_bag(problem, arrays):
    y = forward(problem, arrays)["y"]
    y[-1] = 0
    return {"y": y}


def not_cleared(problem, arrays):
    """Rows that no bag has keep what was there."""
    dtable = backward(problem, arrays)["dtable"]
    dtable[np.setdiff1d(np.arange(problem.rows), arrays["indices"])] = 1
    return {"dtable": dtable}


WRONG = {
    "mean": mean,
    "without the last bag": without_the_last_bag,
    "one row less": lambda p, a: forward(p, a, bag=p.bag - 1),
    "the next row": lambda p, a: forward(p, a, shift=1),
}
WRONG_GRADIENT = {
    "not cleared": not_cleared,
    "without the last lookup": lambda p, a: backward(p, a, lookups=p.lookups - 1),
    "not added": lambda p, a: backward(p, a, add=False),
    "the next row": lambda p, a: backward(p, a, shift=1),
}
KERNELS = [
    *(
        Kernel(f"embedding_bag {sizes} {direction} {precision}", None, of_problem(function))
        for sizes in [*SMALL, REALISTIC]
        for direction, function in (("forward", forward), ("backward", backward))
        for precision in ("f32", "bf16", "f16")
    ),
    *(
        Kernel(f"embedding_bag {sizes} {direction} {precision}", name, of_problem(function))
        for direction, first, functions in (
            ("forward", "rows=10 dim=7 bags=5 bag=3", WRONG),
            ("backward", "rows=50 dim=7 bags=20 bag=3", WRONG_GRADIENT),
        )
        for sizes in [first, "rows=1000 dim=64 bags=33 bag=20", REALISTIC]
        for name, function in functions.items()
        for precision in ("f32", "bf16")
    ),
]
