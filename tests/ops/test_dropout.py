"""Dropout: masks of any generator pass, and those of our own loop are independent."""

from itertools import pairwise

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.measuring.check import check
from tests.ops.wrong_kernels import Kernel, of_problem
from tests.ops.wrong_kernels.dropout import SIZES, drawn, masked


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("precision", ["f32", "bf16", "f16"])
def test_masks_of_other_generators_pass(n, precision):
    for seed in range(3):
        kernel = Kernel(f"dropout n={n} forward {precision}", None, of_problem(masked(drawn(seed))))
        assert kernel.verdict().passed


def test_masks_of_our_own_loop_differ_between_calls_and_parts():
    from deepbench.backends.loops import Loops
    from deepbench.native import library
    from tests.help.calls import run

    if library.compiled("elementwise") is None:
        pytest.skip("the C loops are not built")
    backend = Loops()
    backend.open()
    case = parse_case(f"dropout n=200000 forward f32 loops threads={backend.threads}")
    op = find_op(case.op)
    arrays, masks = op.operands(case), []
    kernel = backend.prepare(case, arrays)
    for _ in range(20):
        run(kernel.calls)
        assert check(op, case, arrays).passed
        masks.append(arrays["y"] != 0)
    both = np.mean([np.mean(a & b) for a, b in pairwise(masks)])
    lags = [np.mean([np.mean(mask[:-lag] & mask[lag:]) for mask in masks]) for lag in (1, 1024, 100_000)]

    assert [0.81] * 4 == pytest.approx([both, *lags], abs=0.004)
    assert 0.9 == pytest.approx(np.mean(masks), abs=0.001)
