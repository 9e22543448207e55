"""The check of wide, stacked and bidirectional recurrent layers passes float32 and finds likely mistakes."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.core.precision import dtype
from deepbench.measuring.check import check
from tests.ops.evaluation import is_found, is_right_with_room

WIDE = "batch=6 timesteps=7 input_size=40 hidden=24"
STACK = "batch=6 timesteps=7 input_size=24 hidden=24 layers=3"
BOTH = "batch=6 timesteps=7 input_size=40 hidden=20 bidirectional=1"
# The input of every layer is as wide as that of the first, so that one can be taken for the other.
BOTH_STACKED = "batch=6 timesteps=7 input_size=40 hidden=20 layers=2 bidirectional=1"
ALL = (WIDE, STACK, BOTH, BOTH_STACKED)
CELLS = ("vanilla", "lstm", "gru")


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def single_layer(cell, x, h, c, w, r, b):
    """All states of one layer in the order of x, in float32, written from the formulas of ops/recurrent."""
    states = []
    for x_t in x:
        from_x, from_h = (np.einsum("ni,igh->gnh", *pair) for pair in ((x_t, w), (h, r)))
        from_x = from_x + b[: len(from_x), None]
        if cell == "vanilla":
            h = np.maximum(from_x[0] + from_h[0], 0)
        elif cell == "lstm":
            i, f, g, o = from_x + from_h
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            u, reset = (sigmoid(from_x[gate] + from_h[gate]) for gate in (0, 1))
            h = u * h + (1 - u) * np.tanh(from_x[2] + reset * (from_h[2] + b[3]))
        states.append(h)
    return np.stack(states)


def forward(
    p, arrays, reverses=True, reverses_back=True, swaps=False, fed_with_input=False, fed_with_first_way=False,
    bias=True, own_start=True, own_weights=True, width=None,
):  # fmt: skip
    """y of a stack; each keyword makes one mistake."""
    x = arrays["x"]
    for layer in range(p.layers):
        ways = []
        for way in range(p.time_directions):
            of_layer, of_way = (layer, way) if own_weights else (min(layer, 1), 0)
            w = arrays["w_deep"][of_layer - 1, of_way] if layer else arrays["w"][of_way]
            start = (layer, way) if own_start else (0, 0)
            h, c = (arrays[name][start] if name in arrays else None for name in ("h0", "c0"))
            read = x
            if layer and fed_with_input:
                read = arrays["x"]
            if layer and fed_with_first_way:
                read = np.concatenate([x[..., : p.hidden]] * 2, axis=-1)
            if width:
                read, w = read[..., :width], w[:width]
            is_turned = way == 1 and reverses
            read = read[::-1] if is_turned else read
            b = arrays["b"][layer, way] * np.float32(bias)
            states = single_layer(p.cell, read, h, c, w, arrays["r"][of_layer, of_way], b)
            ways.append(states[::-1] if is_turned and reverses_back else states)
        x = np.concatenate(ways[::-1] if swaps else ways, axis=-1)
    return {"y": x}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("sizes", ALL)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_float32_passes(cell, sizes, precision):
    assert is_right_with_room(f"recurrent cell={cell} {sizes} forward {precision}", forward)


FAULTS = [
    (WIDE, {"bias": False}),
    (WIDE, {"width": 39}),
    (BOTH, {"reverses": False}),
    (BOTH, {"reverses_back": False}),
    (BOTH, {"swaps": True}),
    (BOTH, {"own_start": False}),
    (BOTH, {"own_weights": False}),
    (STACK, {"fed_with_input": True}),
    (STACK, {"bias": False}),
    (STACK, {"own_start": False}),
    (STACK, {"own_weights": False}),
    (BOTH_STACKED, {"reverses": False}),
    (BOTH_STACKED, {"swaps": True}),
    (BOTH_STACKED, {"fed_with_input": True}),
    (BOTH_STACKED, {"fed_with_first_way": True}),
]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("sizes", "how"), FAULTS, ids=lambda part: next(iter(part)) if isinstance(part, dict) else "")
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_wrong_result_is_found(cell, sizes, how, precision):
    assert is_found(f"recurrent cell={cell} {sizes} forward {precision}", lambda p, a: forward(p, a, **how))


# ---- gradients


def of_one_way(case, op, arrays, right):
    """dx without the second direction of time, as if its gradient had not been added."""
    half = {**arrays, "dy": arrays["dy"].copy()}
    half["dy"][..., case.problem.hidden :] = 0
    return {"dx": op.reference(case, half)["dx"]} if case.problem.layers == 1 else {"dx": right["dx"] / 2}


def not_through_the_top(case, op, arrays, right):
    """As if the weights of the upper layers were half as large where the gradient passes them."""
    changed = {**arrays, "w_deep": arrays["w_deep"] * np.float32(0.5)}
    wrong = op.reference(case, changed)
    return {name: wrong[name] for name in ("dx", "dw")}


def of_other_ways(name):
    def exchanged(case, op, arrays, right):
        axis = {"dw": 0}.get(name, 1)
        return {name: np.flip(right[name], axis)}

    return exchanged


def of_other_layers(name):
    return lambda case, op, arrays, right: {name: np.flip(right[name], 0)}


def zero_in_the_last_layer(name):
    def zero(case, op, arrays, right):
        values = right[name].copy()
        values[-1, -1] = 0
        return {name: values}

    return zero


def last_column_missing(case, op, arrays, right):
    values = right["dw"].copy()
    values[:, -1] = 0
    return {"dw": values}


WRONG_GRADIENTS = [
    (WIDE, last_column_missing),
    (BOTH, of_one_way),
    (BOTH, of_other_ways("dw")),
    (BOTH, of_other_ways("dr")),
    (BOTH, of_other_ways("db")),
    (BOTH, of_other_ways("dh0")),
    (STACK, of_other_layers("dw_deep")),
    (STACK, of_other_layers("dr")),
    (STACK, of_other_layers("dh0")),
    (STACK, zero_in_the_last_layer("db")),
    (STACK, not_through_the_top),
    (BOTH_STACKED, of_one_way),
    (BOTH_STACKED, of_other_ways("dw_deep")),
    (BOTH_STACKED, zero_in_the_last_layer("dr")),
]


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize(("sizes", "fault"), WRONG_GRADIENTS)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_wrong_gradient_is_found(cell, sizes, fault, precision):
    case = parse_case(f"recurrent cell={cell} {sizes} backward {precision} reference threads=1")
    op = find_op("recurrent")
    arrays = op.operands(case)
    right = op.reference(case, arrays)
    for name, values in right.items():
        arrays[name][...] = values
    assert check(op, case, arrays).passed

    for name, values in fault(case, op, arrays, right).items():
        arrays[name][...] = values
    assert not check(op, case, arrays).passed


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


# ---- what is counted


def recurrent_case(words):
    return parse_case(f"recurrent cell=lstm hidden=8 batch=2 timesteps=3 {words} f32 onednn threads=1")


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
