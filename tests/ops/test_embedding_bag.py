"""Embedding bags: which rows cross the memory."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op


def test_rows_that_are_read_several_times_cross_the_memory_once():
    op = find_op("embedding_bag")
    case = parse_case("embedding_bag rows=1000 dim=64 bags=500 bag=4 forward f32 reference threads=1")
    rows = np.unique(op.operands(case)["indices"]).size
    others = 4 * (2000 + 500 + 500 * 64)

    assert others + 256 * rows == pytest.approx(op.traffic_bytes(case), rel=0.02)
    assert op.touched_bytes(case) == op.traffic_bytes(case) == op.traffic_bytes(case, op.touched_bytes(case) - 1)
    assert 0 == op.traffic_bytes(case, op.touched_bytes(case))
    assert 2000 == op.gathers(case)
    backward_case = parse_case("embedding_bag rows=1000 dim=64 bags=500 bag=4 backward f32 reference threads=1")
    assert op.operand_bytes(backward_case) == op.traffic_bytes(backward_case)


def test_an_embedding_is_a_copy_and_a_bag_adds_all_rows_but_the_first():
    text = "embedding_bag rows=100 dim=16 bags=5 bag={} {} f32 reference threads=1"
    counted = [
        [find_op("embedding_bag").flop(parse_case(text.format(bag, direction))) for bag in (1, 4)]
        for direction in ("forward", "backward")
    ]

    assert [[0, 5 * 3 * 16], [5 * 16, 5 * 4 * 16]] == counted
