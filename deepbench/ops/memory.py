"""Memory: read, gather, copy or combine `n` numbers, to measure the bandwidth of a cache or of memory.

read: the sum of all 64-bit words of a modulo 2⁶⁴, `passes` times over. gather: the sum of the 32-bit words a[at[i]]
modulo 2³² for all n positions in random order, `passes` times over. copy: c = a. triad: c = a + 3·b, as in STREAM
(McCalpin, 1995).

A call that reads a first-level cache once takes less time than its threads need to start. With many passes in one call
the time is that of reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepbench.core.errors import BadInput
from deepbench.core.op import AnswerComparison, Op
from deepbench.core.problem import BaseProblem, choice, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays
    from deepbench.core.precision import Precision

# Number of arrays that each kind reads and writes.
STREAMS = {"read": (1, 0), "gather": (2, 0), "copy": (1, 1), "triad": (2, 1)}

# Kinds that can pass over the same data many times in one call.
REPEATABLE = ("read", "gather")

MOST_PASSES = 2**30

# Two roundings of a result of up to 4.
TRIAD_ROUNDINGS = 2


@dataclass(frozen=True)
class MemoryProblem(BaseProblem):
    """`n` f32 numbers per array; even, because `read` works on 64-bit words. `passes` over them in one call."""

    kind: str = choice(*STREAMS)
    n: int = size(least=2)
    passes: int = size(default=1, most=MOST_PASSES, omit_default=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n % 2:
            raise BadInput(f"n must be even, found {self.n}")
        if self.passes > 1 and self.kind not in REPEATABLE:
            raise BadInput(f"only {' and '.join(REPEATABLE)} have several passes, found passes={self.passes}")


class MemoryOp(Op):
    name = "memory"
    sweep_field = "n"
    Problem = MemoryProblem
    outputs = ("c",)
    smoke = (
        MemoryProblem("read", 2),
        MemoryProblem("copy", 1002),
        MemoryProblem("triad", 30),
        MemoryProblem("read", 70002),
        MemoryProblem("triad", 9998),
        MemoryProblem("read", 4098, passes=7),
        MemoryProblem("gather", 1002),
        MemoryProblem("gather", 4098, passes=3),
    )

    def allows(self, direction: str, precision: Precision) -> bool:
        """f32 only: bandwidth does not depend on the type."""
        return precision.name == "f32"

    def operand_bytes(self, case: Case) -> int:
        """The arrays that grow with n."""
        return int(4 * case.problem.n * sum(STREAMS[case.problem.kind]))

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """Each array once in each pass, as STREAM counts traffic, unless all of them stay in the level.

        Reads of lines that are then written are not included.
        """
        stays = capacity is not None and self.operand_bytes(case) <= capacity
        return 0 if stays else self.operand_bytes(case) * int(case.problem.passes)

    def operands(self, case: Case) -> Arrays:
        """`a` (n), for triad `b` (n), for gather `at` (n), and `c` (n; for `read` and `gather` the bits of the sum)."""
        import numpy as np

        from deepbench.core import operands

        p = case.problem
        arrays = {"a": operands.random((p.n,), "f32", stream=0)}
        if p.kind == "gather":
            arrays["at"] = operands.empty((p.n,), "s32")
            arrays["at"][...] = operands.generator(stream=2).permutation(np.int32(p.n))
        if p.kind == "triad":
            arrays["b"] = operands.random((p.n,), "f32", stream=1)
        arrays["c"] = operands.empty(({"read": 2, "gather": 1}.get(p.kind, p.n),), "f32")
        self.reset(case, arrays)
        return arrays

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        import numpy as np

        a, kind = arrays["a"], case.problem.kind
        if kind in REPEATABLE:
            return {"c": _bits_of_sum(case, a).view("f4").astype(np.float64)}
        if kind == "copy":
            return {"c": a.astype(np.float64)}
        return {"c": a.astype(np.float64) + 3 * arrays["b"].astype(np.float64)}

    def compare(self, case: Case, arrays: Arrays) -> Iterator[AnswerComparison]:
        """Every bit of `read`, `gather` and `copy`; every element of `triad` within two roundings."""
        import numpy as np

        c, kind = arrays["c"], case.problem.kind
        if kind == "triad":
            want = self.reference(case, arrays)["c"]
            sizes = np.abs(arrays["a"].astype(np.float64)) + 3 * np.abs(arrays["b"].astype(np.float64))
            tolerance = TRIAD_ROUNDINGS * case.precision.roundoff * sizes
            yield AnswerComparison("every element", c.astype(np.float64), want, tolerance, want.size, want.size)
            return
        bits = _bits_of_sum(case, arrays["a"]) if kind in REPEATABLE else arrays["a"]
        # As integers: the sum of the bits of floats need not be a valid float.
        got, want = c.view("u4").astype(np.float64), bits.view("u4").astype(np.float64)
        yield AnswerComparison("every bit", got, want, np.zeros_like(want), want.size, want.size)

    def flop(self, case: Case) -> int:
        """2·n for a triad, otherwise 0."""
        return 2 * case.problem.n if case.problem.kind == "triad" else 0

    def title(self, problem: MemoryProblem) -> str:
        """`copy of 67108864 numbers`, `read of 4096 numbers, 8192 times`."""
        times = f", {problem.passes} times" if problem.passes > 1 else ""
        return f"{problem.kind} of {problem.n} numbers{times}"


def _bits_of_sum(case: Case, a: Array) -> Array:
    """The sum of all words of a in all passes: one 64-bit word for `read`, a 32-bit word for `gather`.

    The positions of `gather` are a permutation, so that each number is read once in each pass.
    """
    import numpy as np

    words = a.view("u8" if case.problem.kind == "read" else "u4")
    with np.errstate(over="ignore"):
        total = np.add.reduce(words, keepdims=True, dtype=words.dtype) * words.dtype.type(case.problem.passes)
    bits: Array = total
    return bits


OP = MemoryOp()
