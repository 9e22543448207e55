"""The products of a mixture of experts. How many rows each expert gets is a part of the program.

So it is one product per expert, as with libraries that are called for each. StableHLO has no product whose groups are
data.
"""

from __future__ import annotations

from itertools import pairwise

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values, refuse
from deepbench.native.stablehlo._values import FLOATS

SERVES = {"forward": (*FLOATS, "i8", "f8e4m3", "f8e5m2"), "backward_weights": FLOATS}

# The text grows with the groups.
MOST_GROUPS = 256


def body(case: Case, arrays: Values) -> Values:
    """Products of some rows, one behind the other."""
    p, b, wide = case.problem, arrays["b"], case.precision.accumulate
    refuse(p.groups > MOST_GROUPS, f"the program has a product per group, at most {MOST_GROUPS}; found {p.groups}")
    rows = list(pairwise(p.offsets))
    if case.direction == "backward_weights":
        dc, kind = arrays["dc"], arrays["da"].kind
        parts = [dc.part(0, *r).dot(b.part(0, *r), ([0], [0]), wide).to(kind).reshape(1, p.m, p.k) for r in rows]
        return {"da": parts[0].joined(0, *parts[1:])}
    weights = [arrays["a"].part(0, g, g + 1).reshape(p.m, p.k) for g in range(p.groups)]
    parts = [
        # XLA adds small products with 16-bit results in 16 bits on GPUs, unless the text says otherwise.
        b.part(0, start, end).dot(a, ([1], [1]), wide).to(arrays["c"].kind)
        for a, (start, end) in zip(weights, rows, strict=True)
        if end > start
    ]
    return {"c": parts[0].joined(0, *parts[1:])}
