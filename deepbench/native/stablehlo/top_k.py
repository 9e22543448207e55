"""The k largest numbers of rows; a softmax is in f32."""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values, refuse
from deepbench.native.stablehlo._values import FLOATS
from deepbench.native.stablehlo.softmax import softmax

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)


def forward(case: Case, arrays: Values) -> Values:
    """An instruction of its own, in order."""
    values, indices = arrays["x"].top(case.problem.k)
    if case.settings["softmax"] == "yes":
        values = softmax(values.to("f32"), 1).to(values.kind)
    return {"values": values, "indices": indices}


def backward(case: Case, arrays: Values) -> Values:
    """A scatter."""
    p, dy, dx = case.problem, arrays["dy"], arrays["dx"]
    refuse(p.rows * p.columns >= 2**31, "the program counts the places of all numbers in 32 bits; choose fewer rows")
    if case.settings["softmax"] == "yes":
        of_p, wide = arrays["p"].to("f32"), dy.to("f32")
        dy = (of_p * (wide - (of_p * wide).sum(1))).to(dy.kind)
    places = dy.lines.counted(dy.shape, 0) * p.columns + arrays["chosen"]
    zeros = dy.lines.constant(0, (p.rows * p.columns,), dx.kind)  # each place is written at most once
    return {"dx": zeros.add_rows(places.reshape(-1), dy.reshape(-1)).reshape(*dx.shape)}
