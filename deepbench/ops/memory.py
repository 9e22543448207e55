"""Memory: read, copy or combine `n` numbers, to measure the bandwidth of a cache or of memory.

read: the exclusive-or of all 64-bit words of a, which depends on every bit. copy: c = a. triad: c = a + 3·b, as in
STREAM (McCalpin, 1995).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepbench.core.errors import BadInput
from deepbench.core.op import Comparison, Op
from deepbench.core.problem import BaseProblem, choice, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Arrays
    from deepbench.core.precision import Precision

# Number of arrays that each kind reads and writes.
STREAMS = {"read": (1, 0), "copy": (1, 1), "triad": (2, 1)}

# Two roundings of a result of up to 4.
TRIAD_ROUNDINGS = 2


@dataclass(frozen=True)
class Memory(BaseProblem):
    """`n` f32 numbers per array; even, because `read` works on 64-bit words."""

    kind: str = choice(*STREAMS)
    n: int = size(least=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n % 2:
            raise BadInput(f"n must be even, found {self.n}")


class MemoryOp(Op):
    name = "memory"
    sweep_field = "n"
    Problem = Memory
    outputs = ("c",)
    smoke = (Memory("read", 2), Memory("copy", 1002), Memory("triad", 30), Memory("read", 70002), Memory("triad", 9998))

    def allows(self, direction: str, precision: Precision) -> bool:
        """f32 only: bandwidth does not depend on the type."""
        return precision.name == "f32"

    def operand_bytes(self, case: Case) -> int:
        """Each array once, as STREAM counts traffic; reads of lines that are then written are not included."""
        return int(4 * case.problem.n * sum(STREAMS[case.problem.kind]))

    def operands(self, case: Case) -> Arrays:
        """`a` (n), for triad `b` (n), and `c` (n; for `read` 2, which hold the 64 bits of the result)."""
        from deepbench.core import operands

        p = case.problem
        arrays = {"a": operands.random((p.n,), "f32", stream=0)}
        if p.kind == "triad":
            arrays["b"] = operands.random((p.n,), "f32", stream=1)
        arrays["c"] = operands.empty((2 if p.kind == "read" else p.n,), "f32")
        self.reset(case, arrays)
        return arrays

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        import numpy as np

        a, kind = arrays["a"], case.problem.kind
        if kind == "read":
            return {"c": np.bitwise_xor.reduce(a.view("u8"), keepdims=True).view("f4").astype(np.float64)}
        if kind == "copy":
            return {"c": a.astype(np.float64)}
        return {"c": a.astype(np.float64) + 3 * arrays["b"].astype(np.float64)}

    def compare(self, case: Case, arrays: Arrays) -> Iterator[Comparison]:
        """Every bit of `read` and `copy`; every element of `triad` within two roundings."""
        import numpy as np

        c, kind = arrays["c"], case.problem.kind
        if kind == "triad":
            want = self.reference(case, arrays)["c"]
            sizes = np.abs(arrays["a"].astype(np.float64)) + 3 * np.abs(arrays["b"].astype(np.float64))
            tolerance = TRIAD_ROUNDINGS * case.precision.roundoff * sizes
            yield Comparison("every element", c.astype(np.float64), want, tolerance, want.size, want.size)
            return
        bits = arrays["a"]
        if kind == "read":
            bits = np.bitwise_xor.reduce(bits.view("u8"), keepdims=True)
        # As integers: the exclusive-or of floats need not be a valid float.
        got, want = c.view("u4").astype(np.float64), bits.view("u4").astype(np.float64)
        yield Comparison("every bit", got, want, np.zeros_like(want), want.size, want.size)

    def flop(self, case: Case) -> int:
        """2·n for a triad, otherwise 0."""
        return 2 * case.problem.n if case.problem.kind == "triad" else 0

    def title(self, problem: Memory) -> str:
        """`copy of 67108864 numbers`."""
        return f"{problem.kind} of {problem.n} numbers"


OP = MemoryOp()
