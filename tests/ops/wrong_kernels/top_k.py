"""The largest k, computed rightly and with mistakes."""

import numpy as np

from deepbench.core.op import find_op
from tests.ops.wrong_kernels import Kernel, of_problem

SIZES = ("rows=3 columns=35 k=4", "rows=17 columns=64 k=8", "rows=5 columns=1003 k=100", "rows=300 columns=256 k=8")

SMALL = [p.text for p in find_op("top_k").smoke]
SETTINGS = ("", "sorted=no", "softmax=yes", "softmax=yes sorted=no")


def softmax(values):
    e = np.exp(values - values.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def chosen(problem, arrays, settings="", mistake=None):
    """The values and positions, largest first; of equal numbers the last."""
    x, k = arrays["x"].copy(), problem.k
    if mistake == "largest missing":
        x[np.arange(len(x)), x.argmax(axis=1)] = -99
    if mistake == "smallest instead":
        x = -x
    if mistake == "of the sizes":
        x = np.abs(x)
    if mistake == "last columns not seen":
        x[:, -(-x.shape[1] // 4) * 3 :] = -99
    order = np.argsort(x[:, ::-1], axis=1, kind="stable")[:, ::-1]
    at = (x.shape[1] - 1 - order)[:, :k]
    if mistake == "next one instead of the last":
        at[:, -1] = (x.shape[1] - 1 - order)[:, k]
    if mistake == "one twice":
        at[:, -1] = at[:, 0]
    if mistake == "unsorted":
        at = np.roll(at, 1, axis=1)
    values = np.take_along_axis(arrays["x"], at, axis=1)
    if mistake == "softmax of all":
        values = np.take_along_axis(softmax(arrays["x"]), at, axis=1)
    elif "softmax=yes" in settings and mistake != "no softmax":
        values = softmax(values)
    if mistake == "positions shifted":
        at = (at + 1) % x.shape[1]
    if mistake == "positions of the next row":
        at = np.roll(at, 1, axis=0)
    if mistake == "values of another order":
        values = values[:, ::-1]
    if mistake == "position beyond the end":
        at[-1, -1] = x.shape[1]
    if mistake == "last row forgotten":
        values, at = values.copy(), at.copy()
        values[-1], at[-1] = 0, 0
    return {"values": values, "indices": at.astype(np.float32)}


MISTAKES = (
    *("largest missing", "smallest instead", "of the sizes", "next one instead of the last", "one twice", "unsorted"),
    *("positions shifted", "positions of the next row", "position beyond the end", "last row forgotten"),
    *("values of another order", "last columns not seen"),
)


def gradient(problem, arrays, settings="", mistake=None):
    dy, at = arrays["dy"], arrays["chosen"]
    if "softmax=yes" in settings:
        p = arrays["p"]
        product = 0 if mistake == "product forgotten" else (p * dy).sum(axis=1, keepdims=True)
        dy = dy - product if mistake == "not multiplied" else p * (dy - product)
    dx = np.zeros((problem.rows, problem.columns), np.float32)
    if mistake == "not zero elsewhere":
        dx += np.float32(1e-3)
    if mistake == "at the next column":
        at = (at + 1) % problem.columns
    if mistake == "last one forgotten":
        dy, at = dy[:, :-1], at[:, :-1]
    np.put_along_axis(dx, at, dy, axis=1)
    if mistake == "last row not written":
        dx[-1] = np.nan
    return {"dx": dx}


def in_another_order(problem, arrays, settings):
    found = chosen(problem, arrays, settings)
    order = np.random.default_rng(1).permutation(problem.k)
    return {name: array[:, order] for name, array in found.items()}


MISTAKES = (
    *("largest missing", "smallest instead", "of the sizes", "next one instead of the last", "one twice", "unsorted"),
    *("positions shifted", "positions of the next row", "position beyond the end", "last row forgotten"),
    *("values of another order", "last columns not seen"),
)
GRADIENT_MISTAKES = {
    "": ["not zero elsewhere", "at the next column", "last one forgotten", "last row not written"],
    "softmax=yes": [
        *("not zero elsewhere", "at the next column", "last one forgotten", "last row not written"),
        *("product forgotten", "not multiplied"),
    ],
}


def made(text, settings, mistake, function):
    return Kernel(f"{text} {settings}".strip(), mistake, of_problem(function, settings=settings, mistake=mistake))


KERNELS = [
    *(
        made(f"top_k {sizes} forward {precision}", settings, None, chosen)
        for sizes in dict.fromkeys([*SMALL, *SIZES, "rows=2 columns=20000 k=2000"])
        for settings in SETTINGS
        for precision in ("f32", "bf16", "f16")
    ),
    *(
        Kernel(
            f"top_k {sizes} forward {precision} {settings}",
            None,
            of_problem(in_another_order, settings=settings),
            how="in another order",
        )
        for sizes in SIZES
        for settings in ("sorted=no", "softmax=yes sorted=no")
        for precision in ("f32", "bf16")
    ),
    *(
        made(f"top_k {sizes} forward {precision}", settings, mistake, chosen)
        for sizes in SIZES
        for settings in SETTINGS
        for mistake in MISTAKES
        for precision in ("f32", "bf16")
        if mistake != "unsorted" or "sorted=no" not in settings  # there, any order is right
    ),
    *(
        made(f"top_k {sizes} forward bf16", "softmax=yes", mistake, chosen)
        for sizes in SIZES
        for mistake in ("no softmax", "softmax of all")
    ),
    *(
        made(f"top_k {sizes} backward {precision}", settings, mistake, gradient)
        for sizes in SIZES
        for settings, mistakes in GRADIENT_MISTAKES.items()
        for mistake in [None, *mistakes]
        for precision in ("f32", "bf16")
    ),
]
