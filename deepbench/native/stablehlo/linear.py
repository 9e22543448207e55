"""C = f(A·B + bias); arrays are a (m, k), b (n, k), bias (m) and c (n, m). Sums and f are in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._values import FLOATS
from deepbench.native.stablehlo.elementwise import FORWARD

SERVES = {"forward": (*FLOATS, "f8e4m3")}


def forward(case: Case, arrays: Values) -> Values:
    """A product and what follows it."""
    z = arrays["b"].dot(arrays["a"], ([1], [1]), "f32")
    z = z + arrays["bias"].to("f32") if "bias" in arrays else z
    activation = case.settings["activation"]
    return {"c": (z if activation == "none" else FORWARD[activation](z)).to(arrays["c"].kind)}
