"""GEMM: C = A·B + C on column-major matrices, as in the original DeepBench.

A is m × k, B is k × n, C is m × n. With `a_t=1` A is stored transposed (as k × m), with `b_t=1` B is (as n × k).
alpha = 1, and beta = 1 unless the setting `beta=0` is chosen; with beta = 1, C is read, added to and written. A
column-major matrix is a row-major NumPy array of the transposed shape: array `c` has shape (n, m), `a` (k, m) or, with
`a_t=1`, (m, k), and `b` (n, k) or, with `b_t=1`, (k, n).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.op import Comparison
from deepbench.core.precision import BITS
from deepbench.core.problem import BaseProblem, size
from deepbench.core.product import ProductOp
from deepbench.core.traffic import product_bytes

if TYPE_CHECKING:
    import numpy as np

    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays
    from deepbench.core.precision import Precision

# Up to this many multiply-adds, and elements of one operand, the full product is computed in float64 (milliseconds).
# Beyond, individual elements are sampled, and a random projection covers all elements.
FULL_CHECK_MULTIPLY_ADDS = 2**27
FULL_CHECK_ELEMENTS = 2**20


@dataclass(frozen=True)
class Gemm(BaseProblem):
    """Sizes of one product; `a_t` and `b_t` are 1 if the operand is stored transposed."""

    m: int = size()
    n: int = size()
    k: int = size()
    a_t: int = size(default=0, least=0, most=1)
    b_t: int = size(default=0, least=0, most=1)


class GemmOp(ProductOp):
    name = "gemm"
    Problem = Gemm
    settings = {  # noqa: RUF012  (ClassVar in Op)
        "weights": ("plain", "packed"),
        "beta": ("1", "0"),
        "result": ("wide", "narrow"),
    }
    weights = ("a",)
    smoke = (
        Gemm(1, 1, 1),
        Gemm(35, 1, 7),
        Gemm(1, 33, 64),
        Gemm(16, 17, 31, a_t=1),
        Gemm(13, 64, 5, b_t=1),
        Gemm(48, 32, 129, a_t=1, b_t=1),
    )
    probes = (Gemm(1536, 1536, 1536), Gemm(512, 512, 1024, b_t=1))
    device_probes = (Gemm(8192, 8192, 8192), Gemm(8192, 8192, 8192, a_t=1), Gemm(4096, 4096, 4096))

    def allows(self, direction: str, precision: Precision) -> bool:
        """All precisions."""
        return True

    def operands(self, case: Case) -> Arrays:
        """Arrays `a`, `b` and `c`; their shapes are at the top of this file."""
        from deepbench.core import operands

        p, types = case.problem, case.precision
        arrays = {
            "a": operands.random((p.m, p.k) if p.a_t else (p.k, p.m), types.weights, stream=0),
            "b": operands.random((p.k, p.n) if p.b_t else (p.n, p.k), types.data, stream=1),
            "c": operands.empty((p.n, p.m), self.result_type(case)),
        }
        self.reset(case, arrays)
        return arrays

    def reset(self, case: Case, arrays: Arrays) -> None:
        """Write C₀ (beta = 1) or poison (beta = 0) into C."""
        self.initial_c(case).fill(arrays["c"])

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """The full C, shape (n, m)."""
        import numpy as np

        a, b = self._left(case, arrays), self._right(case, arrays)
        return {"c": b.astype(np.float64) @ a.astype(np.float64) + self.initial_c(case).full()}

    def compare(self, case: Case, arrays: Arrays) -> Iterator[Comparison]:
        """Every element of a small product; a sample and a projection of a large one."""
        import numpy as np

        from deepbench.core.operands import generator
        from deepbench.core.tolerance import TOLERANCE_UNITS, storage_error, sum_roundoff

        p, c = case.problem, arrays["c"]
        a, b = self._left(case, arrays), self._right(case, arrays)
        unit = TOLERANCE_UNITS * sum_roundoff(case.precision, p.k)
        largest = max(a.size, b.size, c.size)
        if p.m * p.n * p.k <= FULL_CHECK_MULTIPLY_ADDS and largest <= FULL_CHECK_ELEMENTS:
            a_norm = np.linalg.norm(a.astype(np.float64), axis=0)
            b_norm = np.linalg.norm(b.astype(np.float64), axis=1)
            want = self.reference(case, arrays)["c"]
            tolerance = unit * (np.outer(b_norm, a_norm) + 1) + storage_error(self.result_type(case), want)
            yield Comparison("every element", c.astype(np.float64), want, tolerance, c.size, c.size)
            return
        choices = generator(stream=2)
        yield self._sampled(case, arrays, choices, unit)
        yield self._projected(case, arrays, choices, unit)

    def flop(self, case: Case) -> int:
        """2·m·n·k: one multiplication and one addition per product, as the original counts."""
        p = case.problem
        return int(2 * p.m * p.n * p.k)

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """Every matrix once, or as much as blocks that fit into the level need; see `core/traffic.py`."""
        least = super().traffic_bytes(case, capacity)
        if capacity is None or not least:
            return least
        p, types = case.problem, case.precision
        narrowest = min(BITS[kind] for kind in (types.weights, types.data, self.result_type(case))) / 8
        return max(least, product_bytes(p.m * p.n * p.k, capacity, narrowest))

    def title(self, problem: Any) -> str:
        """`1760 × 128 × 1760 NT`: m × n × k, then N or T (transposed) for A and for B."""
        return f"{problem.m} × {problem.n} × {problem.k} {'NT'[problem.a_t]}{'NT'[problem.b_t]}"

    def matrix_bytes(self, case: Case) -> tuple[int, int, int]:
        p, types = case.problem, case.precision
        return (
            p.m * p.k * BITS[types.weights] // 8,
            p.k * p.n * BITS[types.data] // 8,
            p.m * p.n * BITS[self.result_type(case)] // 8,
        )

    def _left(self, case: Case, arrays: Arrays) -> Array:
        """Aᵀ as a (k, m) view."""
        return arrays["a"].T if case.problem.a_t else arrays["a"]

    def _right(self, case: Case, arrays: Arrays) -> Array:
        """Bᵀ as an (n, k) view."""
        return arrays["b"].T if case.problem.b_t else arrays["b"]

    def _sampled(self, case: Case, arrays: Arrays, choices: np.random.Generator, unit: float) -> Comparison:
        """The four corners and random elements, each recomputed in float64."""
        import numpy as np

        from deepbench.core.tolerance import sampled_elements, storage_error

        p, c = case.problem, arrays["c"]
        corners = [(0, 0), (0, p.m - 1), (p.n - 1, 0), (p.n - 1, p.m - 1)]
        count = sampled_elements(p.k)
        j = np.r_[[x for x, _ in corners], choices.integers(0, p.n, count)]
        i = np.r_[[y for _, y in corners], choices.integers(0, p.m, count)]
        a, b = self._left(case, arrays), self._right(case, arrays)
        got, want, tolerance = np.empty((3, j.size))
        for e in range(j.size):
            column, row = a[:, i[e]].astype(np.float64), b[j[e]].astype(np.float64)
            want[e] = row @ column
            tolerance[e] = unit * (np.linalg.norm(row) * np.linalg.norm(column) + 1)
            got[e] = c[j[e], i[e]]
        want += self.initial_c(case).elements(i, j)
        tolerance += storage_error(self.result_type(case), want)
        return Comparison(f"{j.size} elements", got, want, tolerance, min(j.size, c.size), c.size)

    def _projected(self, case: Case, arrays: Arrays, choices: np.random.Generator, unit: float) -> Comparison:
        """C·x against A·(B·x) + C₀·x for random signs x: covers every element at the cost of reading C once.

        Freivalds' algorithm (1977), with a tolerance for rounded sums.
        """
        import numpy as np

        from deepbench.core.tolerance import PROJECTION_SAFETY, project, storage_error

        p, c = case.problem, arrays["c"]
        signs = choices.integers(0, 1, p.n, endpoint=True) * 2.0 - 1.0
        a, b = self._left(case, arrays), self._right(case, arrays)
        inner, b_squares = project(signs, b)
        want, a_squares = project(inner, a)
        want += self.initial_c(case).projection(signs)
        got, squares = project(signs, c)
        magnitude = np.sqrt(a_squares * b_squares.sum() + p.n)
        tolerance = PROJECTION_SAFETY * (unit * magnitude + storage_error(self.result_type(case), np.sqrt(squares)))
        return Comparison("projection of every element", got, want, tolerance, c.size, c.size)


OP = GemmOp()
