"""Rotary positions, in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._values import FLOATS, HloValue

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)


def forward(case: Case, arrays: Values) -> Values:
    return {"y": _turned(case, arrays, "x").to(arrays["y"].kind)}


def backward(case: Case, arrays: Values) -> Values:
    return {"dx": _turned(case, arrays, "dy").to(arrays["dx"].kind)}


def _turned(case: Case, arrays: Values, name: str) -> HloValue:
    """The pairs of an array turned by their angles, backward by the negative angles."""
    p, halves = case.problem, case.settings["pairs"] == "halves"
    shape, axis = ((p.tokens, p.heads, 2, p.dim // 2), 2) if halves else ((p.tokens, p.heads, p.dim // 2, 2), 3)
    of_pair = (p.tokens, 1, *(1 if i == axis else p.dim // 2 for i in (2, 3)))
    x = arrays[name].to("f32").reshape(*shape)
    cos, sin = (arrays[name].to("f32").reshape(*of_pair) for name in ("cos", "sin"))
    sin = sin if case.direction == "forward" else sin * -1
    first, second = x.part(axis, 0, 1), x.part(axis, 1, 2)
    turned = (first * cos - second * sin).joined(axis, second * cos + first * sin)
    return turned.reshape(p.tokens, p.heads, p.dim)
