"""Rows of tokens to their experts and back; sums are in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._values import FLOATS, HloValue

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)


def forward(case: Case, arrays: Values) -> Values:
    """Gathers."""
    if case.problem.kind == "dispatch":
        return {"y": arrays["x"].rows(arrays["sources"])}
    y, (terms, w) = arrays["y"], _combined(case, arrays)
    return {"y": (terms * w).sum(1).reshape(*y.shape).to(y.kind)}


def backward(case: Case, arrays: Values) -> Values:
    """A gather, and a scatter for `combine`."""
    p, dx = case.problem, arrays["dx"]
    if p.kind == "dispatch":
        return {"dx": arrays["dy"].rows(arrays["places"]).to("f32").sum(1).reshape(*dx.shape).to(dx.kind)}
    terms, w = _combined(case, arrays)
    dy = arrays["dy"].to("f32").reshape(p.tokens, 1, p.hidden)
    rows = (w * dy).to(dx.kind).reshape(p.rows, p.hidden)
    zeros = rows.lines.constant(0, dx.shape, dx.kind)  # each row is written once
    dw = (terms * dy).sum(2).reshape(p.tokens, p.active).to(arrays["dw"].kind)
    return {"dx": zeros.add_rows(arrays["places"].reshape(p.rows), rows), "dw": dw}


def _combined(case: Case, arrays: Values) -> tuple[HloValue, HloValue]:
    """The rows of each token (tokens, active, hidden) and their weights (tokens, active, 1), in f32."""
    p = case.problem
    terms = arrays["x"].rows(arrays["places"]).to("f32")
    return terms, arrays["w"].to("f32").reshape(p.tokens, p.active, 1)
