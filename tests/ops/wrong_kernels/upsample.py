"""Upsampling, computed rightly and with mistakes."""

import numpy as np

from deepbench.core.op import find_op
from tests.ops.wrong_kernels import Kernel, of_problem

SMALL = "n=2 c=5 h=7 w=9"

LARGE = "n=2 c=16 h=80 w=84"

TRIPLE = "n=1 c=3 h=4 w=5 scale=3"


def upsampled(p, x, added=None, shift=0):
    y = np.roll(x, shift, axis=3).repeat(p.scale, axis=2).repeat(p.scale, axis=3)
    return y if added is None else y + added


def forward(p, arrays, **how):
    return {"y": upsampled(p, arrays["x"], arrays.get("z"), **how)}


def squares(p, arrays):
    return arrays["dy"].reshape(p.n, p.c, p.h, p.scale, p.w, p.scale)


def backward(p, arrays):
    return {"dx": squares(p, arrays).sum(axis=(3, 5), dtype=np.float32)}


def channels_last(evaluate):
    """The same with the channels in the last axis."""

    def moved(p, arrays):
        views = {name: np.moveaxis(a, -1, 1) for name, a in arrays.items()}
        return {name: np.moveaxis(a, 1, -1) for name, a in evaluate(p, views).items()}

    return moved


def linear(p, arrays):
    """Between the neighbours, as in bilinear interpolation along one axis."""
    y = upsampled(p, arrays["x"])
    return {"y": (y + np.roll(y, 1, axis=3)) / 2}


def without_the_last_row(p, arrays):
    y = upsampled(p, arrays["x"])
    y[:, :, -1] = 0
    return {"y": y}


def spread(p, arrays):
    """Zeros between the pixels."""
    y = np.zeros_like(upsampled(p, arrays["x"]))
    y[:, :, :: p.scale, :: p.scale] = arrays["x"]
    return {"y": y}


WRONG = {
    ("forward", ""): {
        "linear": linear,
        "without the last row": without_the_last_row,
        "spread": spread,
        "the next column": lambda p, arrays: forward(p, arrays, shift=1),
    },
    ("forward", "add=yes"): {
        "nothing added": lambda p, arrays: {"y": upsampled(p, arrays["x"])},
        "what is added alone": lambda p, arrays: {"y": arrays["z"]},
        "subtracted": lambda p, arrays: {"y": upsampled(p, arrays["x"], -arrays["z"])},
    },
    ("backward", ""): {
        "mean": lambda p, arrays: {"dx": squares(p, arrays).mean(axis=(3, 5), dtype=np.float32)},
        "one row of each square": lambda p, arrays: {"dx": squares(p, arrays)[:, :, :, 0].sum(4, np.float32)},
        "one of each square": lambda p, arrays: {"dx": squares(p, arrays)[:, :, :, 0, :, 0]},
        "the next row": lambda p, arrays: {"dx": np.roll(backward(p, arrays)["dx"], 1, axis=2)},
    },
}
KERNELS = [
    *(
        Kernel(f"upsample {sizes} {direction} {precision}{layout}{add}", None, of_problem(moved(function)))
        for precision in ("f32", "bf16", "f16")
        for sizes in [*(p.text for p in find_op("upsample").smoke), LARGE]
        for layout, moved in (("", lambda evaluate: evaluate), (" layout=nhwc", channels_last))
        for direction, function, add in [
            *(("forward", forward, add) for add in ("", " add=yes")),
            ("backward", backward, ""),
        ]
    ),
    *(
        Kernel(f"upsample {sizes} {direction} {precision} {settings}".strip(), name, of_problem(function))
        for (direction, settings), functions in WRONG.items()
        for name, function in functions.items()
        for sizes in (SMALL, LARGE, TRIPLE)
        for precision in ("f32", "bf16")
    ),
]
