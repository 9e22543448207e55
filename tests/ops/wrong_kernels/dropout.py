"""Dropout, computed rightly and with mistakes."""

import numpy as np

from tests.ops.wrong_kernels import Kernel, of_problem

SIZES = (692, 20_011, 300_017)

KEPT = np.float32(0.9)


def masked(mask):
    """Dropout with `mask(n)`: which of n elements are kept."""
    return lambda p, t: {"y": np.where(mask(p.n), t["a"] / KEPT, np.float32(0))}


def drawn(seed, kept=0.9):
    return lambda n: np.random.default_rng(seed).random(n) < kept


WRONG = {
    "nothing is dropped": masked(lambda n: np.ones(n, bool)),
    "everything is dropped": masked(lambda n: np.zeros(n, bool)),
    "the probability is that of keeping": masked(drawn(0, 0.1)),
    "a fifth is dropped": masked(drawn(0, 0.8)),
    "every tenth is dropped": masked(lambda n: np.arange(n) % 10 > 0),
    "whole rows of 64 are dropped": masked(lambda n: np.repeat(drawn(0)(n // 64 + 1), 64)[:n]),
    "not scaled": lambda p, t: {"y": np.where(drawn(0)(p.n), t["a"], np.float32(0))},
    "the input": lambda p, t: {"y": t["a"]},
}


def half(problem, arrays):
    return {"y": np.where(drawn(2, 0.5)(problem.n), 2 * arrays["a"], np.float32(0))}


KERNELS = [
    Kernel("dropout n=20011 percent=50 forward f32", None, of_problem(half)),
    Kernel("dropout n=20011 percent=50 forward f32", "the mask of another probability", of_problem(masked(drawn(2)))),
    Kernel("dropout n=20011 percent=40 forward f32", "half is dropped", of_problem(half)),
    # A regular pattern is told from chance in the larger vector only.
    *(
        Kernel(f"dropout n={n} forward f32", name, of_problem(function))
        for n in SIZES[1:]
        for name, function in WRONG.items()
        if n == SIZES[2] or "every" not in name
    ),
]
