"""What a case needs of a machine, counted from its text: arithmetic, bytes from each level of memory, calls."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from deepbench.core.case import RUN_SETTINGS, Case
from deepbench.core.op import find_op
from deepbench.core.precision import PRECISIONS
from deepbench.results.peaks import F32


@dataclass(frozen=True)
class Demand:
    """What a kernel needs."""

    crossing: tuple[int, ...]
    """Least bytes that come from each level of memory, the innermost first."""
    working_set: int
    """Bytes of all operands."""
    case: Case | None = None
    """None: an operator of which only the bytes are known."""
    flop: float = 0.0
    steps: int = 1
    """That depend on each other."""
    gathers: int = 0
    """Numbers that are read one by one, at positions that other data decide."""

    @cached_property
    def call(self) -> Case | None:
        """The case whose time is the fixed cost of a call; None if the library has no such case."""
        return call_case(self.case) if self.case is not None else None

    @cached_property
    def calls(self) -> float:
        """How many times the cost of `call` is paid: more than once if this case has more dependent steps."""
        return self.steps / find_op(self.call.op).steps(self.call) if self.call is not None else 1.0


@lru_cache(maxsize=2**17)
def demand_of(case: Case, inside: tuple[float, ...], algorithm: str | None = None) -> Demand:
    """What a case needs, where the levels inside of each level of memory hold so many bytes together.

    `algorithm` is what the library says it used, or an empty text: operations that it avoids do not count. None: all
    operations count that the problem has.
    """
    op = case.operation
    every, operands = op.traffic_bytes(case), op.operand_bytes(case)
    crossing = [
        0 if operands <= held else op.traffic_bytes(case, int(held)) if held else every  # no level inside
        for held in inside
    ]
    if case.settings.get("cache", "hot") != "hot" and crossing:
        crossing[-1] = max(crossing[-1], every)
    flop = op.flop(case) if algorithm is None else op.algorithm_flop(case, algorithm)
    return Demand(tuple(crossing), operands, case, float(flop), op.steps(case), op.gathers(case))


def demand_of_bytes(size: int, inside: tuple[float, ...], is_cold: bool = False) -> Demand:
    """The same where only the bytes are known: they come from the innermost level that holds them.

    `is_cold`: they come from memory.
    """
    crossing = [size if size > held else 0 for held in inside]
    if is_cold and crossing:
        crossing[-1] = size
    return Demand(tuple(crossing), size)


def call_case(case: Case) -> Case | None:
    """The case whose time is the fixed cost of a call of this one; None if its library has no such case.

    It has the smallest problem of the same kind, in f32 if the library has that, and the same settings.
    """
    op, backend = case.operation, case.library
    if op.is_group or not backend.computes or not op.flop(case):
        return None
    precision = PRECISIONS[F32] if backend.supports(case.op, F32, case.direction) else case.precision
    problem = op.smallest(case)
    unused = {*RUN_SETTINGS, *op.unused_settings(problem, case.direction, precision)}
    overrides = tuple((name, value) for name, value in case.overrides if name not in unused)
    return replace(case, problem=problem, precision=precision, overrides=overrides)
