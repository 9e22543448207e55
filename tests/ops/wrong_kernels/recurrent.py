"""Recurrent layers that are wide, stacked or bidirectional, computed rightly and with mistakes."""

import numpy as np

from deepbench.core.op import find_op
from tests.ops.wrong_kernels import Kernel, of_problem

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
    (WIDE, "last column missing", last_column_missing),
    (BOTH, "of one way", of_one_way),
    *((BOTH, f"{name} of other ways", of_other_ways(name)) for name in ("dw", "dr", "db", "dh0")),
    *((STACK, f"{name} of other layers", of_other_layers(name)) for name in ("dw_deep", "dr", "dh0")),
    (STACK, "db zero in the last layer", zero_in_the_last_layer("db")),
    (STACK, "not through the top", not_through_the_top),
    (BOTH_STACKED, "of one way", of_one_way),
    (BOTH_STACKED, "dw_deep of other ways", of_other_ways("dw_deep")),
    (BOTH_STACKED, "dr zero in the last layer", zero_in_the_last_layer("dr")),
]


def reference(fault=None):
    """The gradients of the reference, some of them replaced by what `fault` returns."""

    def evaluate(case, arrays, mistake):
        op = find_op("recurrent")
        right = op.reference(case, arrays)
        return {**right, **(fault(case, op, arrays, right) if fault else {})}

    return evaluate


KERNELS = [
    *(
        Kernel(f"recurrent cell={cell} {sizes} forward {precision}", None, of_problem(forward))
        for cell in CELLS
        for sizes in ALL
        for precision in ("f32", "bf16")
    ),
    *(
        Kernel(f"recurrent cell={cell} {sizes} forward {precision}", next(iter(how)), of_problem(forward, **how))
        for cell in CELLS
        for sizes, how in FAULTS
        for precision in ("f32", "bf16")
    ),
    *(
        Kernel(f"recurrent cell={cell} {sizes} backward {precision}", None, reference())
        for cell in ("lstm", "gru")
        for sizes in ALL
        for precision in ("f32", "bf16")
    ),
    *(
        Kernel(f"recurrent cell={cell} {sizes} backward {precision}", mistake, reference(fault))
        for cell in ("lstm", "gru")
        for sizes, mistake, fault in WRONG_GRADIENTS
        for precision in ("f32", "bf16")
    ),
]
