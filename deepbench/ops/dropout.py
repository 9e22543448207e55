"""Dropout: each of `n` numbers becomes 0 with the probability p = percent/100, and the others become a/(1 - p).

The generator of random numbers is the library's, and part of what is measured. The time may depend on p: a processor
guesses branches that seldom change. The gradient is dy times the same factors, which is the product of two vectors
(`elementwise kind=multiply`). Arrays have the type of the data.

(Srivastava and others, "Dropout: a simple way to prevent neural networks from overfitting", 2014.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deepbench.core.op import AnswerComparison
from deepbench.core.parts import STRIP, Expected, PartsOp, Tensor, blocks, elements_of
from deepbench.core.precision import STORAGE_ROUNDOFF, Precision
from deepbench.core.problem import BaseProblem, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# A share may be so many standard deviations from what is expected. By Bernstein's inequality, a right generator fails
# in fewer than one of 30 million checks, whatever the number of elements.
DEVIATIONS = 6


@dataclass(frozen=True)
class Dropout(BaseProblem):
    """A vector of `n` elements, of which `percent` become 0."""

    n: int = size()
    percent: int = size(default=10, most=99)

    @property
    def probability(self) -> float:
        """That an element becomes 0."""
        return self.percent / 100


class DropoutOp(PartsOp):
    name = "dropout"
    Problem = Dropout
    outputs = ("y",)
    sweep_field = "n"
    smoke = (Dropout(1), Dropout(692), Dropout(5001, percent=50), Dropout(20011))

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are computed in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def result_type(self, case: Case) -> str:
        """`y` has the type of `a`."""
        return case.precision.data

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`a` and `y`, of `n` elements."""
        return {name: Tensor((case.problem.n,), case.precision.data) for name in ("a", "y")}

    def parts(self, case: Case) -> int:
        """Blocks of elements."""
        return blocks(case.problem.n)

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """One of many right answers: its random numbers are NumPy's."""
        import numpy as np

        from deepbench.core.operands import generator

        p = case.problem
        kept = generator(stream=7).random(p.n) >= p.probability
        return {"y": np.where(kept, arrays["a"].astype(np.float64) / (1 - p.probability), 0.0)}

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """What is not 0 is a/(1 - p). A library may round 1/(1 - p) to the type of the data before it multiplies."""
        import numpy as np

        from deepbench.core.tolerance import TOLERANCE_UNITS

        at = elements_of(parts, case.problem.n)
        got = arrays["y"][at]
        want = np.where(got == 0, 0.0, arrays["a"][at].astype(np.float64) / (1 - case.problem.probability))
        relative = TOLERANCE_UNITS * case.precision.roundoff + STORAGE_ROUNDOFF[case.precision.data]
        yield Expected("y", got, want, relative * np.abs(want))

    def compare(self, case: Case, arrays: Arrays) -> Iterator[AnswerComparison]:
        """Besides the values: the share of elements that are kept, and of neighbours that are both kept."""
        yield from super().compare(case, arrays)
        n, q = case.problem.n, 1 - case.problem.probability
        kept, pairs = _kept(arrays["a"], arrays["y"])
        yield _share("the share that is kept", kept, n, q, q * (1 - q))
        if n > 1:
            yield _share(
                "the share of neighbours that are both kept", pairs, n - 1, q**2, q**2 - q**4 + 2 * (q**3 - q**4)
            )

    def flop(self, case: Case) -> int:
        """A comparison and a product per element; random numbers are not counted."""
        return int(2 * case.problem.n)

    def smallest(self, case: Case) -> BaseProblem:
        """One element."""
        smallest: BaseProblem = replace(case.problem, n=1)
        return smallest

    def title(self, problem: Any) -> str:
        """`1048576 numbers, 10 %`."""
        return f"{problem.n} numbers, {problem.percent} %"


def _kept(a: Array, y: Array) -> tuple[int, int]:
    """How many elements are not 0, and how many are so together with the next one. A 0 in `a` counts as kept."""
    kept = pairs = 0
    last = False
    for start in range(0, y.size, STRIP):
        here = (y[start : start + STRIP] != 0) | (a[start : start + STRIP] == 0)
        kept += int(here.sum())
        pairs += int((here[1:] & here[:-1]).sum()) + int(last and here[0])
        last = bool(here[-1])
    return kept, pairs


def _share(how: str, found: int, of: int, want: float, variance: float) -> AnswerComparison:
    """`variance` is that of one of the `of` elements, with what it has in common with its neighbours."""
    import numpy as np

    tolerance = DEVIATIONS * math.sqrt(variance / of) + DEVIATIONS**2 / (3 * of)
    got, wanted, allowed = (np.array([value]) for value in (found / of, want, tolerance))
    return AnswerComparison(how, got, wanted, allowed, 0, of, "y")


OP = DropoutOp()
