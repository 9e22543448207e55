"""C = A·B + C. Arrays are transposed matrices: c (n, m) is b (n, k) times a (k, m)."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Body

SERVES = {"forward": ("f32", "bf16", "f16", "i8", "f8e4m3", "f8e5m2")}


def body(case: Case) -> Body:
    p = case.problem
    axes = f"contracting_dims = [{0 if p.b_t else 1}] x [{1 if p.a_t else 0}]"
    product = f"  %0 = stablehlo.dot_general %b, %a, {axes}, precision = [HIGHEST, HIGHEST] : "
    product += "(%b.type, %a.type) -> %c.type"
    if case.settings["beta"] == "0":
        return Body(product, {"c": "%0"})
    return Body(product + "\n  %1 = stablehlo.add %0, %c : %c.type", {"c": "%1"})
