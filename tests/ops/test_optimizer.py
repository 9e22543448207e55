"""Optimizers: each call is a step from where the last one ended."""

import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.measuring.check import check
from tests.ops.wrong_kernels.optimizer import stepped


@pytest.mark.parametrize("kind", ["sgd", "adam", "lamb", "adagrad"])
def test_a_second_step_is_not_the_first(kind):
    case = parse_case(f"optimizer kind={kind} n=1003 forward f32 reference threads=1")
    op = find_op("optimizer")
    arrays = op.operands(case)
    for name, values in op.reference(case, arrays).items():
        arrays[name][...] = values
    assert check(op, case, arrays).passed
    for name, values in stepped(case.problem, arrays).items():
        arrays[name][...] = values
    assert not check(op, case, arrays).passed
    op.reset(case, arrays)
    for name, values in stepped(case.problem, arrays).items():
        arrays[name][...] = values
    assert check(op, case, arrays).passed
