"""Recurrent layers: one product for all inputs of a layer, and a loop over its steps. Cell states are in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values, refuse
from deepbench.native.stablehlo._values import FLOATS, HloValue

SERVES = {"forward": FLOATS}


def body(case: Case, arrays: Values) -> Values:
    """Layer by layer; both directions of time side by side."""
    refuse(case.settings["mode"] == "training", "the program keeps nothing for gradients; choose mode=inference")
    p, x = case.problem, arrays["x"]
    for layer in range(p.layers):
        ways = []
        for way in range(p.time_directions):
            own = {name: _own(arrays[name], layer, way) for name in ("h0", "c0", "r", "b") if name in arrays}
            if layer or "w" in arrays:
                own["w"] = _own(arrays["w_deep"], layer - 1, way) if layer else arrays["w"].part(0, way, way + 1)
            ways.append(_layer(case, own, x, way))
        x = ways[0].joined(2, *ways[1:])
    return {"y": x}


def _own(array: HloValue, *place: int) -> HloValue:
    for axis, i in enumerate(place):
        array = array.part(axis, i, i + 1)
    return array.reshape(*array.shape[len(place) :])


def _layer(case: Case, own: Values, x: HloValue, way: int) -> HloValue:
    """All states of a layer in a direction of time."""
    p, lines, bias = case.problem, x.lines, own["b"].to("f32")
    shape, cells = (p.batch, p.hidden), [own["c0"].to("f32")] if "c0" in own else []
    w = own["w"].reshape(-1, p.gates, p.hidden) if "w" in own else None
    from_x = x.to("f32").reshape(p.timesteps, p.batch, 1, p.hidden) if w is None else x.dot(w, ([2], [0]), "f32")
    from_x = from_x + bias.part(0, 0, p.gates)

    def turn(number: HloValue, before: list[HloValue]) -> list[HloValue]:
        y, h, *c = before
        place = (p.timesteps - 1) - number if way else number
        new, *c = _step(case, own["r"], bias, from_x.at(place), h, *c)
        return [y.put(place, new.to(h.kind)), new.to(h.kind), *c]

    y = lines.constant(0, (p.timesteps, *shape), x.kind)
    return lines.repeat(p.timesteps, [y, own["h0"], *cells], turn)[0]


def _step(case: Case, r: HloValue, bias: HloValue, a: HloValue, h: HloValue, *c: HloValue) -> list[HloValue]:
    """The next states, from what inputs add to the gates, and the states before."""
    cell, before = case.problem.cell, case.settings["gru_reset"] == "before"
    if cell != "gru":
        a = a + h.dot(r, ([1], [0]), "f32")
    if cell == "vanilla":
        return [_gate(a, 0).apply("maximum", 0)]
    if cell == "lstm":
        i, f, o = (_gate(a, gate).apply("logistic") for gate in (0, 1, 3))
        new = f * c[0] + i * _gate(a, 2).apply("tanh")
        return [o * new.apply("tanh"), new]
    from_h = h.dot(r.part(1, 0, 2) if before else r, ([1], [0]), "f32")
    u, reset = (_gate(a.part(1, j, j + 1) + from_h.part(1, j, j + 1), 0).apply("logistic") for j in (0, 1))
    wide = h.to("f32")
    if before:
        inner = _gate((reset * wide).to(h.kind).dot(r.part(1, 2, 3), ([1], [0]), "f32"), 0)
    else:
        inner = reset * (_gate(from_h, 2) + bias.part(0, 3, 4))
    return [u * wide + (1 - u) * (_gate(a, 2) + inner).apply("tanh")]


def _gate(a: HloValue, gate: int) -> HloValue:
    """(batch, hidden) of (batch, gates, hidden)."""
    return a.part(1, gate, gate + 1).reshape(a.shape[0], a.shape[2])
