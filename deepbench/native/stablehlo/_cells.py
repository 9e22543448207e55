"""Cells of recurrent layers: the next states, from what the inputs add to the gates, and the states before.

Gates have the shape (batch, gates, hidden), states (batch, hidden). All arithmetic is in f32.
"""

from __future__ import annotations

from collections.abc import Callable

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._values import HloValue


def from_inputs(case: Case, own: Values, x: HloValue) -> HloValue:
    """What the inputs of all steps add to the gates: (timesteps, batch, gates, hidden)."""
    p = case.problem
    if "w" not in own:
        return x.to("f32").reshape(p.timesteps, p.batch, 1, p.hidden)
    return x.dot(own["w"], ([2], [0]), "f32")


def _vanilla(case: Case, r: HloValue, bias: HloValue, a: HloValue, h: HloValue) -> list[HloValue]:
    return [_gate(a + h.dot(r, ([1], [0]), "f32"), 0).apply("maximum", 0)]


def _lstm(case: Case, r: HloValue, bias: HloValue, a: HloValue, h: HloValue, c: HloValue) -> list[HloValue]:
    a = a + h.dot(r, ([1], [0]), "f32")
    i, f, o = (_gate(a, gate).apply("logistic") for gate in (0, 1, 3))
    new = f * c + i * _gate(a, 2).apply("tanh")
    return [o * new.apply("tanh"), new]


def _gru(case: Case, r: HloValue, bias: HloValue, a: HloValue, h: HloValue) -> list[HloValue]:
    before = case.settings["gru_reset"] == "before"
    from_h = h.dot(r.part(1, 0, 2) if before else r, ([1], [0]), "f32")
    u, reset = (_gate(a.part(1, j, j + 1) + from_h.part(1, j, j + 1), 0).apply("logistic") for j in (0, 1))
    wide = h.to("f32")
    if before:
        inner = _gate((reset * wide).to(h.kind).dot(r.part(1, 2, 3), ([1], [0]), "f32"), 0)
    else:
        inner = reset * (_gate(from_h, 2) + bias.part(0, 3, 4))
    return [u * wide + (1 - u) * (_gate(a, 2) + inner).apply("tanh")]


CELLS: dict[str, Callable[..., list[HloValue]]] = {"vanilla": _vanilla, "lstm": _lstm, "gru": _gru}


def _gate(a: HloValue, gate: int) -> HloValue:
    """(batch, hidden) of (batch, gates, hidden)."""
    return a.part(1, gate, gate + 1).reshape(a.shape[0], a.shape[2])
