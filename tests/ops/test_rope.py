"""Rotary positions: what turning does."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op


@pytest.mark.parametrize("pairs", ["halves", "interleaved"])
def test_turning_forward_and_back_changes_nothing(pairs):
    op, text = find_op("rope"), f"rope tokens=4 heads=2 dim=8 {{}} f32 reference threads=1 pairs={pairs}"
    forward, backward = (parse_case(text.format(direction)) for direction in op.directions)
    arrays = op.operands(forward)
    y = op.reference(forward, arrays)["y"]
    back = op.reference(backward, {**arrays, "dy": y, "dx": np.zeros_like(y)})["dx"]

    assert np.abs(y - arrays["x"]).max() > 0.5
    assert back == pytest.approx(arrays["x"], abs=1e-6)


def test_the_product_of_a_query_and_a_key_depends_on_their_distance():
    """The reason for rotary positions; with the angles of the paper."""
    op = find_op("rope")
    case = parse_case("rope tokens=9 heads=1 dim=16 forward f32 reference threads=1")
    arrays = op.operands(case)
    arrays["x"][...] = arrays["x"][:1]
    y = op.reference(case, arrays)["y"][:, 0]

    assert y[0] @ y[3] == pytest.approx(y[5] @ y[8], abs=1e-5)
    assert y[0] @ y[3] != pytest.approx(y[5] @ y[6], abs=1e-2)
    first, second = arrays["cos"][1].astype(np.float64), arrays["sin"][1].astype(np.float64)
    angle = np.arctan2(second, first)[-1]
    assert angle == pytest.approx(1001 * 10000 ** (-14 / 16), abs=1e-6)
