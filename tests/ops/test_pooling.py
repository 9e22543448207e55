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
