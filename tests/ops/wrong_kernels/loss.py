"""Losses, computed rightly and with mistakes."""

import numpy as np

from deepbench.core.op import find_op
from deepbench.ops.loss import KINDS
from tests.ops.wrong_kernels import Kernel, every, told

OP = find_op("loss")

SIZES = {
    "cross_entropy": ("rows=17 columns=67", "rows=60 columns=4096", "rows=3000 columns=81"),
    **dict.fromkeys(
        ("binary_cross_entropy", "mean_squared_error", "smooth_l1", "focal"), ("rows=9001", "rows=500 columns=91")
    ),
}

EVERY = [f"kind={kind} {sizes}" for kind, chosen in SIZES.items() for sizes in chosen]
SMALL = [p.text for p in OP.smoke if p.text not in EVERY]


def of_logits(x):
    """-log of the sigmoids of x and of -x."""
    small = np.log1p(np.exp(-np.abs(x)))
    return np.maximum(-x, 0) + small, np.maximum(x, 0) + small


def losses(problem, arrays, mistake=None):
    """One number for each row of a cross entropy, else for each number."""
    x, t = arrays["x"], arrays["target"]
    if problem.kind == "cross_entropy":
        largest = 0 if mistake == "overflow" else x.max(axis=1, keepdims=True)
        total = np.exp(x - largest)
        if mistake == "last column not summed":
            total = total[:, :-1]
        right = np.roll(x, -1, axis=1) if mistake == "next class" else x
        value = np.log(total.sum(axis=1)) - (right - largest)[np.arange(len(t)), t]
        return value / np.log(np.float32(2)) if mistake == "logarithm of base 2" else value
    if problem.kind in ("binary_cross_entropy", "focal"):
        if mistake == "targets exchanged":
            t = 1 - t
        right, wrong = of_logits(x)
        value = np.where(t > 0, right, wrong)
        if mistake == "overflow":
            value = np.log(1 + np.exp(x)) - x * t
        if problem.kind == "focal":
            exponent = 1 if mistake == "exponent of 1" else 2
            alpha = np.where(t > 0, 0.25, 0.75) if mistake != "alpha forgotten" else 1
            alpha = 1 - alpha if mistake == "alpha exchanged" else alpha
            value = alpha * np.exp(-np.where(t > 0, wrong, right)) ** exponent * value
        return value.astype(np.float32)
    d = x - t
    if problem.kind == "mean_squared_error":
        return d**2 / 2 if mistake == "halved" else d**2
    edge = np.float32(2 if mistake == "edge at 2" else 1)
    return np.where(np.abs(d) < edge, d**2 / 2 / edge, np.abs(d) - edge / 2)


def loss(problem, arrays, mistake=None):
    found = losses(problem, arrays, mistake)
    if mistake == "last row dropped":
        total = np.delete(found, -1, axis=0).sum(dtype=np.float64)
    else:
        total = found.sum(dtype=np.float64)
    count = 1 if mistake == "summed" else found.size - (mistake == "divided by one less")
    if mistake == "divided by the rows":
        count = problem.rows
    if mistake == "divided by all numbers":
        count = arrays["x"].size
    return {"loss": np.array([total / count], np.float32)}


MISTAKES = [
    *((kind, m) for kind in KINDS for m in ("summed", "last row dropped", "divided by one less")),
    *(("cross_entropy", m) for m in ("last column not summed", "next class", "overflow", "logarithm of base 2")),
    ("cross_entropy", "divided by all numbers"),
    *((kind, "overflow") for kind in ("binary_cross_entropy",)),
    *((kind, "targets exchanged") for kind in ("binary_cross_entropy", "focal")),
    *(("focal", m) for m in ("exponent of 1", "alpha forgotten", "alpha exchanged")),
    ("mean_squared_error", "halved"),
    ("smooth_l1", "edge at 2"),
]

# The last number of these is classified so well that its focal loss is less than a millionth of the sum.
ROUNDED_AWAY = ("focal", "last row dropped", "rows=9001")


def gradient(problem, arrays, mistake=None):
    x, t = arrays["x"], arrays["target"]
    count = len(x) if problem.kind == "cross_entropy" else x.size
    factor = np.float32(1) if mistake == "dloss forgotten" else arrays["dloss"]
    factor = factor / np.float32(1 if mistake == "summed" else count)
    if problem.kind == "cross_entropy":
        largest = x.max(axis=1, keepdims=True)
        e = np.exp(x - largest)
        slope = e / e.sum(axis=1, keepdims=True)
        if mistake != "target forgotten":
            slope[np.arange(len(t)), t - (mistake == "next class")] -= 1
    elif problem.kind in ("binary_cross_entropy", "focal"):
        right, wrong = of_logits(x)
        slope = np.exp(-right) - (0 if mistake == "target forgotten" else t)
        if problem.kind == "focal":
            entropy, other = np.where(t > 0, right, wrong), np.where(t > 0, wrong, right)
            hit, miss = np.exp(-entropy), np.exp(-other)
            inner = miss if mistake == "one term forgotten" else 2 * hit * entropy + miss
            slope = np.where(t > 0, -0.25, 0.75) * miss**2 * inner
    elif problem.kind == "mean_squared_error":
        slope = (x - t) * (1 if mistake == "halved" else 2)
    else:
        slope = x - t if mistake == "not bounded" else np.clip(x - t, -1, 1)
    dx = (factor * slope).astype(np.float32)
    if mistake == "other sign":
        dx = -dx
    if mistake == "last row dropped":
        dx[-1] = 0
    return {"dx": dx}


GRADIENT_MISTAKES = [
    *((kind, m) for kind in KINDS for m in ("summed", "dloss forgotten", "other sign", "last row dropped")),
    *((kind, "target forgotten") for kind in ("cross_entropy", "binary_cross_entropy")),
    ("cross_entropy", "next class"),
    ("focal", "one term forgotten"),
    ("mean_squared_error", "halved"),
    ("smooth_l1", "not bounded"),
]


# The last number of these is classified so well that its focal loss is less than a millionth of the sum.
ROUNDED_AWAY = ("focal", "last row dropped", "rows=9001")

PRECISIONS = ("f32", "bf16", "f16")
KERNELS = [
    *every("loss", EVERY, [f"forward {p}" for p in PRECISIONS], told(loss)),
    *every("loss", EVERY, [f"backward {p}" for p in PRECISIONS], told(gradient)),
    *every("loss", SMALL, ["forward f32"], told(loss)),
    *every("loss", SMALL, ["backward f32"], told(gradient)),
    *(
        Kernel(f"loss kind={kind} {sizes} {direction} {precision}", mistake, told(function))
        for direction, function, mistakes in (("forward", loss, MISTAKES), ("backward", gradient, GRADIENT_MISTAKES))
        for kind, mistake in mistakes
        for sizes in SIZES[kind]
        for precision in ("f32", "bf16")
        if direction == "backward" or (kind, mistake, sizes) != ROUNDED_AWAY
    ),
    *(
        Kernel(f"loss kind={kind} rows=500 columns=91 forward f32", "divided by the rows", told(loss))
        for kind in ("binary_cross_entropy", "mean_squared_error", "smooth_l1", "focal")
    ),
]
