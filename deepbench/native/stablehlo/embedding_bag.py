"""Sums of chosen rows, in f32. All bags have as many rows, so `offsets` are not read."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._values import FLOATS

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)


def body(case: Case, arrays: Values) -> Values:
    """A gather and a sum, or a scatter."""
    p, indices = case.problem, arrays["indices"]
    if case.direction == "forward":
        rows = arrays["table"].rows(indices.reshape(p.bags, p.bag))
        return {"y": (rows if p.bag == 1 else rows.to("f32").sum(1)).reshape(p.bags, p.dim).to(rows.kind)}
    dy = arrays["dy"].to("f32").reshape(p.bags, 1, p.dim).repeated((p.bags, p.bag, p.dim))
    table = dy.lines.constant(0, (p.rows, p.dim), "f32")
    return {"dtable": table.add_rows(indices, dy.reshape(p.lookups, p.dim)).to(arrays["dtable"].kind)}
