"""Smaller twins of problems that need too much memory: the same kind of work in the same proportions.

Sizes are halved in stages until the arrays of a case fit. What a model has many of goes first: images, tokens, rows of a
batch. Then tables lose rows. Widths, which decide the kind of work, go last and together, so that their ratio stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepbench.core.case import Case, check_settings
from deepbench.core.errors import BadInput
from deepbench.core.op import Op
from deepbench.core.precision import find_precision
from deepbench.core.problem import LARGEST_SIZE, make_problem

Stage = tuple[tuple[str, ...], int]
"""Fields that are halved together, and the size at which halving ends."""

# Below so many tokens a product is no longer bound by computation, and so another kind of work.
TOKENS = 512

_ROWS: tuple[Stage, ...] = ((("rows",), 64), (("columns",), 64))
_IMAGES: tuple[Stage, ...] = ((("n",), 1), (("d", "h", "w"), 7), (("c", "k", "groups"), 1))
_PRODUCT: tuple[Stage, ...] = ((("n",), TOKENS), (("m", "k"), 1), (("n",), 1))

STAGES: dict[str, tuple[Stage, ...]] = {
    **dict.fromkeys(("gemm", "linear", "weight_only_gemm", "sparse_gemm"), _PRODUCT),
    "batched_gemm": ((("batch",), 1), (("m", "n", "k"), 1)),
    "grouped_gemm": ((("tokens",), TOKENS), (("m", "k"), 1), (("groups",), 1)),
    "attention": ((("batch",), 1), (("queries", "keys"), TOKENS), (("heads", "kv_heads"), 1)),
    **dict.fromkeys(("layer_norm", "rms_norm", "softmax", "reduction"), _ROWS),
    **dict.fromkeys(("conv", "pooling", "batch_norm"), _IMAGES),
    "embedding_bag": ((("bags",), 1024), (("rows",), 1024), (("dim",), 1)),
    "ctc": ((("batch",), 1), (("time", "labels"), 1)),
    "recurrent": ((("batch",), 16), (("timesteps",), 16), (("hidden",), 1)),
}


def fitted(op: Op, problem: Any, directions: tuple[str, ...], settings: Mapping[str, str], limit_bytes: int) -> Any:
    """The problem, or its largest twin whose arrays fit in so many bytes in f32, in every one of the directions.

    Libraries may need further memory of their own. A problem that cannot be made small enough stays as small as it got.
    """
    for fields, floor in _stages(op, problem):
        while needed_bytes(op, problem, directions, settings) > limit_bytes:
            values = dict(problem.values)
            large = [name for name in fields if isinstance(values.get(name), int) and values[name] > floor]
            if not large:
                break
            values |= {name: max(floor, values[name] // 2) for name in large}
            if op.is_group:  # parts are equal
                values["n"] = max(1, values["n"] // values["ranks"]) * values["ranks"]
            try:
                problem = make_problem(op, values)
            except BadInput:  # a filter, for example, must not be larger than its image
                break
    return problem


def _stages(op: Op, problem: Any) -> tuple[Stage, ...]:
    if op.name == "gemm" and problem.b_t:  # the gradient of weights: the tokens are summed over
        return ((("k",), TOKENS), (("m", "n"), 1), (("k",), 1))
    integers = tuple(name for name, value in problem.values.items() if isinstance(value, int) and name != "ranks")
    return STAGES.get(op.name, ((integers, 1),))


def needed_bytes(op: Op, problem: Any, directions: tuple[str, ...], settings: Mapping[str, str]) -> int:
    """Bytes of arrays and workspace in f32, in the direction that needs most; of a group, of all its ranks."""
    chosen = check_settings(op.name, dict(settings))
    cases = [Case(op.name, problem, d, find_precision("f32"), "reference", 1, chosen) for d in directions]
    ranks = problem.ranks if op.is_group else 1
    return ranks * max(op.operand_bytes(case) + op.workspace_bytes(case) for case in cases)


def in_bounds(values: Mapping[str, int | str]) -> dict[str, int | str]:
    """The same with every size halved until a problem may have it."""
    halved = dict(values)
    for name, value in values.items():
        while isinstance(value, int) and value > LARGEST_SIZE:
            halved[name] = value = value // 2
    return halved


def changes(before: Mapping[str, int | str], after: Any) -> str | None:
    """What is smaller than before, such as `n 8192 → 1024`; None if nothing is."""
    now = after.values
    changed = [f"{name} {value} → {now[name]}" for name, value in before.items() if now.get(name, value) != value]
    return f"smaller than in the model, to fit: {', '.join(changed)}" if changed else None

