"""The check of the permutation of tokens passes float32 and finds likely mistakes."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.core.op import find_op
from deepbench.ops.permute_tokens import PermuteTokens
from tests.ops.evaluation import is_found, is_right_with_room

SMALL = "tokens=37 experts=8 active=2 hidden=33"
LARGE = "tokens=3000 experts=64 active=8 hidden=512"
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


@pytest.mark.parametrize("precision", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("sizes", [*SMOKE, LARGE])
@pytest.mark.parametrize("how", RIGHT)
def test_float32_passes(how, sizes, precision):
    assert is_right_with_room(f"permute_tokens {how.format(sizes)} {precision}", RIGHT[how])


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


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_permutation_is_found(name, sizes, precision):
    text, wrong = WRONG[name]

    assert is_found(f"permute_tokens {text.format(sizes)} {precision}", wrong)


def made(kind, direction, sizes=SMALL):
    case = parse_case(f"permute_tokens kind={kind} {sizes} {direction} f32 reference threads=1")
    op = find_op(case.op)
    return op, case, {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in op.operands(case).items()}


@pytest.mark.parametrize("kind", ["dispatch", "combine"])
def test_the_gradients_are_those_of_the_function(kind):
    """⟨dy, f(x)⟩ = ⟨df(x, dy), x⟩, because both are linear in x; so is combine in its weights."""
    op, forward, arrays = made(kind, "forward")
    _, backward, gradients = made(kind, "backward")
    gradients |= {name: arrays[name] for name in ("x", "w") if name in arrays}

    y, found = op.reference(forward, arrays)["y"], op.reference(backward, gradients)

    product = (y * gradients["dy"]).sum()
    assert product == pytest.approx((found["dx"] * arrays["x"]).sum())
    if kind == "combine":
        assert product == pytest.approx((found["dw"] * arrays["w"]).sum())


def test_every_token_goes_to_so_many_experts_and_rows_are_in_their_order():
    op, case, arrays = made("dispatch", "forward", "tokens=3000 experts=60 active=8 hidden=1")
    _, _, back = made("combine", "forward", "tokens=3000 experts=60 active=8 hidden=1")
    sources, places = arrays["sources"], back["places"]

    assert np.array_equal(np.bincount(sources), np.full(3000, 8))
    assert np.array_equal(sources[places], np.arange(3000)[:, None].repeat(8, axis=1))
    starts = np.flatnonzero(np.diff(sources) < 0).size + 1  # rows of an expert are in the order of the tokens
    assert 60 == starts
    assert 0 == op.flop(case)
    assert 8 * 3000 == op.gathers(case)


def test_more_active_experts_than_there_are_is_refused():
    with pytest.raises(BadInput, match="active must be at most experts, 4, found 5"):
        PermuteTokens("dispatch", 1, 4, 5, 1)
