"""Permutation of tokens: the gradients of the reference, its order, and what is refused."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.core.op import find_op
from deepbench.ops.permute_tokens import PermuteTokens
from tests.ops.wrong_kernels.permute_tokens import SMALL


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
