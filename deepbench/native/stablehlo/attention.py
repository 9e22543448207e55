"""Attention of two products with a softmax between them, in f32. Weights are rounded to the type of the data."""

from __future__ import annotations

import math

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values, refuse
from deepbench.native.stablehlo._values import FLOATS, HloValue
from deepbench.native.stablehlo.softmax import softmax

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)
RARE = ("cache_type",)


def body(case: Case, arrays: Values) -> Values:
    """The heads of a group have an axis of their own: (batch, kv_heads, group, queries, size)."""
    refuse(case.settings["algorithm"] != "default", "there is one text of attention; choose algorithm=default")
    p, kind = case.problem, arrays["q"].kind

    def of_groups(name: str) -> HloValue:
        array = arrays[name]
        return array.reshape(p.batch, p.kv_heads, p.group, *array.shape[2:])

    q, k, v = of_groups("q"), _keys(case, arrays, "k"), _keys(case, arrays, "v")
    s = q.dot(k, ([4], [3]), "f32", batch=[0, 1]) * p.scale
    seen = _seen(case, arrays, s)
    if case.direction == "forward":
        s = s if seen is None else seen.choose(s, -math.inf)
        y = softmax(s, 4).to(kind).dot(v, ([4], [2]), kind, batch=[0, 1])
        return {"y": y.reshape(*arrays["y"].shape)}
    dy, result = of_groups("dy"), of_groups("result")
    weights = (s - of_groups("lse").reshape(*s.shape[:4], 1)).apply("exponential")
    weights = weights if seen is None else seen.choose(weights, 0)
    of_row = (dy.to("f32") * result.to("f32")).sum(4)
    ds = (weights * (dy.dot(v, ([4], [3]), "f32", batch=[0, 1]) - of_row)).to(kind)
    dq = ds.dot(k, ([4], [2]), "f32", batch=[0, 1]) * p.scale
    dk = ds.dot(q, ([2, 3], [2, 3]), "f32", batch=[0, 1]) * p.scale
    dv = weights.to(kind).dot(dy, ([2, 3], [2, 3]), "f32", batch=[0, 1])
    return {name: value.to(kind).reshape(*arrays[name].shape) for name, value in (("dq", dq), ("dk", dk), ("dv", dv))}


def _keys(case: Case, arrays: Values, name: str) -> HloValue:
    """Keys or values in the type of the data, out of their pages if there are any."""
    p, array = case.problem, arrays[name]
    if "page_table" in arrays:
        size = array.shape[3]
        array = array.rows(arrays["page_table"]).transpose(0, 2, 1, 3, 4)  # (batch, kv_heads, pages, page, size)
        array = array.reshape(p.batch, p.kv_heads, -1, size).part(2, 0, p.keys)
    return array.to(arrays["q"].kind)


def _seen(case: Case, arrays: Values, s: HloValue) -> HloValue | None:
    """Which query sees which key; None if all do. Gradients have rows of padding, which see none."""
    p, shape = case.problem, (1, 1, 1, case.problem.queries, case.problem.keys)
    if p.mask == "none" and p.lengths == "equal":
        return None
    row, column = s.lines.counted(shape, 3), s.lines.counted(shape, 4)
    keys = s.lines.constant(p.keys, (1,), "s32")
    if "lengths" in arrays:
        keys = arrays["lengths"].reshape(p.batch, 1, 1, 1, 1)
    end = keys
    if p.mask == "causal":
        end = row + 1 if p.queries == p.keys else row + keys + (1 - p.queries)
    seen = column.compare("LT", end)
    if p.window:
        seen = seen & column.compare("GE", end - p.window)
    if p.queries == p.keys and case.direction == "backward":
        seen = seen & row.compare("LT", keys)
    return seen
