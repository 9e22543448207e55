"""The check of upsampling passes float32 and finds likely mistakes."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from tests.ops.evaluation import is_found, is_right_with_room

SMALL = "n=2 c=5 h=7 w=9"
LARGE = "n=2 c=64 h=80 w=84"
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


@pytest.mark.parametrize("precision", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("sizes", [*(p.text for p in find_op("upsample").smoke), LARGE])
def test_float32_passes(sizes, precision):
    for last, moved in (("", lambda evaluate: evaluate), (" layout=nhwc", channels_last)):
        text = f"upsample {sizes} {{}} {precision}{last}"
        assert is_right_with_room(text.format("forward"), moved(forward))
        assert is_right_with_room(f"{text.format('forward')} add=yes", moved(forward))
        assert is_right_with_room(text.format("backward"), moved(backward))


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


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("sizes", [SMALL, LARGE, TRIPLE])
@pytest.mark.parametrize("wrong", [linear, without_the_last_row, spread, lambda p, arrays: forward(p, arrays, shift=1)])
def test_a_wrong_image_is_found(wrong, sizes, precision):
    assert is_found(f"upsample {sizes} forward {precision}", wrong)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("sizes", [SMALL, LARGE, TRIPLE])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda p, arrays: {"y": upsampled(p, arrays["x"])},
        lambda p, arrays: {"y": arrays["z"]},
        lambda p, arrays: {"y": upsampled(p, arrays["x"], -arrays["z"])},
    ],
)
def test_a_wrong_addition_is_found(wrong, sizes, precision):
    assert is_found(f"upsample {sizes} forward {precision} add=yes", wrong)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("sizes", [SMALL, LARGE, TRIPLE])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda p, arrays: {"dx": squares(p, arrays).mean(axis=(3, 5), dtype=np.float32)},
        lambda p, arrays: {"dx": squares(p, arrays)[:, :, :, 0].sum(axis=4, dtype=np.float32)},
        lambda p, arrays: {"dx": squares(p, arrays)[:, :, :, 0, :, 0]},
        lambda p, arrays: {"dx": np.roll(backward(p, arrays)["dx"], 1, axis=2)},
    ],
)
def test_a_wrong_gradient_is_found(wrong, sizes, precision):
    assert is_found(f"upsample {sizes} backward {precision}", wrong)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_the_gradient_is_that_of_the_function(layout):
    """⟨dy, f(x)⟩ = ⟨df(dy), x⟩, because the function is linear."""
    op = find_op("upsample")
    cases = {
        d: parse_case(f"upsample {TRIPLE} {d} f32 reference threads=1 layout={layout}") for d in ("forward", "backward")
    }
    arrays, gradients = (
        {n: a.astype(np.float64) for n, a in op.operands(cases[d]).items()} for d in ("forward", "backward")
    )

    y, dx = op.reference(cases["forward"], arrays)["y"], op.reference(cases["backward"], gradients)["dx"]

    assert (y * gradients["dy"]).sum() == pytest.approx((dx * arrays["x"]).sum())
    assert 9 * arrays["x"].size == op.flop(cases["backward"])
    assert 0 == op.flop(cases["forward"])
