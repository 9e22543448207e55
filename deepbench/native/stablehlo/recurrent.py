"""Recurrent layers: one product for all inputs of a layer, and a loop over its steps. Cell states are in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values, refuse
from deepbench.native.stablehlo._cells import CELLS, from_inputs
from deepbench.native.stablehlo._values import FLOATS, HloValue

SERVES = {"forward": FLOATS}


def forward(case: Case, arrays: Values) -> Values:
    """Layer by layer; both directions of time side by side."""
    refuse(case.settings["mode"] == "training", "the program keeps nothing for gradients; choose mode=inference")
    p, x = case.problem, arrays["x"]
    for layer in range(p.layers):
        ways = [_states(case, _own(arrays, layer, way), x, way) for way in range(p.time_directions)]
        x = ways[0].joined(2, *ways[1:])
    return {"y": x}


def _own(arrays: Values, layer: int, way: int) -> dict[str, HloValue]:
    """States, weights and biases of a layer in a direction of time; no `w` where the inputs are not multiplied."""
    own = {name: arrays[name].item(layer, way) for name in ("h0", "c0", "r", "b") if name in arrays}
    if layer or "w" in arrays:
        own["w"] = arrays["w_deep"].item(layer - 1, way) if layer else arrays["w"].item(way)
    return own


def _states(case: Case, own: Values, x: HloValue, way: int) -> HloValue:
    """All states of a layer in a direction of time."""
    p, lines, bias = case.problem, x.lines, own["b"].to("f32")
    cells = [own["c0"].to("f32")] if "c0" in own else []
    gates = from_inputs(case, own, x) + bias.part(0, 0, p.gates)

    def turn(number: HloValue, before: list[HloValue]) -> list[HloValue]:
        y, h, *c = before
        place = (p.timesteps - 1) - number if way else number
        new, *c = CELLS[p.cell](case, own["r"], bias, gates.at(place), h, *c)
        return [y.put(place, new.to(h.kind)), new.to(h.kind), *c]

    y = lines.constant(0, (p.timesteps, p.batch, p.hidden), x.kind)
    return lines.repeat(p.timesteps, [y, own["h0"], *cells], turn)[0]
