"""Optimizers, computed rightly and with mistakes."""

import numpy as np

from deepbench.ops.optimizer import BETA1, BETA2, DECAY, EPSILON, MOMENTUM, RATE, STEP
from tests.ops.wrong_kernels import Kernel, of_problem

SIZES = (1003, 200_017)

KINDS = ["sgd", "adam", "adamw", "lamb", "adagrad"]


def stepped(problem, arrays, **changes):
    """A step in float32; `changes` replace one of its numbers."""
    f = np.float32
    c = {"beta1": BETA1, "beta2": BETA2, "bias": True, "nesterov": False, "coupled": False, "decay": DECAY, **changes}
    p, g, v = (arrays[name] for name in "pgv")
    if problem.kind == "sgd":
        v = f(c.get("momentum", MOMENTUM)) * v + g
        step = g + f(MOMENTUM) * v if c["nesterov"] else v
        return {"p": p - f(RATE) * step, "v": v}
    if problem.kind == "adagrad":
        v = (f(c.get("keep", 1.0)) * v + g * g).astype(f)
        of = arrays["v"] if c.get("old") else v
        return {"p": p - f(RATE) * g / (np.sqrt(of) if c.get("root", True) else of), "v": v}
    if c["coupled"]:
        g = g + f(DECAY) * p
    m = f(c["beta1"]) * arrays["m"] + f(1 - c["beta1"]) * g
    v = f(c["beta2"]) * v + f(1 - c["beta2"]) * g * g
    corrections = (1 - BETA1**STEP, 1 - BETA2**STEP) if c["bias"] else (1.0, 1.0)
    old = arrays["m"] if c.get("old") else m
    if problem.kind == "lamb":
        r = old / f(corrections[0]) / (np.sqrt(v / f(corrections[1])) + f(EPSILON)) + f(c["decay"]) * p
        size_p, size_r = (np.sqrt((x[: c.get("count")].astype(float) ** 2).sum()) for x in (p, r))
        size_p, size_r = c.get("norms", lambda *sizes: sizes)(size_p, size_r)
        return {"p": p - f(RATE * size_p / size_r) * r, "m": m, "v": v}
    if problem.kind == "adamw" and not c["coupled"]:
        p = p * f(1 - RATE * c["decay"])
    return {
        "p": p - f(RATE) * (old / f(corrections[0])) / (np.sqrt(v / f(corrections[1])) + f(EPSILON)),
        "m": m,
        "v": v,
    }


def without_the_last(problem, arrays):
    """The last parameter keeps its value."""
    found = stepped(problem, arrays)
    found["p"][-1] = arrays["p"][-1]
    return found


WRONG = {
    "no correction of the bias": ("adam", {"bias": False}),
    "other beta1": ("adam", {"beta1": 0.99}),
    "other beta2": ("adam", {"beta2": 0.99}),
    "the moment before the step": ("adam", {"old": True}),
    "other momentum": ("sgd", {"momentum": 0.99}),
    "Nesterov": ("sgd", {"nesterov": True}),
    "no ratio of norms": ("lamb", {"norms": lambda p, r: (1.0, 1.0)}),
    "the ratio the other way round": ("lamb", {"norms": lambda p, r: (r, p)}),
    "squares of norms": ("lamb", {"norms": lambda p, r: (p * p, r * r)}),
    "the moment before the step in LAMB": ("lamb", {"old": True}),
    "a mean of squares": ("adagrad", {"keep": 0.999}),
    "without the square root": ("adagrad", {"root": False}),
    "the squares before the step": ("adagrad", {"old": True}),
}


def with_norms_of_a_part(problem, arrays):
    """One thread of four forgets its share of the sums: the ratio is wrong only by the randomness of the parts."""
    return stepped(problem, arrays, count=problem.n * 3 // 4)


KERNELS = [
    *(
        Kernel(f"optimizer kind={kind} n={n} forward {precision}", None, of_problem(stepped))
        for kind in KINDS
        for n in (1, *SIZES)
        for precision in ("f32", "bf16")
    ),
    *(
        Kernel(f"optimizer kind={kind} n={n} forward {precision}", name, of_problem(stepped, **changes))
        for name, (kind, changes) in WRONG.items()
        for n in SIZES
        for precision in ("f32", "bf16")
    ),
    # In bf16 a wrong decay is smaller than the rounding of the parameters.
    *(
        Kernel(f"optimizer kind={kind} n={n} forward f32", name, of_problem(stepped, **changes))
        for kind in ("adamw", "lamb")
        for n in SIZES
        for name, changes in (("no decay", {"decay": 0.0}), ("the decay in the gradient", {"coupled": True}))
    ),
    # Only in f32: the ratio of norms makes up for a factor of r, but for its share of the decay.
    *(
        Kernel(f"optimizer kind=lamb n={n} forward f32", name, of_problem(function, **changes))
        for n in SIZES
        for name, function, changes in (
            ("no correction of the bias", stepped, {"bias": False}),
            ("norms of a part of the parameters", with_norms_of_a_part, {}),
        )
    ),
    *(
        Kernel(f"optimizer kind={kind} n={n} forward f32", "the last one is not updated", of_problem(without_the_last))
        for kind in KINDS
        for n in SIZES
    ),
]
