"""C = A·B with quantized weights, which are rounded to the type of the data before they are multiplied."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values, refuse
from deepbench.native.stablehlo._values import FLOATS

SERVES = {"forward": FLOATS}


def forward(case: Case, arrays: Values) -> Values:
    """A product of dequantized weights; a compiler may put both into one kernel."""
    p, a, b = case.problem, arrays["a"], arrays["b"]
    refuse(p.bits not in (4, 8), f"the program has no {p.bits}-bit integers; choose bits=4 or bits=8")
    integers = a if p.bits == 8 else a.halves()
    scales = arrays["scales"].to("f32").transpose(1, 0).reshape(p.m, p.k // p.group, 1)
    weights = integers.to("f32").reshape(p.m, p.k // p.group, p.group) * scales
    return {"c": b.dot(weights.to(b.kind).reshape(p.m, p.k), ([1], [1]), arrays["c"].kind)}
