"""Rows of tokens to their experts and back; sums are in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._values import FLOATS

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)


def body(case: Case, arrays: Values) -> Values:
    """Gathers; the gradient of `combine` is a scatter."""
    p, forward = case.problem, case.direction == "forward"
    if p.kind == "dispatch" and forward:
        return {"y": arrays["x"].rows(arrays["sources"])}
    result = arrays["y" if forward else "dx"]
    if p.kind == "dispatch":
        return {"dx": arrays["dy"].rows(arrays["places"]).to("f32").sum(1).reshape(*result.shape).to(result.kind)}
    terms = arrays["x"].rows(arrays["places"]).to("f32")  # (tokens, active, hidden)
    w = arrays["w"].to("f32").reshape(p.tokens, p.active, 1)
    if forward:
        return {"y": (terms * w).sum(1).reshape(*result.shape).to(result.kind)}
    dy = arrays["dy"].to("f32").reshape(p.tokens, 1, p.hidden)
    rows = (w * dy).to(result.kind).reshape(p.rows, p.hidden)
    zeros = rows.lines.constant(0, result.shape, result.kind)  # each row is written once
    dw = (terms * dy).sum(2).reshape(p.tokens, p.active).to(arrays["dw"].kind)
    return {"dx": zeros.add_rows(arrays["places"].reshape(p.rows), rows), "dw": dw}
