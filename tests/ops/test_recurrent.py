"""Recurrent layers that are wide, stacked or bidirectional: gradients of the reference, and what is counted."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.core.precision import dtype


def recurrent_case(words):
    return parse_case(f"recurrent cell=lstm hidden=8 batch=2 timesteps=3 {words} f32 onednn threads=1")


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("extra", ["layers=3", "bidirectional=1", "layers=2 bidirectional=1"])
def test_gradients_match_finite_differences(cell, extra):
    """Every input of every layer, at two places each."""
    sizes = f"recurrent cell={cell} input_size=5 hidden=4 batch=3 timesteps=3 {extra}"
    backward, forward = (parse_case(f"{sizes} {way} f32 reference threads=1") for way in ("backward", "forward"))
    op = find_op("recurrent")
    arrays = {name: values.astype(np.float64) for name, values in op.operands(backward).items()}
    found = op.reference(backward, arrays)
    for name in ("x", "h0", "c0", "w", "w_deep", "r", "b"):
        for share in (0.0, 0.7) if name in arrays else ():
            place = tuple(int(n * share) for n in arrays[name].shape)
            ends = []
            for step in (1e-6, -1e-6):
                moved = arrays[name].copy()
                moved[place] += step
                ends.append((op.reference(forward, {**arrays, name: moved})["y"] * arrays["dy"]).sum())
            assert found[f"d{name}"][place] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-6), name


def test_gradients_of_stacked_vanilla_cells_are_refused():
    """The sign of a state near 0 decides a gradient, and libraries do not return the states of lower layers."""
    from deepbench.core.errors import Unsupported

    case = parse_case("recurrent cell=vanilla hidden=4 batch=1 timesteps=2 layers=2 backward f32 onednn threads=1")

    with pytest.raises(Unsupported, match="choose layers=1"):
        find_op("recurrent").operands(case)


def test_the_text_of_a_narrow_layer_does_not_change():
    same = recurrent_case("input_size=1 layers=1 bidirectional=0 forward")

    assert "recurrent cell=lstm hidden=8 batch=2 timesteps=3 forward f32 onednn threads=1" == same.text


def test_the_projection_counts_where_the_input_has_a_width():
    op, of_all_gates = find_op("recurrent"), 2 * 4 * 2 * 3  # two operations, gates, rows, steps

    def flop(words):
        return op.flop(recurrent_case(words)) / of_all_gates

    assert 8 * 8 == flop("forward")
    assert 8 * (8 + 5) == flop("input_size=5 forward")
    assert 2 * 8 * (8 + 5) == flop("input_size=5 backward") == 2 * flop("input_size=5 backward_weights")
    assert 2 * 8 * (8 + 5) == flop("input_size=5 bidirectional=1 forward")
    assert 8 * (8 + 5) + 2 * 8 * (8 + 8) == flop("input_size=5 layers=3 forward")
    assert 2 * 8 * (8 + 5) + 2 * 8 * (8 + 16) == flop("input_size=5 layers=2 bidirectional=1 forward")
    assert 8 * 8 + 8 * (8 + 8) == flop("layers=2 forward")  # of an input of width 1 nothing counts


def test_bytes_are_those_of_the_arrays_and_weights_that_do_not_stay_cross_again():
    op, case = find_op("recurrent"), recurrent_case("input_size=5 layers=2 bidirectional=1 forward")
    weights = 2 * 4 * 8 * (8 + 5) + 2 * 4 * 8 * (8 + 16)
    others = 3 * 2 * 5 + 2 * 4 * (2 * 8) + 4 * (4 * 8) + 3 * 2 * 16  # x, h0 and c0, b, y
    recurrent = 4 * (4 * 8 * 8)  # bytes of those of one layer in one direction of time

    assert 4 * (weights + others) == op.operand_bytes(case) == op.traffic_bytes(case)
    assert sum(array.nbytes for array in op.operands(case).values()) == op.operand_bytes(case)
    assert op.operand_bytes(case) + 4 * recurrent * (3 - 1) == op.traffic_bytes(case, recurrent - 1)
    assert op.operand_bytes(case) == op.traffic_bytes(case, recurrent)
    assert 0 == op.traffic_bytes(case, op.operand_bytes(case))


def test_steps_wait_for_those_before_and_below():
    op = find_op("recurrent")

    assert 3 + 2 - 1 == op.steps(recurrent_case("layers=2 forward"))
    assert 2 * 3 == op.steps(recurrent_case("layers=2 bidirectional=1 forward"))
    assert 3 == op.steps(recurrent_case("bidirectional=1 forward"))
    smallest = op.smallest(recurrent_case("input_size=5 layers=2 bidirectional=1 forward"))
    assert "cell=lstm hidden=1 batch=1 timesteps=32 layers=2 bidirectional=1" == smallest.text


def test_titles_say_what_differs_from_a_narrow_layer():
    op = find_op("recurrent")

    assert "LSTM 8, batch 2, 3 steps" == op.title(recurrent_case("forward").problem)
    wide = recurrent_case("input_size=5 layers=2 bidirectional=1 forward").problem
    assert "2 bidirectional LSTM 5 → 8, batch 2, 3 steps" == op.title(wide)


def test_weights_are_scaled_by_the_width():
    """So that sums of a gate are as large as with an input of width 1, and no type loses the smallest ones."""
    op = find_op("recurrent")
    for precision in ("f32", "f16"):
        sizes = "cell=gru hidden=8 batch=9 timesteps=9 input_size=500"
        case = parse_case(f"recurrent {sizes} forward {precision} reference threads=1")
        arrays = {name: values.astype(np.float64) for name, values in op.operands(case).items()}
        sums = arrays["x"].reshape(81, -1) @ arrays["w"][0].reshape(500, -1)
        assert 0.2 < sums.std() < 0.5
        assert np.abs(arrays["w"]).min() >= float(np.finfo(dtype("f16")).tiny)
