"""Rotary positions: correct kernels pass with room, and each likely mistake is found."""

import numpy as np
import pytest

from deepbench.core import parts
from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from tests.ops.norm_kernels import solved, spoiled

SIZES = ["tokens=5 heads=3 dim=14", "tokens=40 heads=6 dim=96", "tokens=70 heads=9 dim=128"]
MISTAKES = [
    *("copied", "other sign", "other pairs", "sine of the next frequency", "cosine of the next frequency"),
    *("angle of the next token", "angle of the first token", "first half only", "sine and cosine exchanged"),
    *("first head only", "last row not written", "last row copied"),
]


def kernel(case, a, mistake):
    p = case.problem
    source, result = ("x", "y") if case.direction == "forward" else ("dy", "dx")
    x, cos, sin = a[source], a["cos"], a["sin"] * np.float32(1 if case.direction == "forward" else -1)
    if mistake == "other sign":
        sin = -sin
    if mistake == "sine and cosine exchanged":
        cos, sin = sin, cos
    if mistake == "sine of the next frequency":
        sin = np.roll(sin, -1, axis=1)
    if mistake == "cosine of the next frequency":
        cos = np.roll(cos, -1, axis=1)
    if mistake == "angle of the next token":
        cos, sin = (np.roll(array, -1, axis=0) for array in (cos, sin))
    if mistake == "angle of the first token":
        cos, sin = (np.broadcast_to(array[:1], array.shape) for array in (cos, sin))
    interleaved = (case.settings["pairs"] == "interleaved") != (mistake == "other pairs")
    pairs = x.reshape(p.tokens, p.heads, *((-1, 2) if interleaved else (2, -1)))
    first, second = (pairs[..., 0], pairs[..., 1]) if interleaved else (pairs[..., 0, :], pairs[..., 1, :])
    cos, sin = cos[:, None], sin[:, None]
    turned = [first * cos - second * sin, second * cos + first * sin]
    if mistake == "first half only":
        turned[1] = second
    y = np.stack(turned, axis=-1 if interleaved else -2).reshape(x.shape)
    if mistake == "copied":
        y = x.copy()
    if mistake == "first head only":
        y[:, 1:] = x[:, 1:]
    return spoiled({result: y}, mistake)


@pytest.mark.parametrize("pairs", ["halves", "interleaved"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("size", ["tokens=1 heads=1 dim=2", *SIZES])
def test_a_correct_kernel_passes_with_room(size, kind, direction, pairs):
    verdict, error = solved(f"rope {size} {direction} {kind} pairs={pairs}", kernel)

    assert verdict.passed, verdict.sentence
    assert error < 0.5


@pytest.mark.parametrize("pairs", ["halves", "interleaved"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake, size, kind, direction, pairs):
    text = f"rope {size} {direction} {kind} pairs={pairs}"

    assert not solved(text, kernel, mistake)[0].passed


@pytest.mark.parametrize("mistake", [None, "last row not written", "other sign"])
def test_a_sample_of_tokens_finds_mistakes(monkeypatch, mistake):
    monkeypatch.setattr(parts, "FULL_CHECK_WORK", 0)
    verdict, _ = solved("rope tokens=70 heads=3 dim=16 forward f32", kernel, mistake)

    assert verdict.passed == (mistake is None)
    assert mistake or " parts" in verdict.how


@pytest.mark.parametrize("pairs", ["halves", "interleaved"])
def test_turning_forward_and_back_changes_nothing(pairs):
    op, text = find_op("rope"), f"rope tokens=4 heads=2 dim=8 {{}} f32 reference threads=1 pairs={pairs}"
    forward, backward = (parse_case(text.format(direction)) for direction in op.directions)
    arrays = op.operands(forward)
    y = op.reference(forward, arrays)["y"]
    back = op.reference(backward, {**arrays, "dy": y, "dx": np.zeros_like(y)})["dx"]

    assert np.abs(y - arrays["x"]).max() > 0.5
    assert back == pytest.approx(arrays["x"], abs=1e-6)


def test_the_product_of_a_query_and_a_key_depends_on_their_distance():
    """The reason for rotary positions; with the angles of the paper."""
    op = find_op("rope")
    case = parse_case("rope tokens=9 heads=1 dim=16 forward f32 reference threads=1")
    arrays = op.operands(case)
    arrays["x"][...] = arrays["x"][:1]
    y = op.reference(case, arrays)["y"][:, 0]

    assert y[0] @ y[3] == pytest.approx(y[5] @ y[8], abs=1e-5)
    assert y[0] @ y[3] != pytest.approx(y[5] @ y[6], abs=1e-2)
    first, second = arrays["cos"][1].astype(np.float64), arrays["sin"][1].astype(np.float64)
    angle = np.arctan2(second, first)[-1]
    assert angle == pytest.approx(1001 * 10000 ** (-14 / 16), abs=1e-6)
