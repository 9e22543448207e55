"""Pooling, computed rightly and with mistakes."""

import itertools

import numpy as np

from deepbench.core.op import find_op
from tests.ops.wrong_kernels import Kernel, every, of_problem

OVERLAPPING = "n=2 c=5 h=13 w=11 r=3 s=3 pad_h=1 pad_w=1 stride_h=2 stride_w=2"

REALISTIC = "n=4 c=64 h=56 w=56 r=3 s=3 pad_h=1 pad_w=1 stride_h=2 stride_w=2"

DEEP = "n=1 c=4 h=6 w=5 r=3 s=3 pad_h=1 pad_w=1 stride_h=1 stride_w=1 d=5 t=3 pad_d=1"


def windows(p, image, padding):
    """All windows of an array (n, c, [d,] h, w): each element of the window, and where it is in the padded array."""
    deep = slice(3 - p.dimensions, None)
    padded = np.pad(image, [(0, 0), (0, 0), *((pad, pad) for pad in p.pad[deep])], constant_values=padding)
    for place in itertools.product(*map(range, p.window[deep])):
        cut = [slice(i, i + (n - 1) * s + 1, s) for i, n, s in zip(place, p.output[deep], p.stride[deep], strict=True)]
        at = (slice(None), slice(None), *cut)
        yield at, padded[at]


def inside(p, padded):
    deep = slice(3 - p.dimensions, None)
    cut = [slice(pad, pad + n) for pad, n in zip(p.pad[deep], p.image[deep], strict=True)]
    return padded[(slice(None), slice(None), *cut)]


def forward(p, arrays, padding=-np.inf, divisor=None):
    values = [v for _, v in windows(p, arrays["x"], padding if p.kind == "max" else 0)]
    if p.kind == "max":
        return {"y": np.max(values, axis=0)}
    total = np.cumsum(values, axis=0, dtype=np.float32)[-1]
    return {"y": total / (np.float32(len(values)) if divisor is None else divisor(p, arrays))}


def backward(p, arrays, last=False, add=True, divide=True):
    shape = arrays["dx"]
    dx = np.pad(np.zeros_like(shape), [(0, 0), (0, 0), *((pad, pad) for pad in p.pad[3 - p.dimensions :])])
    if p.kind == "max":
        pairs = list(windows(p, arrays["x"], -np.inf))
        values = np.stack([v for _, v in pairs])
        chosen = len(pairs) - 1 - values[::-1].argmax(axis=0) if last else values.argmax(axis=0)
    else:
        pairs, chosen = list(windows(p, shape, 0)), None
    for number, (at, _) in enumerate(pairs):
        dy = (
            arrays["dy"] / np.float32(len(pairs) if divide else 1)
            if chosen is None
            else arrays["dy"] * (chosen == number)
        )
        if add:
            dx[at] += dy
        else:
            dx[at] = np.where(dy != 0, dy, dx[at])
    return {"dx": np.ascontiguousarray(inside(p, dx))}


SMALL = [p.text for p in find_op("pooling").smoke]


def channels_last(evaluate):
    """The same with the channels in the last axis."""

    def moved(p, arrays):
        views = {name: np.moveaxis(a, -1, 1) for name, a in arrays.items()}
        return {name: np.moveaxis(a, 1, -1) for name, a in evaluate(p, views).items()}

    return moved


def within_the_image(p, arrays):
    """How many elements of each window are not padding."""
    return sum(v for _, v in windows(p, np.ones_like(arrays["x"]), 0))


def without_the_last_row(p, arrays):
    y = forward(p, arrays)["y"]
    y[..., -1, :] = 0
    return {"y": y}


WRONG = {
    "padding counts as zero": ("max", lambda p, a: forward(p, a, padding=0)),
    "padding is left out": ("average", lambda p, a: forward(p, a, divisor=within_the_image)),
    "a sum": ("average", lambda p, a: forward(p, a, divisor=lambda *_: np.float32(1))),
    "without the last row": ("max", without_the_last_row),
}


def without_the_last_image(p, arrays):
    dx = backward(p, arrays)["dx"]
    dx[-1] = 0
    return {"dx": dx}


WRONG_GRADIENT = {
    "windows that overlap overwrite": ("max", lambda p, a: backward(p, a, add=False)),
    "windows that overlap overwrite in averages": ("average", lambda p, a: backward(p, a, add=False)),
    "not divided": ("average", lambda p, a: backward(p, a, divide=False)),
    "without the last image": ("max", without_the_last_image),
}


def sizes_for(name, sizes):
    """Windows of few numbers, which may all be negative, where padding must not count as zero."""
    return sizes.replace("r=3 s=3", "r=2 s=2").replace("t=3", "t=2") if name == "padding counts as zero" else sizes


PRECISIONS = ("f32", "bf16", "f16")
RIGHT_SIZES = [*SMALL, f"kind=max {REALISTIC}", f"kind=average {REALISTIC}"]
OVERLAPS = [f"kind={kind} {OVERLAPPING}" for kind in ("max", "average")]
KERNELS = [
    *every("pooling", RIGHT_SIZES, [f"forward {p}" for p in PRECISIONS], of_problem(forward)),
    *every("pooling", RIGHT_SIZES, [f"backward {p}" for p in PRECISIONS], of_problem(backward)),
    *every("pooling", OVERLAPS, ["forward f32 layout=nhwc"], of_problem(channels_last(forward))),
    *every("pooling", OVERLAPS, ["backward f32 layout=nhwc"], of_problem(channels_last(backward))),
    *(
        Kernel(f"pooling kind={kind} {sizes_for(name, sizes)} {direction} {precision}", name, of_problem(function))
        for direction, functions in (("forward", WRONG), ("backward", WRONG_GRADIENT))
        for name, (kind, function) in functions.items()
        for sizes in (OVERLAPPING, REALISTIC, DEEP)
        for precision in ("f32", "bf16")
    ),
    # In bf16 many numbers of a window are equal; the gradient belongs to the first.
    Kernel(f"pooling kind=max {REALISTIC} backward bf16", "the last of equal numbers", of_problem(backward, last=True)),
]
