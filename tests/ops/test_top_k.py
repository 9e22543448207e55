"""The largest k: of equal numbers, either is right."""

import numpy as np

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.measuring.check import check


def test_in_bf16_either_of_two_equal_numbers_is_right():
    case = parse_case("top_k rows=4 columns=300 k=20 forward bf16 reference threads=1")
    op = find_op("top_k")
    arrays = op.operands(case)
    for turn in (1, -1):
        order = np.argsort(-arrays["x"].astype(np.float64)[:, ::turn], axis=1, kind="stable")[:, :20]
        arrays["indices"][...] = order if turn == 1 else 299 - order
        arrays["values"][...] = np.take_along_axis(arrays["x"], arrays["indices"].astype(int), axis=1)
        assert check(op, case, arrays).passed
        if turn == 1:
            before = arrays["indices"].copy()
    assert (before != arrays["indices"]).any()
