"""Sums of chosen rows, in f32. All bags have as many rows, so `offsets` are not read."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._values import FLOATS

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)


def forward(case: Case, arrays: Values) -> Values:
    """A gather and a sum."""
    p = case.problem
    rows = arrays["table"].rows(arrays["indices"].reshape(p.bags, p.bag))
    return {"y": (rows if p.bag == 1 else rows.to("f32").sum(1)).reshape(p.bags, p.dim).to(rows.kind)}


def backward(case: Case, arrays: Values) -> Values:
    """A scatter."""
    p = case.problem
    dy = arrays["dy"].to("f32").reshape(p.bags, 1, p.dim).repeated((p.bags, p.bag, p.dim))
    table = dy.lines.constant(0, (p.rows, p.dim), "f32")
    return {"dtable": table.add_rows(arrays["indices"], dy.reshape(p.lookups, p.dim)).to(arrays["dtable"].kind)}
