"""This machine: what it is, which libraries it has, and what disturbs measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from deepbench.machine.doctor import Finding


class Support(TypedDict):
    """Which libraries have a kernel for an operation."""

    op: str
    direction: str
    precision: str
    backends: list[str]


def machine() -> dict[str, Any]:
    """CPU, cores, caches, memory and system, as result files have them."""
    from deepbench.machine import describe

    return describe.describe_machine()


def libraries(names: Sequence[str] | None = None) -> dict[str, Any]:
    """For each library, facts about it (`library`), or why it is not here and what to do (`unavailable`).

    Each is loaded in a process of its own. `names`: only these; None: all.
    """
    from deepbench.core.backend import all_backends
    from deepbench.measuring.session import open_libraries

    return open_libraries(list(all_backends()) if names is None else names)


def call_loop() -> str:
    """`native` if calls are timed by compiled code, else `python`."""
    from deepbench.native import callloop

    return "native" if callloop.native_library() is not None else "python"


def support() -> list[Support]:
    """For each operation, direction and precision: the libraries that have a kernel, read from their marks."""
    from deepbench.core.backend import all_backends
    from deepbench.core.op import all_ops
    from deepbench.core.precision import PRECISIONS

    return [
        {
            "op": op.name,
            "direction": direction,
            "precision": name,
            "backends": [b.name for b in all_backends().values() if b.supports(op.name, name, direction)],
        }
        for op in all_ops().values()
        for direction in op.directions
        for name in PRECISIONS
    ]


def precisions() -> list[dict[str, Any]]:
    """Every precision with its types, and why it does not meet DeepBench's minimum where it does not."""
    from deepbench.core.precision import PRECISIONS

    uses = {"below_minimum_for_training": True, "below_minimum_for_inference": False}
    return [
        {"name": p.name, **p.types(), **{name: p.below_minimum(is_training) for name, is_training in uses.items()}}
        for p in PRECISIONS.values()
    ]


def diagnose() -> list[Finding]:
    """What makes measurements on this machine noisy or slow, and how to fix it. Nothing is changed."""
    from deepbench.core.backend import all_backends
    from deepbench.machine import doctor

    here = libraries([name for name, b in all_backends().items() if b.default])
    return [*doctor.examine(), doctor.openmp(here)]
