"""Pooling: the gradient of the reference."""

import numpy as np
import pytest

from deepbench.core.op import find_op
from tests.ops.wrong_kernels.pooling import OVERLAPPING


@pytest.mark.parametrize("kind", ["max", "average"])
def test_the_gradient_is_that_of_the_function(kind):
    """⟨dy, f(x)⟩ = ⟨df(x, dy), x⟩, because both are linear where the maximum stays at its place."""
    from deepbench.core.case import parse_case

    op = find_op("pooling")
    cases = {d: parse_case(f"pooling kind={kind} {OVERLAPPING} {d} f32 reference threads=1") for d in op.directions}
    made = {n: a.astype(np.float64) for c in cases.values() for n, a in op.operands(c).items()}
    y, dx = op.reference(cases["forward"], made)["y"], op.reference(cases["backward"], made)["dx"]

    assert (y * made["dy"]).sum() == pytest.approx((dx * made["x"]).sum())


def test_padding_need_not_be_added():
    from deepbench.core.case import parse_case

    text = "pooling kind=average n=1 c=2 h=4 w=4 r=3 s=3 pad_h=1 pad_w=1 {} f32 reference threads=1"
    op = find_op("pooling")
    for direction in op.directions:
        case = parse_case(text.format(direction))
        inside = 2 * (2 + 3 + 3 + 2) ** 2
        assert (2 * 16 * 9, {"without_padding": inside}) == (op.flop(case), op.other_flop(case))
        assert inside == op.least_flop(case)
    largest = parse_case(text.replace("average", "max").format("backward"))
    assert (2 * 16, {}) == (op.least_flop(largest), op.other_flop(largest))
