"""C = A·B + C. Arrays are transposed matrices: c (n, m) is b (n, k) times a (k, m)."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._values import FLOATS

SERVES = {"forward": (*FLOATS, "i8", "f8e4m3", "f8e5m2")}


def forward(case: Case, arrays: Values) -> Values:
    """One product, and a sum."""
    p, a, b, c = case.problem, *(arrays[name] for name in "abc")
    product = b.dot(a, ([0 if p.b_t else 1], [1 if p.a_t else 0]), c.kind)
    return {"c": product if case.settings["beta"] == "0" else product + c}
