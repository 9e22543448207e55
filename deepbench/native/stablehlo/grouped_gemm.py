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


def forward(case: Case, arrays: Values) -> Values:
    """Products of the rows of each expert with its weights, one behind the other."""
    a, b, kind, wide = arrays["a"], arrays["b"], arrays["c"].kind, case.precision.accumulate
    rows, weights = _rows(case), [a.item(group) for group in range(case.problem.groups)]
    parts = [
        # XLA adds small products with 16-bit results in 16 bits on GPUs, unless the text says otherwise.
        b.part(0, start, end).dot(of_group, ([1], [1]), wide).to(kind)
        for of_group, (start, end) in zip(weights, rows, strict=True)
        if end > start
    ]
    return {"c": parts[0].joined(0, *parts[1:])}


def backward_weights(case: Case, arrays: Values) -> Values:
    """Of each expert, the product over its rows."""
    p, b, dc, kind = case.problem, arrays["b"], arrays["dc"], arrays["da"].kind
    parts = [
        dc.part(0, *r).dot(b.part(0, *r), ([0], [0]), case.precision.accumulate).to(kind).reshape(1, p.m, p.k)
        for r in _rows(case)
    ]
    return {"da": parts[0].joined(0, *parts[1:])}


def _rows(case: Case) -> list[tuple[int, int]]:
    """The first row of each expert, and the one behind its last."""
    groups = case.problem.groups
    refuse(groups > MOST_GROUPS, f"the program has a product per group, at most {MOST_GROUPS}; found {groups}")
    return [*pairwise(case.problem.offsets)]
