"""Losses: large problems, and the gradient of the reference."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.ops import loss as op_module
from deepbench.ops.loss import KINDS
from tests.ops.wrong_kernels import Kernel, told
from tests.ops.wrong_kernels.loss import OP, SIZES, loss


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_problem_is_computed_in_f32_with_the_same_result(monkeypatch, kind):
    text = f"loss kind={kind} {SIZES[kind][-1]} forward f32"
    right, wrong = (Kernel(text, mistake, told(loss)) for mistake in (None, "last row dropped"))
    full = right.verdict()
    monkeypatch.setattr(op_module, "MOST_IN_F64", 0)
    large = right.verdict()

    assert large.passed
    assert abs(large.error - full.error) < 0.05
    assert not wrong.verdict().passed


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_the_loss(kind):
    sizes = "rows=3 columns=4"
    forward, backward = (parse_case(f"loss kind={kind} {sizes} {d} f32 reference threads=1") for d in OP.directions)
    arrays = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in OP.operands(backward).items()}
    if KINDS[kind].of_logits:
        arrays["x"][0] -= 100  # so that differences are seen
    found = OP.reference(backward, arrays)["dx"] / arrays["dloss"]
    for place in np.ndindex(3, 4):
        ends = []
        for step in (1e-5, -1e-5):
            x = arrays["x"].copy()
            x[place] += step
            ends.append(OP.reference(forward, {**arrays, "x": x, "loss": np.zeros(1)})["loss"][0])
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(found[place], abs=1e-7)
