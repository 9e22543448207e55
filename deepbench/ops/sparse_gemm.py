"""Sparse GEMM: C = A·B + C with a sparse A in compressed sparse row format (CSR), and dense B and C.

A is m × k with `sparsity` percent zeros at random positions, so row lengths vary. With `structure=2_4`, two of every
four elements in a row are non-zero, which matrix units of GPUs multiply at twice the rate; A is CSR in this case, too,
so that all libraries can be compared. B is k × n and C is m × n, column-major as in `gemm`, or row-major with
`order=row`. alpha = 1, and beta = 1 unless the setting `beta=0` is chosen, as for dense products.
Arrays: `row_starts` (m + 1), `columns` and `values` (one element per non-zero), `b` (n, k) and `c` (n, m); with
`order=row`, `b` (k, n) and `c` (m, n).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput
from deepbench.core.lowering import MatrixProduct
from deepbench.core.op import AnswerComparison
from deepbench.core.precision import BITS
from deepbench.core.problem import LARGEST_SIZE, BaseProblem, choice, size
from deepbench.core.product import AddingProductOp, norms_with_initial

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays
    from deepbench.core.precision import Precision

# Up to this many multiply-adds, the full product is computed in float64.
FULL_CHECK_MULTIPLY_ADDS = 2**24

# Number of random permutations of the columns from which rows take their non-zeros.
ORDERS = 509


@dataclass(frozen=True)
class SparseGemm(BaseProblem):
    """Sizes of one product; `sparsity` is the percentage of zeros in A."""

    m: int = size()
    n: int = size()
    k: int = size()
    sparsity: int = size(least=0, most=99)
    structure: str = choice("random", "2_4", default="random")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.structure == "2_4" and (self.sparsity != 50 or self.k % 4):
            raise BadInput(
                "structure=2_4 requires sparsity=50 and k to be a multiple of 4, "
                f"found sparsity={self.sparsity} and k={self.k}"
            )
        if self.non_zeros > LARGEST_SIZE:
            raise BadInput(f"{self.non_zeros} non-zeros need 64-bit indices; make m or k smaller, or sparsity larger")

    @property
    def row_non_zeros(self) -> int:
        """Average number of non-zeros per row, at least one."""
        return max(1, self.k - self.k * self.sparsity // 100)

    @property
    def non_zeros(self) -> int:
        """Number of non-zeros of A."""
        return self.m * self.row_non_zeros


class SparseGemmOp(AddingProductOp):
    name = "sparse_gemm"
    Problem = SparseGemm
    settings = {  # noqa: RUF012  (ClassVar in Op)
        "beta": ("1", "0"),
        "order": ("column", "row"),
        "result": ("wide", "narrow"),
    }
    weights = ("row_starts", "columns", "values")
    smoke = (
        SparseGemm(1, 1, 1, 0),
        SparseGemm(35, 1, 70, 90),
        SparseGemm(64, 3, 33, 95),
        SparseGemm(17, 40, 100, 90),
        SparseGemm(100, 8, 31, 0),
        SparseGemm(32, 16, 64, 50, "2_4"),
        SparseGemm(64, 32, 96, 50, "2_4"),
    )

    def operands(self, case: Case) -> Arrays:
        """The arrays listed at the top of this file. Indices have 32 bits, the default of libraries."""
        from deepbench.core import operands

        p, types = case.problem, case.precision
        step = -1 if case.settings["order"] == "row" else 1
        arrays = {
            "row_starts": operands.empty((p.m + 1,), "s32"),
            "columns": operands.empty((p.non_zeros,), "s32"),
            "values": operands.random((p.non_zeros,), types.weights, stream=0),
            "b": operands.random((p.n, p.k)[::step], types.data, stream=1),
            "c": operands.empty((p.n, p.m)[::step], self.result_type(case)),
        }
        self._fill_pattern(p, arrays["row_starts"], arrays["columns"])
        self.reset(case, arrays)
        return arrays

    def _fill_pattern(self, p: SparseGemm, row_starts: Array, columns: Array) -> None:
        """Choose distinct columns for every row, in ascending order.

        Row lengths are distributed as for independent random zeros. Rows come in pairs: what one has in excess of the
        average the other lacks, so that the total is exact.
        """
        import numpy as np

        from deepbench.core.operands import generator

        choices = generator(stream=5)
        if p.structure == "2_4":
            row_starts[:] = np.arange(p.m + 1) * (p.k // 2)
            pairs = np.array(list(itertools.combinations(range(4), 2)), np.int32)  # of each group of four
            chosen = pairs[choices.integers(0, len(pairs), p.m * p.k // 4)].ravel()
            columns[:] = chosen + np.tile(np.arange(0, p.k, 4), p.m).repeat(2)
            return
        usual, most = p.row_non_zeros, min(p.row_non_zeros - 1, p.k - p.row_non_zeros)
        deviation = np.sqrt(p.k * p.sparsity / 100 * (1 - p.sparsity / 100))
        longer = np.clip(np.rint(choices.normal(0, deviation, p.m // 2)), -most, most).astype(np.int64)
        counts = np.full(p.m, usual)
        counts[0 : 2 * longer.size : 2] += longer
        counts[1 : 2 * longer.size : 2] -= longer
        row_starts[0] = 0
        row_starts[1:] = np.cumsum(counts)
        orders = [choices.permutation(p.k).astype(np.int32) for _ in range(min(p.m, ORDERS))]
        for row, (start, end) in enumerate(itertools.pairwise(row_starts)):
            offset, order = divmod(row, len(orders))
            # Another window of the same permutation is another random choice.
            chosen = np.take(orders[order], range(offset, offset + end - start), mode="wrap")
            chosen.sort()
            columns[start:end] = chosen

    def reset(self, case: Case, arrays: Arrays) -> None:
        """Write C₀ (beta = 1) or poison (beta = 0) into C."""
        self.initial_c(case).fill(self._by_column(case, arrays["c"]))

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """The full C, shaped like `c`."""
        import numpy as np

        p = case.problem
        values = arrays["values"].astype(np.float64)
        c = np.empty((p.n, p.m))
        for target, column in zip(c, self._by_column(case, arrays["b"]), strict=True):
            target[...] = _row_sums(arrays, values * column.astype(np.float64)[arrays["columns"]])
        return {"c": self._by_column(case, c + self.initial_c(case).full())}

    def _by_column(self, case: Case, array: Array) -> Array:
        """A view of B or C as (n, …); its own inverse."""
        return array.T if case.settings["order"] == "row" else array

    def compare(self, case: Case, arrays: Arrays) -> Iterator[AnswerComparison]:
        """Every element of a small product; a sample and a projection of a large one."""
        import numpy as np

        from deepbench.core.operands import generator
        from deepbench.core.tolerance import (
            PROJECTION_SAFETY,
            TOLERANCE_UNITS,
            project,
            sampled_elements,
            storage_error,
            sum_roundoff,
        )

        p, b, c = case.problem, self._by_column(case, arrays["b"]), self._by_column(case, arrays["c"])
        unit = TOLERANCE_UNITS * sum_roundoff(case.precision, p.row_non_zeros)
        values, columns = arrays["values"].astype(np.float64), arrays["columns"]
        initial_c, stored = self.initial_c(case), self.result_type(case)
        if p.non_zeros * p.n <= FULL_CHECK_MULTIPLY_ADDS:
            want = self._by_column(case, self.reference(case, arrays)["c"])
            a_norm = np.sqrt(_row_sums(arrays, values**2))
            b_norm = np.linalg.norm(b.astype(np.float64), axis=1)
            initial, terms = initial_c.full(), np.diff(arrays["row_starts"])
            norms = norms_with_initial(np.outer(b_norm, a_norm), initial, terms)
            tolerance = unit * norms + storage_error(stored, want) + initial_c.rounding(stored, want - initial)
            yield AnswerComparison("every element", c.astype(np.float64), want, tolerance, c.size, c.size)
            return
        choices = generator(stream=2)
        count = sampled_elements(p.row_non_zeros)
        i = np.r_[0, p.m - 1, 0, p.m - 1, choices.integers(0, p.m, count)]
        j = np.r_[0, 0, p.n - 1, p.n - 1, choices.integers(0, p.n, count)]
        want, norms = np.empty((2, i.size))
        for e, (row, column) in enumerate(zip(i, j, strict=True)):
            row_slice = slice(arrays["row_starts"][row], arrays["row_starts"][row + 1])
            b_values = b[column, columns[row_slice]].astype(np.float64)
            want[e] = values[row_slice] @ b_values
            norms[e] = np.linalg.norm(values[row_slice]) * np.linalg.norm(b_values)
        initial, terms = initial_c.elements(i, j), np.diff(arrays["row_starts"])[i]
        tolerance = unit * norms_with_initial(norms, initial, terms) + initial_c.rounding(stored, want)
        want += initial
        tolerance += storage_error(stored, want)
        got = c[j, i].astype(np.float64)
        yield AnswerComparison(f"{i.size} elements", got, want, tolerance, min(i.size, c.size), c.size)

        # C·x against A·(B·x) + C₀·x for random signs x; see `gemm`.
        signs = choices.integers(0, 1, p.n, endpoint=True) * 2.0 - 1.0
        inner, b_squares = project(signs, b)
        want = _row_sums(arrays, values * inner[columns])
        want += initial_c.projection(signs)
        got, squares = project(signs, c)
        norms = _row_sums(arrays, values**2 * b_squares[columns])
        rounding = storage_error(stored, np.sqrt(squares)) + initial_c.rounding(stored, np.sqrt(norms))
        tolerance = PROJECTION_SAFETY * (unit * np.sqrt(norms * p.row_non_zeros + p.n) + rounding)
        yield AnswerComparison("projection of every element", got, want, tolerance, c.size, c.size)

    def projections(self, case: Case, arrays: Arrays, signs: Array) -> tuple[Array, Array]:
        """See `AddingProductOp.projections`."""
        import numpy as np

        from deepbench.core.tolerance import project

        inner, _ = project(signs, self._by_column(case, arrays["b"]))
        one_call = _row_sums(arrays, arrays["values"].astype(np.float64) * inner[arrays["columns"]])
        return project(signs, self._by_column(case, arrays["c"]))[0], one_call

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """Order does not matter for one column; only results of 16-bit floats can be stored in two types."""
        order = ("order",) if problem.n == 1 else ()
        return (*order, *super().unused_settings(problem, direction, precision))

    def flop(self, case: Case) -> int:
        """2 · non-zeros · n: products with zeros do not count."""
        return int(2 * case.problem.non_zeros * case.problem.n)

    def matrix_products(self, case: Case) -> tuple[MatrixProduct, ...]:
        """The product, with the number of non-zeros."""
        p = case.problem
        return (MatrixProduct("", p.m, p.n, p.k, non_zeros=p.non_zeros),)

    def other_flop(self, case: Case) -> dict[str, int]:
        """`dense`: 2·m·n·k. `original`: 2·m·n·k times the share of zeros, as DeepBench published it."""
        p = case.problem
        dense = 2 * p.m * p.n * p.k
        return {"dense": dense, "original": dense * p.sparsity // 100}

    def baselines(self, case: Case) -> tuple[str, ...]:
        """The dense product of this shape, plain and packed, because libraries may also prepare a sparse matrix."""
        p = case.problem
        settings = f"beta={case.settings['beta']} result={case.settings['result']}"
        shape = f"gemm m={p.m} n={p.n} k={p.k} forward {settings}"
        return tuple(f"{shape} weights={weights}" for weights in ("plain", "packed"))

    def expected_s(self, case: Case, flop_per_s: float, bytes_per_s: float) -> float:
        """Assumes a tenth of the dense rate."""
        return max(10 * self.flop(case) / flop_per_s, self.traffic_bytes(case) / bytes_per_s)

    def gathers(self, case: Case) -> int:
        """One number of B for each non-zero and each column of C: the column indices of A decide which.

        With rows of B in memory order (`order=row`), the numbers of a row are next to each other.
        """
        p = case.problem
        return int(p.non_zeros * (1 if case.settings["order"] == "row" else p.n))

    def title(self, problem: Any) -> str:
        """`7680 × 4 × 2560, 95 % zeros`, `4096 × 4096 × 4096, 2:4`."""
        zeros = "2:4" if problem.structure == "2_4" else f"{problem.sparsity} % zeros"
        return f"{problem.m} × {problem.n} × {problem.k}, {zeros}"

    def facts(self, case: Case) -> dict[str, Any]:
        """Bytes of A in CSR and dense, and their ratio."""
        p = case.problem
        stored, dense = self.matrix_bytes(case)[0], p.m * p.k * BITS[case.precision.weights] // 8
        return {"stored_bytes": stored, "dense_bytes": dense, "compression": round(dense / stored, 4)}

    def matrix_bytes(self, case: Case) -> tuple[int, int, int]:
        p, types = case.problem, case.precision
        return (
            p.non_zeros * (4 + BITS[types.weights] // 8) + 4 * (p.m + 1),
            p.k * p.n * BITS[types.data] // 8,
            p.m * p.n * BITS[self.result_type(case)] // 8,
        )


def _row_sums(arrays: Arrays, products: Array) -> Array:
    """The sum of `products` (one per non-zero) over each row; no row is empty."""
    import numpy as np

    sums: Array = np.add.reduceat(products, arrays["row_starts"][:-1])
    return sums


OP = SparseGemmOp()
