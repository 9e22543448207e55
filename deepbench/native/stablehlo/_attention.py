"""What both directions of attention begin with: the scores, and which of them count.

The heads of a group have an axis of their own: (batch, kv_heads, group, queries, size).
"""

from __future__ import annotations

from deepbench.core.case import Case
from deepbench.native.stablehlo import Values, refuse
from deepbench.native.stablehlo._values import HloValue


def scores(case: Case, arrays: Values) -> tuple[HloValue, HloValue, HloValue, HloValue, HloValue | None]:
    """Queries, keys and values; the scores of queries with keys, in f32; and which of these count, None if all do."""
    refuse(case.settings["algorithm"] != "default", "there is one text of attention; choose algorithm=default")
    q, k, v = of_groups(case, arrays["q"]), _keys(case, arrays, "k"), _keys(case, arrays, "v")
    s = q.dot(k, ([4], [3]), "f32", batch=[0, 1]) * case.problem.scale
    return q, k, v, s, _seen(case, arrays, s)


def of_groups(case: Case, array: HloValue) -> HloValue:
    """With an axis of groups in front of the heads of a group."""
    p = case.problem
    return array.reshape(p.batch, p.kv_heads, p.group, *array.shape[2:])


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
