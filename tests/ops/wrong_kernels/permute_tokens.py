"""Permutation of tokens, computed rightly and with mistakes."""

import numpy as np

from deepbench.core.op import find_op
from tests.ops.wrong_kernels import Kernel, of_problem

SMALL = "tokens=37 experts=8 active=2 hidden=33"

LARGE = "tokens=700 experts=64 active=8 hidden=512"

SIZES = [SMALL, LARGE]


def dispatch(p, arrays, shift=0, last=None):
    y = arrays["x"][(arrays["sources"] + shift) % p.tokens]
    if last is not None:
        y[last] = 0
    return {"y": y}


def combine(p, arrays, weights=None, active=None):
    w = arrays["w"] if weights is None else weights(arrays["w"])
    rows = arrays["x"][arrays["places"]] * w[:, :, None]
    return {"y": rows[:, :active].sum(axis=1, dtype=np.float32)}


def dispatch_backward(p, arrays, active=None, places=None):
    at = arrays["places"] if places is None else places(arrays["places"])
    return {"dx": arrays["dy"][at][:, :active].sum(axis=1, dtype=np.float32)}


def combine_backward(p, arrays, weights=None, shift=0, rows=True):
    w = arrays["w"] if weights is None else weights(arrays["w"])
    dx = np.zeros_like(arrays["x"])
    dx[arrays["places"]] = w[:, :, None] * np.roll(arrays["dy"], shift, axis=0)[:, None]
    x = arrays["x"][arrays["places"] if rows else np.arange(p.rows).reshape(p.tokens, p.active)]
    return {"dx": dx, "dw": (x * arrays["dy"][:, None]).sum(axis=2, dtype=np.float32)}


RIGHT = {
    "kind=dispatch {} forward": dispatch,
    "kind=combine {} forward": combine,
    "kind=dispatch {} backward": dispatch_backward,
    "kind=combine {} backward": combine_backward,
}

SMOKE = [p.text.partition(" ")[2] for p in find_op("permute_tokens").smoke]


def without_the_last_token(p, arrays):
    y = combine(p, arrays)["y"]
    y[-1] = 0
    return {"y": y}


WRONG = {
    "in the order of the tokens": (
        "kind=dispatch {} forward",
        lambda p, a: {"y": np.repeat(a["x"], p.active, axis=0)},
    ),
    "the next token": ("kind=dispatch {} forward", lambda p, a: dispatch(p, a, shift=1)),
    "without the last row": ("kind=dispatch {} forward", lambda p, a: dispatch(p, a, last=-1)),
    "without weights": ("kind=combine {} forward", lambda p, a: combine(p, a, np.ones_like)),
    "one weight missing": ("kind=combine {} forward", lambda p, a: combine(p, a, active=p.active - 1)),
    "weights of the other expert": ("kind=combine {} forward", lambda p, a: combine(p, a, lambda w: w[:, ::-1])),
    "weights of the next token": ("kind=combine {} forward", lambda p, a: combine(p, a, lambda w: np.roll(w, 1, 0))),
    "without the last token": ("kind=combine {} forward", without_the_last_token),
    "one expert not added": ("kind=dispatch {} backward", lambda p, a: dispatch_backward(p, a, active=p.active - 1)),
    "rows in the order of the tokens": (
        "kind=dispatch {} backward",
        lambda p, a: dispatch_backward(p, a, places=lambda at: np.arange(at.size).reshape(at.shape)),
    ),
    "gradients without weights": ("kind=combine {} backward", lambda p, a: combine_backward(p, a, np.ones_like)),
    "gradients of the next token": ("kind=combine {} backward", lambda p, a: combine_backward(p, a, shift=1)),
    "weights from other rows": ("kind=combine {} backward", lambda p, a: combine_backward(p, a, rows=False)),
}


KERNELS = [
    *(
        Kernel(f"permute_tokens {how.format(sizes)} {precision}", None, of_problem(function))
        for how, function in RIGHT.items()
        for sizes in dict.fromkeys([*SMOKE, LARGE])
        for precision in ("f32", "bf16", "f16")
    ),
    *(
        Kernel(f"permute_tokens {how.format(sizes)} {precision}", name, of_problem(function))
        for name, (how, function) in WRONG.items()
        for sizes in SIZES
        for precision in ("f32", "bf16")
    ),
]
