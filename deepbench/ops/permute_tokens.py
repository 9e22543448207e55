"""Permutation of tokens in a mixture of experts: rows of numbers to the experts that were chosen for them, and back.

Each of `tokens` tokens goes to `active` of the `experts` experts. The rows of all experts follow each other, and those
of an expert are in the order of the tokens.

    dispatch    y[j] = x[t] for the token t of each row j
    combine     y[t] = sum over i of w[t, i] · x[places[t, i]], the rows of the token with the weights of its experts

The backward pass has the gradient `dy` of y:

    dispatch    dx[t] = sum over i of dy[places[t, i]]
    combine     dx[places[t, i]] = w[t, i] · dy[t]        dw[t, i] = ⟨dy[t], x[places[t, i]]⟩

A fixed seed draws the first expert of each token uniformly; its others follow at equal distances. `sources` (tokens ·
active) is the token of each row, `places` (tokens, active) the row of each token at each of its experts; both are s32.
Everything else has the type of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput
from deepbench.core.parts import Expected, PartsOp, Tensor
from deepbench.core.precision import Precision
from deepbench.core.problem import LARGEST_SIZE, BaseProblem, choice, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays


@dataclass(frozen=True)
class PermuteTokens(BaseProblem):
    """`tokens` of `hidden` numbers, each for `active` of the `experts`."""

    kind: str = choice("dispatch", "combine")
    tokens: int = size()
    experts: int = size()
    active: int = size()
    hidden: int = size()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.active > self.experts:
            raise BadInput(f"active must be at most experts, {self.experts}, found {self.active}")
        if self.rows > LARGEST_SIZE:
            raise BadInput(f"tokens · active must be at most {LARGEST_SIZE}, found {self.rows}")

    @property
    def rows(self) -> int:
        """Rows of all experts together."""
        return self.tokens * self.active


class PermuteTokensOp(PartsOp):
    name = "permute_tokens"
    Problem = PermuteTokens
    directions = ("forward", "backward")
    outputs = ("y", "dx", "dw")
    sweep_field = "tokens"
    smoke = (
        PermuteTokens("dispatch", 1, 1, 1, 1),
        PermuteTokens("combine", 5, 7, 3, 33),
        PermuteTokens("dispatch", 37, 8, 2, 64),
        PermuteTokens("combine", 40, 8, 2, 129),
        PermuteTokens("dispatch", 9, 4, 4, 17),
        PermuteTokens("combine", 33, 64, 8, 16),
    )

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are summed in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def result_type(self, case: Case) -> str:
        """Results have the type of the data."""
        return case.precision.data

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """The arrays of the formulas: of tokens (tokens, hidden), of rows (tokens · active, hidden)."""
        p, kind = case.problem, case.precision.data
        of_tokens, of_rows = Tensor((p.tokens, p.hidden), kind), Tensor((p.rows, p.hidden), kind)
        places, weights = Tensor((p.tokens, p.active), "s32"), Tensor((p.tokens, p.active), kind)
        if case.direction == "forward":
            if p.kind == "dispatch":
                return {"x": of_tokens, "sources": Tensor((p.rows,), "s32"), "y": of_rows}
            return {"x": of_rows, "w": weights, "places": places, "y": of_tokens}
        if p.kind == "dispatch":
            return {"dy": of_rows, "places": places, "dx": of_tokens}
        return {"dy": of_tokens, "x": of_rows, "w": weights, "places": places, "dx": of_rows, "dw": weights}

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """`sources` and `places` as drawn, else random numbers."""
        if name == "sources":
            array[...] = by_expert(case.problem) // case.problem.active
        elif name == "places":
            array[...] = inverse(by_expert(case.problem)).reshape(array.shape)
        else:
            super().fill(case, name, array, stream)

    def parts(self, case: Case) -> int:
        """Tokens."""
        return int(case.problem.tokens)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """Copies are exact, products have one rounding; sums have the tolerance of a product, see docs/formulas.md."""
        import numpy as np

        from deepbench.core.precision import STORAGE_ROUNDOFF
        from deepbench.core.tolerance import F16_SMALL, TOLERANCE_UNITS

        p, forward = case.problem, case.direction == "forward"
        order = by_expert(p)
        at = inverse(order).reshape(p.tokens, p.active)[parts]
        unit = TOLERANCE_UNITS * case.precision.roundoff
        stored, small = STORAGE_ROUNDOFF[case.precision.data], F16_SMALL * (case.precision.name == "f16")
        if p.kind == "dispatch" and forward:
            want = np.repeat(arrays["x"][parts][:, None].astype(np.float64), p.active, axis=1)
            yield Expected("y", arrays["y"][at], want, np.zeros_like(want))
            return
        if p.kind == "dispatch" or forward:
            source, output = ("dy", "dx") if p.kind == "dispatch" else ("x", "y")
            terms = arrays[source][at].astype(np.float64)  # (tokens, active, hidden)
            if p.kind == "combine":
                terms *= arrays["w"][parts][:, :, None].astype(np.float64)
            sizes = abs(terms).sum(axis=1)
            # Libraries may store products and partial sums.
            between = stored * sizes * (p.active > 1)
            rounded = unit * sizes * (p.active > 1 or p.kind == "combine")
            yield Expected(output, arrays[output][parts], terms.sum(axis=1), rounded + between + small)
            return
        x, dy = arrays["x"][at].astype(np.float64), arrays["dy"][parts][:, None].astype(np.float64)
        dx, dw = arrays["w"][parts][:, :, None].astype(np.float64) * dy, (x * dy).sum(axis=2)
        norms = np.linalg.norm(x, axis=2) * np.linalg.norm(dy, axis=2)
        yield Expected("dx", arrays["dx"][at], dx, unit * abs(dx) + small)
        yield Expected("dw", arrays["dw"][parts], dw, unit * norms + small)

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """Those of rows in the order of the rows."""
        import numpy as np

        found = {e.output: e.want for e in self.expected(case, arrays, np.arange(self.parts(case)))}
        order = by_expert(case.problem)
        for name, values in found.items():
            if values.ndim == 3:
                found[name] = values.reshape(-1, case.problem.hidden)[order]
        return found

    def flop(self, case: Case) -> int:
        """dispatch: copies, and backward an addition for every number of every row. combine: 2, and backward 3."""
        p = case.problem
        per_number = {"dispatch": (0, 1), "combine": (2, 3)}[p.kind][case.direction == "backward"]
        return int(per_number * p.rows * p.hidden)

    def gathers(self, case: Case) -> int:
        """Rows at positions that the choice of experts decides."""
        return int(case.problem.rows)

    def title(self, problem: Any) -> str:
        """`dispatch of 4096 × 2048, 8 of 128 experts`."""
        p = problem
        return f"{p.kind} of {p.tokens} × {p.hidden}, {p.active} of {p.experts} experts"


@cache
def by_expert(p: PermuteTokens) -> Array:
    """The rows in the order of the experts: each is the number of its token · active + that of the token's expert."""
    import numpy as np

    from deepbench.core.operands import generator

    first = generator(stream=7).integers(0, p.experts, p.tokens)
    chosen = (first[:, None] + np.arange(p.active) * (p.experts // p.active)) % p.experts
    order: Array = np.argsort(chosen.reshape(-1), kind="stable")
    return order


def inverse(order: Array) -> Array:
    """The positions at which a permutation has 0, 1, 2, …"""
    import numpy as np

    places = np.empty_like(order)
    places[order] = np.arange(order.size)
    return places


OP = PermuteTokensOp()
