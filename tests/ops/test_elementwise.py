"""Elementwise functions: their gradients."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from tests.ops.wrong_kernels.elementwise import RIGHT_GRADIENT


@pytest.mark.parametrize("kind", RIGHT_GRADIENT)
def test_gradients_are_those_of_the_functions(kind):
    """Differences of the float64 definition."""
    op = find_op("elementwise")
    forward, backward = (
        parse_case(f"elementwise kind={kind} n=97 {d} f32 reference threads=1") for d in ("forward", "backward")
    )
    inputs = {n: a.astype(np.float64) for n, a in op.operands(forward).items()}
    made = {n: a.astype(np.float64) for n, a in op.operands(backward).items()}
    made |= {n: a for n, a in inputs.items() if n in made}
    if "result" in made:
        made["result"] = op.reference(forward, inputs)["y"]
    gradients = op.reference(backward, made)
    for name, gradient in gradients.items():
        step = 1e-6
        ends = [op.reference(forward, {**inputs, name[1:]: inputs[name[1:]] + s})["y"] for s in (step, -step)]
        assert (ends[0] - ends[1]) / (2 * step) * made["dy"] == pytest.approx(gradient, abs=1e-6)


def test_the_gradients_of_add_are_nothing_to_compute():
    from deepbench.core.errors import Unsupported

    case = parse_case("elementwise kind=add n=9 backward f32 reference threads=1")
    with pytest.raises(Unsupported, match="nothing to compute"):
        find_op("elementwise").operands(case)
