"""Memory: `n` numbers are read, copied, or combined (triad): how fast bytes come and go, from a cache or from memory.

read: bits that occur an odd number of times in the words of a, so that every one must be looked at. copy: c = a.
triad: c = a + 3·b, as in STREAM (McCalpin, 1995).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepbench.core.op import Comparison, Op
from deepbench.core.problem import BaseProblem, choice, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays
    from deepbench.core.precision import Precision

# Arrays of each kind that are read, and written.
STREAMS = {"read": (1, 0), "copy": (1, 1), "triad": (2, 1)}

# Two roundings of a result of up to 4.
TRIAD_ROUNDINGS = 2


@dataclass(frozen=True)
class Memory(BaseProblem):
    """What is done with arrays of so many numbers; an even number, since `read` takes words of 64 bits."""

    kind: str = choice(*STREAMS)
    n: int = size(least=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n % 2:
            from deepbench.core.errors import BadInput

            raise BadInput(f"n must be even, found {self.n}")


class MemoryOp(Op):
    name = "memory"
    sweep_field = "n"
    Problem = Memory
    outputs = ("c",)
    smoke = (Memory("read", 2), Memory("copy", 1002), Memory("triad", 30), Memory("read", 70002), Memory("triad", 9998))

    def allows(self, direction: str, precision: Precision) -> bool:
        """Bytes are bytes: one type is enough."""
        return precision.name == "f32"

    def operand_bytes(self, case: Case) -> int:
        return int(4 * case.problem.n * sum(STREAMS[case.problem.kind]))

    def operands(self, case: Case) -> Arrays:
        """Arrays `a`, for triad `b`, and `c`: as long, or for `read` two numbers that hold 64 bits."""
        from deepbench.core import operands

        p = case.problem
        made = {"a": operands.random((p.n,), "f32", stream=0)}
        if p.kind == "triad":
            made["b"] = operands.random((p.n,), "f32", stream=1)
        made["c"] = operands.empty((2 if p.kind == "read" else p.n,), "f32")
        self.reset(case, made)
        return made

    def reset(self, case: Case, arrays: Arrays) -> None:
        from deepbench.core.operands import poison

        poison(arrays["c"])

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        import numpy as np

        a, kind = arrays["a"], case.problem.kind
        if kind == "read":
            return {"c": np.bitwise_xor.reduce(a.view("u8"), keepdims=True).view("f4").astype(np.float64)}
        if kind == "copy":
            return {"c": a.astype(np.float64)}
        return {"c": a.astype(np.float64) + 3 * arrays["b"].astype(np.float64)}

    def compare(self, case: Case, arrays: Arrays) -> Iterator[Comparison]:
        """Every bit of what is read and copied; triad within two roundings."""
        import numpy as np

        c, kind = arrays["c"], case.problem.kind
        if kind == "triad":
            want = self.reference(case, arrays)["c"]
            sizes = np.abs(arrays["a"].astype(np.float64)) + 3 * np.abs(arrays["b"].astype(np.float64))
            tolerance = TRIAD_ROUNDINGS * case.precision.roundoff * sizes
            yield Comparison("every element", c.astype(np.float64), want, tolerance, want.size, want.size)
            return
        bits = (
            np.bitwise_xor.reduce(arrays["a"].view("u8"), keepdims=True).view("u4") if kind == "read" else arrays["a"]
        )
        # As whole numbers: the bits that are left of many numbers need not be a number.
        got, want = c.view("u4").astype(np.float64), bits.view("u4").astype(np.float64)
        yield Comparison("every bit", got, want, np.zeros_like(want), want.size, want.size)

    def flop(self, case: Case) -> int:
        """Two for each element of a triad; the others compute nothing."""
        return 2 * case.problem.n if case.problem.kind == "triad" else 0

    def traffic_bytes(self, case: Case) -> int:
        """Each array once, as STREAM counts: that most caches read a line before they write it is left out."""
        return int(4 * case.problem.n * sum(STREAMS[case.problem.kind]))

    def title(self, problem: Memory) -> str:
        """`copy of 64 Mi numbers`."""
        return f"{problem.kind} of {problem.n} numbers"


OP = MemoryOp()
