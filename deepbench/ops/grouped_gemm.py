"""Grouped GEMM of a mixture of experts: each of `tokens` rows is multiplied by the weights of one of `groups` experts.

Group g has weights A_g (m × k) and the columns of B (k × tokens) from offsets[g] to offsets[g + 1]; C = A_g·B there.
`tokens` counts rows after routing: a token that goes to two experts is two rows.

How many rows each expert gets is drawn once, from a fixed seed: every row chooses an expert with a probability
proportional to 1 / rank^(skew / 5), where the ranks of the experts are 1, 2, 3, … in a random order. With `skew=0` all
are equally likely, with `skew=5` the shares follow Zipf's law. Some experts may get no row, as in a real router.

Array `a` has shape (groups, m, k), as frameworks store weights, `offsets` (groups + 1), `b` (tokens, k) and `c`
(tokens, m). C is overwritten.

The gradient of the weights (`backward_weights`) has the gradient `dc` of C and B: `da` of each group is dC·Bᵀ, a sum
over the rows of the group. That of a group without rows is zero. The gradient of B is a product like the forward one,
with m and k exchanged.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from deepbench.core.lowering import MatrixProduct
from deepbench.core.op import FLOATS_8
from deepbench.core.parts import Tensor
from deepbench.core.precision import BITS, Precision
from deepbench.core.problem import BaseProblem, size
from deepbench.core.product import Product, ProductsOp

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# With this skew, the exponent of the shares is 1.
ZIPF_SKEW = 5

# More experts than any layer has. The rows of each are drawn, and remembered for some problems.
MOST_GROUPS = 4096
MOST_REMEMBERED = 256


@dataclass(frozen=True)
class GroupedGemm(BaseProblem):
    """`groups` experts with m × k weights each share `tokens` rows; `skew` says how unequally."""

    groups: int = size(most=MOST_GROUPS)
    tokens: int = size()
    m: int = size()
    k: int = size()
    skew: int = size(default=0, least=0, most=10, omit_default=True)

    @property
    def offsets(self) -> tuple[int, ...]:
        """The first row of each group, and the number of rows."""
        return _offsets(self)


@lru_cache(MOST_REMEMBERED)
def _offsets(p: GroupedGemm) -> tuple[int, ...]:
    import numpy as np

    from deepbench.core.operands import generator

    choices = generator(stream=7)
    shares = (choices.permutation(p.groups) + 1.0) ** (-p.skew / ZIPF_SKEW)
    return (0, *map(int, np.cumsum(choices.multinomial(p.tokens, shares / shares.sum()))))


class GroupedGemmOp(ProductsOp):
    name = "grouped_gemm"
    Problem = GroupedGemm
    directions = ("forward", "backward_weights")
    sweep_field = "tokens"
    outputs = ("c", "da")
    weights = ("a",)
    smoke = (
        GroupedGemm(1, 1, 1, 1),
        GroupedGemm(5, 3, 7, 9),
        GroupedGemm(4, 37, 16, 32),
        GroupedGemm(6, 50, 33, 17, skew=10),
    )

    def allows(self, direction: str, precision: Precision) -> bool:
        """All precisions but 4-bit floats; gradients need floats of at least 16 bits."""
        is_16_bits = bool(precision.roundoff) and precision.name not in FLOATS_8
        return super().allows(direction, precision) and (direction == "forward" or is_16_bits)

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """The arrays listed at the top of this file."""
        p, types, result = case.problem, case.precision, self.result_type(case)
        b, offsets = Tensor((p.tokens, p.k), types.data), Tensor((p.groups + 1,), "s32")
        if case.direction == "backward_weights":
            dc, da = Tensor((p.tokens, p.m), types.data), Tensor((p.groups, p.m, p.k), result)
            return {"dc": dc, "b": b, "offsets": offsets, "da": da}
        a, c = Tensor((p.groups, p.m, p.k), types.weights), Tensor((p.tokens, p.m), result)
        return {"a": a, "b": b, "offsets": offsets, "c": c}

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """`offsets` as drawn, else random numbers."""
        if name == "offsets":
            array[...] = case.problem.offsets
        else:
            super().fill(case, name, array, stream)

    def free_inputs(self, case: Case) -> tuple[str, ...]:
        """B: libraries may convert the weights ahead."""
        return ("b",)

    def products(self, case: Case, arrays: Arrays) -> list[Product]:
        """One per expert: forward per expert with rows."""
        if case.direction == "backward_weights":
            return [
                Product(arrays["b"][start:end], arrays["dc"][start:end].T, da)
                for da, (start, end) in zip(arrays["da"], pairwise(case.problem.offsets), strict=True)
            ]
        return [
            Product(arrays["a"][group].T, arrays["b"][start:end], arrays["c"][start:end])
            for group, (start, end) in enumerate(pairwise(case.problem.offsets))
            if end > start
        ]

    def roundoff(self, case: Case) -> float:
        """A gradient is a sum over the rows of an expert, at least one."""
        from deepbench.core.tolerance import sum_roundoff

        return super().roundoff(case) if case.direction == "forward" else sum_roundoff(case.precision, 1)

    def flop(self, case: Case) -> int:
        """2·tokens·m·k, however the rows are shared."""
        p = case.problem
        return int(2 * p.tokens * p.m * p.k)

    def matrix_products(self, case: Case) -> tuple[MatrixProduct, ...]:
        """One per number of rows; experts without rows have none."""
        p = case.problem
        counts = Counter(end - start for start, end in pairwise(p.offsets) if end > start)
        if case.direction == "backward_weights":
            return tuple(MatrixProduct(f"{rows}_rows", p.m, p.k, rows, n) for rows, n in sorted(counts.items()))
        return tuple(MatrixProduct(f"{rows}_rows", rows, p.m, p.k, n) for rows, n in sorted(counts.items()))

    def read_and_written_bytes(self, case: Case) -> int:
        """The weights of experts without rows are not read; their gradients are written."""
        p = case.problem
        if case.direction == "backward_weights":
            return self.operand_bytes(case)
        idle = p.groups - self._busy(p)
        return int(self.operand_bytes(case) - idle * p.m * p.k * BITS[case.precision.weights] // 8)

    def facts(self, case: Case) -> dict[str, Any]:
        """How many experts have rows, and the most that one has."""
        offsets = case.problem.offsets
        return {
            "busy_groups": self._busy(case.problem),
            "most_rows": max(end - start for start, end in pairwise(offsets)),
        }

    def title(self, problem: Any) -> str:
        """`8 × (14336 × 4096), 1024 rows, skew 5`."""
        p = problem
        return f"{p.groups} × ({p.m} × {p.k}), {p.tokens} rows" + f", skew {p.skew}" * bool(p.skew)

    def _busy(self, p: GroupedGemm) -> int:
        return sum(end > start for start, end in pairwise(p.offsets))


OP = GroupedGemmOp()
