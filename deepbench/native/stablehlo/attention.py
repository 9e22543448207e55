"""Attention of two products with a softmax between them, in f32. Weights are rounded to the type of the data."""

from __future__ import annotations

import math

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values
from deepbench.native.stablehlo._attention import of_groups, scores
from deepbench.native.stablehlo._values import FLOATS
from deepbench.native.stablehlo.softmax import softmax

SERVES = dict.fromkeys(("forward", "backward"), FLOATS)
RARE = ("cache_type",)


def forward(case: Case, arrays: Values) -> Values:
    y = arrays["y"]
    _, _, v, s, seen = scores(case, arrays)
    s = s if seen is None else seen.choose(s, -math.inf)
    return {"y": softmax(s, 4).to(y.kind).dot(v, ([4], [2]), y.kind, batch=[0, 1]).reshape(*y.shape)}


def backward(case: Case, arrays: Values) -> Values:
    scale, kind = case.problem.scale, arrays["q"].kind
    q, k, v, s, seen = scores(case, arrays)
    dy, result = (of_groups(case, arrays[name]) for name in ("dy", "result"))
    weights = (s - of_groups(case, arrays["lse"]).reshape(*s.shape[:4], 1)).apply("exponential")
    weights = weights if seen is None else seen.choose(weights, 0)
    of_row = (dy.to("f32") * result.to("f32")).sum(4)
    ds = (weights * (dy.dot(v, ([4], [3]), "f32", batch=[0, 1]) - of_row)).to(kind)
    gradients = {
        "dq": ds.dot(k, ([4], [2]), "f32", batch=[0, 1]) * scale,
        "dk": ds.dot(q, ([2, 3], [2, 3]), "f32", batch=[0, 1]) * scale,
        "dv": weights.to(kind).dot(dy, ([2, 3], [2, 3]), "f32", batch=[0, 1]),
    }
    return {name: value.to(kind).reshape(*arrays[name].shape) for name, value in gradients.items()}
