"""Smaller twins of problems that need too much memory or work: the same kind of work in the same proportions.

Sizes are halved in stages until a case fits. What a model has many of goes first: images, tokens, rows of a
batch. Then tables lose rows. Widths, which decide the kind of work, go last and together, so that their ratio stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepbench.core.case import Case, check_settings
from deepbench.core.errors import BadInput, shorten
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
    **dict.fromkeys(("layer_norm", "rms_norm", "softmax", "reduction", "loss"), _ROWS),
    "rope": ((("tokens",), 64), (("heads",), 1)),
    "top_k": ((("rows",), 64), (("columns", "k"), 1)),
    "dropout": ((("n",), 1),),
    "group_norm": ((("n",), 1), (("h", "w"), 7), (("c", "groups"), 1)),
    **dict.fromkeys(("conv", "pooling", "batch_norm", "upsample"), _IMAGES),
    "permute_tokens": ((("tokens",), TOKENS), (("hidden",), 1), (("tokens",), 1)),
    "embedding_bag": ((("bags",), 1024), (("rows",), 1024), (("dim",), 1)),
    "ctc": ((("batch",), 1), (("time", "labels"), 1)),
    "recurrent": ((("batch",), 16), (("timesteps",), 16), (("hidden", "input_size"), 1)),
}


_UNITS = {
    **{"MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"MFLOP": 10**6, "GFLOP": 10**9, "TFLOP": 10**12},
}


@dataclass(frozen=True)
class Limit:
    """What a case may need. None: as much as it likes."""

    bytes: int | None
    """Of arrays and workspace."""
    flop: int | None
    """Of a call."""

    @classmethod
    def parse(cls, text: str) -> Limit:
        """`4GiB`, `20GFLOP`, or both as `4GiB+20GFLOP`."""
        found: dict[bool, int] = {}
        for word in text.split("+"):
            match = re.fullmatch(rf"([0-9]{{1,6}}(?:\.[0-9]{{1,3}})?)({'|'.join(_UNITS)})", word, re.ASCII)
            if match is None or float(match[1]) <= 0 or ("FLOP" in word) in found:
                wanted = f"fit wants memory, work or both, such as 4GiB or 4GiB+20GFLOP, in {', '.join(_UNITS)}"
                raise BadInput(f"{wanted}, found {shorten(text)!r}")
            found["FLOP" in word] = int(float(match[1]) * _UNITS[match[2]])
        return cls(found.get(False), found.get(True))


# What two cores compute in about 50 ms, and fill and check in about a second.
QUICK_WORK, QUICK_MEMORY = "5GFLOP", "512MiB"


def for_mode(text: str, mode: str | None) -> str:
    """The limit of a run in this mode: without a limit of work, that of `quick` is no more than what is quick."""
    limit = Limit.parse(text)
    if mode != "quick" or limit.flop is not None:
        return text
    is_large = limit.bytes is not None and limit.bytes > 2**29
    return f"{QUICK_MEMORY if is_large else text}+{QUICK_WORK}"


def fitted(op: Op, problem: Any, directions: tuple[str, ...], settings: Mapping[str, str], limit: Limit) -> Any:
    """The problem, or its largest twin that needs no more than the limit in f32, in every one of the directions.

    Libraries may need further memory of their own. A problem that cannot be made small enough stays as small as it got.
    """
    listed, stages = problem.values, _stages(op, problem)

    def is_too_large(candidate: Any) -> bool:
        return _needs_more(op, candidate, directions, settings, limit)

    for fields, floor in stages:
        while is_too_large(problem):
            smaller = _changed(op, problem, {n: max(floor, v // 2) for n, v in _sizes(problem, fields) if v > floor})
            if smaller is None:
                break
            problem = smaller
    for fields, _ in stages:  # where a later stage left room
        while True:
            larger = _changed(op, problem, {n: min(listed[n], 2 * v) for n, v in _sizes(problem, fields)})
            if larger is None or is_too_large(larger):
                break
            problem = larger
    return problem


def _sizes(problem: Any, fields: tuple[str, ...]) -> list[tuple[str, int]]:
    return [(n, problem.values[n]) for n in fields if isinstance(problem.values.get(n), int)]


def _changed(op: Op, problem: Any, sizes: Mapping[str, int]) -> Any:
    """The problem with these sizes; None if nothing changes, or if there is no such problem."""
    values = {**problem.values, **sizes}
    if op.is_group:  # parts are equal
        values["n"] = max(1, values["n"] // values["ranks"]) * values["ranks"]
    try:
        return make_problem(op, values) if values != problem.values else None
    except BadInput:  # a filter, for example, must not be larger than its image
        return None


def _stages(op: Op, problem: Any) -> tuple[Stage, ...]:
    # The gradient of weights sums over the tokens, of which there are more than outputs.
    if op.name == "gemm" and problem.b_t and problem.k >= problem.n:
        return ((("k",), TOKENS), (("m", "n"), 1), (("k",), 1))
    integers = tuple(name for name, value in problem.values.items() if isinstance(value, int) and name != "ranks")
    return STAGES.get(op.name, ((integers, 1),))


def _needs_more(op: Op, problem: Any, directions: tuple[str, ...], settings: Mapping[str, str], limit: Limit) -> bool:
    """Whether one of the directions needs more than the limit in f32; all ranks of a group share the memory."""
    chosen = check_settings(op.name, dict(settings))
    cases = [Case(op.name, problem, d, find_precision("f32"), "reference", 1, chosen) for d in directions]
    ranks = problem.ranks if op.is_group else 1
    if limit.flop is not None and max(op.flop(case) for case in cases) > limit.flop:
        return True
    if limit.bytes is None:
        return False
    return ranks * max(op.operand_bytes(case) + op.workspace_bytes(case) for case in cases) > limit.bytes


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
