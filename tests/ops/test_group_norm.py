"""Group normalization: the gradient of the reference."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op


def test_the_gradient_is_that_of_the_result():
    """Differences of the sum of y · dy, in float64."""
    op, size = find_op("group_norm"), "n=2 c=4 h=2 w=3 groups=2"
    forward, backward = (parse_case(f"group_norm {size} {d} f32 reference threads=1") for d in op.directions)
    arrays = {name: array.astype(np.float64) for name, array in op.operands(backward).items()}
    found = op.reference(backward, arrays)
    whole = {**arrays, "shift": np.ones(4), "y": np.zeros_like(arrays["x"])}
    for name, gradient_name in (("x", "dx"), ("scale", "dscale"), ("shift", "dshift")):
        place, ends = tuple(n // 2 for n in whole[name].shape), []
        for step in (1e-6, -1e-6):
            moved = whole[name].copy()
            moved[place] += step
            ends.append((op.reference(forward, {**whole, name: moved})["y"] * arrays["dy"]).sum())
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(found[gradient_name][place], rel=1e-5)
