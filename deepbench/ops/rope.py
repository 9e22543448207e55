"""Rotary positions: turn each pair of numbers of a query or key by an angle that grows with the position of its token.

With position t and pair j of a head of size `dim`, the angle is t · BASE^(-2j/dim), and

    y₁ = x₁ · cos - x₂ · sin        y₂ = x₂ · cos + x₁ · sin

(Su et al., "RoFormer: Enhanced transformer with rotary position embedding", 2021.) With `pairs=halves`, pair j consists
of the numbers j and j + dim/2, as in GPT-NeoX and in Hugging Face's Llama; with `pairs=interleaved` of 2j and 2j + 1,
as in RoFormer, GPT-J and DeepSeek. The backward pass has the gradient `dy` of y and turns it back:

    dx₁ = dy₁ · cos + dy₂ · sin     dx₂ = dy₂ · cos - dy₁ · sin

`heads` are those of queries and keys together. The cosines and sines of each token are inputs, because models compute
them once for all layers. Everything has the type of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput
from deepbench.core.parts import Expected, PartsOp, Tensor
from deepbench.core.precision import STORAGE_ROUNDOFF, Precision
from deepbench.core.problem import BaseProblem, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# That of the paper.
BASE = 10000.0

# The position of the first token. Position 0 would not turn anything, so a kernel that copies would be right.
FIRST_POSITION = 1000


@dataclass(frozen=True)
class Rope(BaseProblem):
    """`tokens` with `heads` of `dim` numbers each."""

    tokens: int = size()
    heads: int = size()
    dim: int = size(least=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % 2:
            raise BadInput(f"dim must be even, because pairs of numbers are turned; found dim={self.dim}")


class RopeOp(PartsOp):
    name = "rope"
    Problem = Rope
    directions = ("forward", "backward")
    settings = {"pairs": ("halves", "interleaved")}  # noqa: RUF012  (ClassVar in Op)
    outputs = ("y", "dx")
    sweep_field = "tokens"
    smoke = (Rope(1, 1, 2), Rope(5, 3, 14), Rope(17, 5, 64), Rope(40, 6, 96))

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are computed in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """A single pair is the same in both orders."""
        return ("pairs",) if problem.dim == 2 else ()

    def result_type(self, case: Case) -> str:
        """`y` has the type of `x`."""
        return case.precision.data

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`x` and `y`, or `dy` and `dx`: (tokens, heads, dim); `cos` and `sin` (tokens, dim/2)."""
        p, kind = case.problem, case.precision.data
        whole, of_pair = Tensor((p.tokens, p.heads, p.dim), kind), Tensor((p.tokens, p.dim // 2), kind)
        source, result = ("x", "y") if case.direction == "forward" else ("dy", "dx")
        return {source: whole, "cos": of_pair, "sin": of_pair, result: whole}

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """Random numbers, and the cosines and sines of the angles, rounded to the type of the data."""
        import numpy as np

        if name not in ("cos", "sin"):
            super().fill(case, name, array, stream)
            return
        frequencies = BASE ** (-2 * np.arange(array.shape[1]) / case.problem.dim)
        function = np.cos if name == "cos" else np.sin
        for start in range(0, array.shape[0], 1024):
            rows = slice(start, min(start + 1024, array.shape[0]))
            positions = FIRST_POSITION + np.arange(rows.start, rows.stop)
            array[rows] = function(np.outer(positions, frequencies))

    def parts(self, case: Case) -> int:
        """Tokens."""
        return int(case.problem.tokens)

    def check_work(self, case: Case) -> int:
        """More than counted FLOP: the reference passes over the numbers many times."""
        p = case.problem
        return int(8 * p.tokens * p.heads * p.dim)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """docs/formulas.md derives the tolerance."""
        import numpy as np

        from deepbench.core.tolerance import TOLERANCE_UNITS

        source, result = ("x", "y") if case.direction == "forward" else ("dy", "dx")
        x = arrays[source][parts].astype(np.float64)
        cos, sin = (arrays[name][parts].astype(np.float64)[:, None] for name in ("cos", "sin"))
        if case.direction == "backward":
            sin = -sin
        first, second = pairs_of(case, x)
        want, sizes = np.empty_like(x), np.empty_like(x)
        for values, a, b, of_b in zip(pairs_of(case, want), (first, second), (second, first), (-sin, sin), strict=True):
            values[...] = a * cos + b * of_b
        for values, a, b in zip(pairs_of(case, sizes), (first, second), (second, first), strict=True):
            values[...] = np.abs(a * cos) + np.abs(b * sin)
        # Frameworks without a fused kernel store both products in the type of the data.
        unit = TOLERANCE_UNITS * case.precision.roundoff + STORAGE_ROUNDOFF[case.precision.data]
        yield Expected(result, arrays[result][parts], want, unit * sizes)

    def flop(self, case: Case) -> int:
        """Three per number: two products and an addition."""
        p = case.problem
        return int(3 * p.tokens * p.heads * p.dim)

    def title(self, problem: Any) -> str:
        """`2048 × 40 heads of 128`: tokens × heads of a size."""
        return f"{problem.tokens} × {problem.heads} heads of {problem.dim}"


def pairs_of(case: Case, whole: Array) -> tuple[Array, Array]:
    """Views of the first and the second numbers of all pairs, in the last axis."""
    if case.settings["pairs"] == "interleaved":
        return whole[..., ::2], whole[..., 1::2]
    half = whole.shape[-1] // 2
    return whole[..., :half], whole[..., half:]


OP = RopeOp()
