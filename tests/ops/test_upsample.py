"""Upsampling: the gradient of the reference."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from tests.ops.wrong_kernels.upsample import TRIPLE


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
