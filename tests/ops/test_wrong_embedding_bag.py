"""The check of embedding bags passes float32 and finds likely mistakes."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from tests.ops.evaluation import is_found, is_right_with_room

REALISTIC = "rows=200000 dim=64 bags=4000 bag=20"


def forward(problem, arrays, bag=None, shift=0):
    places = arrays["indices"].reshape(problem.bags, problem.bag)[:, :bag]
    y = np.zeros((problem.bags, problem.dim), np.float32)
    for column in places.T:
        y += arrays["table"][(column + shift) % problem.rows]
    return {"y": y}


def backward(problem, arrays, lookups=None, add=True, shift=0):
    dtable = np.zeros((problem.rows, problem.dim), np.float32)
    rows = (arrays["indices"][:lookups] + shift) % problem.rows
    dy = np.repeat(arrays["dy"], problem.bag, axis=0)[:lookups]
    if add:
        np.add.at(dtable, rows, dy)
    else:
        dtable[rows] = dy
    return {"dtable": dtable}


SMALL = [p.text for p in find_op("embedding_bag").smoke]


@pytest.mark.parametrize("precision", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("text", [*SMALL, REALISTIC])
def test_float32_passes(text, precision):
    assert is_right_with_room(f"embedding_bag {text} forward {precision}", forward)
    assert is_right_with_room(f"embedding_bag {text} backward {precision}", backward)


def mean(problem, arrays):
    return {"y": forward(problem, arrays)["y"] / np.float32(problem.bag)}


def without_the_last_bag(problem, arrays):
    y = forward(problem, arrays)["y"]
    y[-1] = 0
    return {"y": y}


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("text", ["rows=10 dim=7 bags=5 bag=3", "rows=1000 dim=64 bags=33 bag=20", REALISTIC])
@pytest.mark.parametrize(
    "wrong",
    [
        mean,
        without_the_last_bag,
        lambda p, a: forward(p, a, bag=p.bag - 1),
        lambda p, a: forward(p, a, shift=1),
    ],
)
def test_a_wrong_sum_is_found(text, precision, wrong):
    assert is_found(f"embedding_bag {text} forward {precision}", wrong)


def not_cleared(problem, arrays):
    """Rows that no bag has keep what was there."""
    dtable = backward(problem, arrays)["dtable"]
    dtable[np.setdiff1d(np.arange(problem.rows), arrays["indices"])] = 1
    return {"dtable": dtable}


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("text", ["rows=50 dim=7 bags=20 bag=3", "rows=1000 dim=64 bags=33 bag=20", REALISTIC])
@pytest.mark.parametrize(
    "wrong",
    [
        not_cleared,
        lambda p, a: backward(p, a, lookups=p.lookups - 1),
        lambda p, a: backward(p, a, add=False),
        lambda p, a: backward(p, a, shift=1),
    ],
)
def test_a_wrong_gradient_is_found(text, precision, wrong):
    assert is_found(f"embedding_bag {text} backward {precision}", wrong)


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
