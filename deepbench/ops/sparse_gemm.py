"""Sparse GEMM: C = A·B + C, A with most of its elements zero and stored as compressed rows (CSR), B and C dense.

A is m × k with `sparsity` percent of zeros at random places, so that rows differ in length as they do by chance, or
with `structure=2_4` two of every four elements of a row at random: what matrix units of GPUs multiply at twice the
rate (the kept values are stored as CSR all the same, so that every library can be compared).
B is k × n, C is m × n, both stored column by column as in `gemm`, or with `order=row` row by row. alpha = 1, and
beta = 1 unless the setting `beta=0` is chosen, so that sparse and dense do the same.
Arrays: `row_starts` (m + 1), `columns` and `values` (one a non-zero), `b` of shape (n, k), `c` of shape (n, m); with
`order=row` `b` of shape (k, n), `c` of shape (m, n).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput
from deepbench.core.op import Comparison, Op
from deepbench.core.precision import BITS, SIXTEEN_BITS
from deepbench.core.problem import LARGEST_SIZE, BaseProblem, choice, size

if TYPE_CHECKING:
    import numpy as np

    from deepbench.core.case import Case
    from deepbench.core.op import Arrays
    from deepbench.core.precision import Precision
    from deepbench.core.tolerance import InitialC

    Array = np.ndarray[Any, Any]

# Up to so many multiply-adds the whole product is computed in float64.
FULL_CHECK_MULTIPLY_ADDS = 2**24

# Random orders of all columns that rows take their non-zeros from.
ORDERS = 509


@dataclass(frozen=True)
class SparseGemm(BaseProblem):
    """Sizes of one product; `sparsity` is the share of zeros in A, in percent."""

    m: int = size()
    n: int = size()
    k: int = size()
    sparsity: int = size(least=0, most=99)
    structure: str = choice("random", "2_4", default="random")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.structure == "2_4" and (self.sparsity != 50 or self.k % 4):
            found = f"sparsity={self.sparsity} and k={self.k}"
            raise BadInput(f"structure=2_4 wants sparsity=50 and k a multiple of 4, found {found}")
        if self.non_zeros > LARGEST_SIZE:
            raise BadInput(f"{self.non_zeros} non-zeros need 64-bit indices; make m or k smaller, or sparsity larger")

    @property
    def row_non_zeros(self) -> int:
        """Non-zeros in a row on average, at least one."""
        return max(1, self.k - self.k * self.sparsity // 100)

    @property
    def non_zeros(self) -> int:
        """Non-zeros of A."""
        return self.m * self.row_non_zeros


class SparseGemmOp(Op):
    name = "sparse_gemm"
    sweep_field = "n"
    Problem = SparseGemm
    settings = {  # noqa: RUF012  (ClassVar in Op)
        "beta": ("1", "0"),
        "order": ("column", "row"),
        "result": ("wide", "narrow"),
    }
    outputs = ("c",)
    has_baselines = True
    weights = ("row_starts", "columns", "values")
    smoke = (
        SparseGemm(1, 1, 1, 0),
        SparseGemm(35, 1, 70, 90),
        SparseGemm(64, 3, 33, 95),
        SparseGemm(17, 40, 100, 90),
        SparseGemm(100, 8, 31, 0),
        SparseGemm(32, 8, 64, 50, "2_4"),
    )

    def operand_bytes(self, case: Case) -> int:
        """CSR of A, and B and C dense."""
        return sum(self._bytes(case))

    def operands(self, case: Case) -> Arrays:
        """The arrays named at the top of this file; indices are 32 bits wide, as libraries want them by default."""
        from deepbench.core import operands

        p, types = case.problem, case.precision
        turn = -1 if case.settings["order"] == "row" else 1
        arrays = {
            "row_starts": operands.empty((p.m + 1,), "s32"),
            "columns": operands.empty((p.non_zeros,), "s32"),
            "values": operands.random((p.non_zeros,), types.weights, stream=0),
            "b": operands.random((p.n, p.k)[::turn], types.data, stream=1),
            "c": operands.empty((p.n, p.m)[::turn], self.result_type(case)),
        }
        self._place(p, arrays["row_starts"], arrays["columns"])
        self.reset(case, arrays)
        return arrays

    def _place(self, p: SparseGemm, row_starts: Array, columns: Array) -> None:
        """Distinct columns in ascending order for every row.

        A row is as long as independent random zeros would make it; what one has more, the next has less, so that
        the sum is exact.
        """
        import numpy as np

        from deepbench.core.operands import generator

        choices = generator(stream=5)
        if p.structure == "2_4":
            row_starts[:] = np.arange(p.m + 1) * (p.k // 2)
            columns[:] = _two_of_four(choices, p.m * p.k // 4) + np.tile(np.arange(0, p.k, 4), p.m).repeat(2)
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
            turn, order = divmod(row, len(orders))
            # Another part of the same random order is another random choice.
            chosen = np.take(orders[order], range(turn, turn + end - start), mode="wrap")
            chosen.sort()
            columns[start:end] = chosen

    def reset(self, case: Case, arrays: Arrays) -> None:
        """C as a product finds it: something to add to (beta = 1), or poison (beta = 0)."""
        self._initial_c(case).fill(self._by_column(case, arrays["c"]))

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """C in full, shape (n, m)."""
        import numpy as np

        p = case.problem
        values = arrays["values"].astype(np.float64)
        c = np.empty((p.n, p.m))
        for target, column in zip(c, self._by_column(case, arrays["b"]), strict=True):
            target[...] = _row_sums(arrays, values * column.astype(np.float64)[arrays["columns"]])
        return {"c": self._by_column(case, c + self._initial_c(case).full())}

    def _by_column(self, case: Case, array: Array) -> Array:
        """A view of B or C as (n, …), however it is stored; and back."""
        return array.T if case.settings["order"] == "row" else array

    def compare(self, case: Case, arrays: Arrays) -> Iterator[Comparison]:
        """Every element of a small product; of a large one a sample, and each element through a projection."""
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
        start, stored = self._initial_c(case), self.result_type(case)
        if p.non_zeros * p.n <= FULL_CHECK_MULTIPLY_ADDS:
            want = self._by_column(case, self.reference(case, arrays)["c"])
            a_norm = np.sqrt(_row_sums(arrays, values**2))
            b_norm = np.linalg.norm(b.astype(np.float64), axis=1)
            tolerance = unit * (np.outer(b_norm, a_norm) + 1) + storage_error(stored, want)
            yield Comparison("every element", c.astype(np.float64), want, tolerance, c.size, c.size)
            return
        choices = generator(stream=2)
        count = sampled_elements(p.row_non_zeros)
        i = np.r_[0, p.m - 1, 0, p.m - 1, choices.integers(0, p.m, count)]
        j = np.r_[0, 0, p.n - 1, p.n - 1, choices.integers(0, p.n, count)]
        want, tolerance = np.empty((2, i.size))
        for e, (row, column) in enumerate(zip(i, j, strict=True)):
            held = slice(arrays["row_starts"][row], arrays["row_starts"][row + 1])
            met = b[column, columns[held]].astype(np.float64)
            want[e] = values[held] @ met
            tolerance[e] = unit * (np.linalg.norm(values[held]) * np.linalg.norm(met) + 1)
        want += start.elements(i, j)
        tolerance += storage_error(stored, want)
        got = c[j, i].astype(np.float64)
        yield Comparison(f"{i.size} elements", got, want, tolerance, min(i.size, c.size), c.size)

        # C·x against A·(B·x) + C₀·x for random signs x, as in `gemm`.
        signs = choices.integers(0, 1, p.n, endpoint=True) * 2.0 - 1.0
        inner, b_squares = project(signs, b)
        want = _row_sums(arrays, values * inner[columns])
        want += start.projection(signs)
        got, squares = project(signs, c)
        spread = np.sqrt(_row_sums(arrays, values**2 * b_squares[columns]) * p.row_non_zeros + p.n)
        tolerance = PROJECTION_SAFETY * (unit * spread + storage_error(stored, np.sqrt(squares)))
        yield Comparison("projection of every element", got, want, tolerance, c.size, c.size)

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """A single column is stored in one way, and only results of 16-bit floats are stored in two."""
        order = ("order",) if problem.n == 1 else ()
        return order if precision.name in SIXTEEN_BITS else (*order, "result")

    def result_type(self, case: Case) -> str:
        """`result=wide`: as sums are kept. `narrow`: 16-bit floats are stored in 16 bits."""
        narrow = case.settings["result"] == "narrow" and case.precision.name in SIXTEEN_BITS
        return case.precision.data if narrow else case.precision.result

    def is_idempotent(self, case: Case) -> bool:
        """With beta = 1 every call adds."""
        return case.settings["beta"] == "0"

    def flop(self, case: Case) -> int:
        """2 · non-zeros · n: zeros are not multiplied."""
        return int(2 * case.problem.non_zeros * case.problem.n)

    def other_flop(self, case: Case) -> dict[str, int]:
        """`dense`: of the same product with the zeros. `original`: 2·m·n·k times the share of zeros, as published."""
        p = case.problem
        dense = 2 * p.m * p.n * p.k
        return {"dense": dense, "original": dense * p.sparsity // 100}

    def traffic_bytes(self, case: Case) -> int:
        """The CSR arrays and B are read once; C is written once and, with beta = 1, read once too."""
        a, b, c = self._bytes(case)
        return a + b + c * (2 if case.settings["beta"] == "1" else 1)

    def baselines(self, case: Case) -> tuple[str, ...]:
        """The dense product of the same shape; packed too, since libraries look at a sparse matrix ahead as well."""
        p = case.problem
        settings = f"beta={case.settings['beta']} result={case.settings['result']}"
        shape = f"gemm m={p.m} n={p.n} k={p.k} forward {settings}"
        return tuple(f"{shape} weights={way}" for way in ("plain", "packed"))

    def expected_s(self, case: Case, flop_per_s: float, bytes_per_s: float) -> float:
        """Sparse kernels reach some tenth of what dense ones do."""
        return max(10 * self.flop(case) / flop_per_s, self.traffic_bytes(case) / bytes_per_s)

    def title(self, problem: Any) -> str:
        """`7680 × 4 × 2560, 95 % zeros`, `4096 × 4096 × 4096, 2:4`."""
        zeros = "2:4" if problem.structure == "2_4" else f"{problem.sparsity} % zeros"
        return f"{problem.m} × {problem.n} × {problem.k}, {zeros}"

    def facts(self, case: Case) -> dict[str, Any]:
        """Bytes of A as CSR and dense, and how many times smaller the first is."""
        p = case.problem
        stored, dense = self._bytes(case)[0], p.m * p.k * BITS[case.precision.weights] // 8
        return {"stored_bytes": stored, "dense_bytes": dense, "compression": round(dense / stored, 4)}

    def _bytes(self, case: Case) -> tuple[int, int, int]:
        p, types = case.problem, case.precision
        return (
            p.non_zeros * (4 + BITS[types.weights] // 8) + 4 * (p.m + 1),
            p.k * p.n * BITS[types.data] // 8,
            p.m * p.n * BITS[self.result_type(case)] // 8,
        )

    def _initial_c(self, case: Case) -> InitialC:
        from deepbench.core.tolerance import InitialC

        return InitialC.make(case.problem.m, case.problem.n, case.settings["beta"])


def _row_sums(arrays: Arrays, products: Array) -> Array:
    """The sum over each row of what stands at its non-zeros; no row is empty."""
    import numpy as np

    sums: Array = np.add.reduceat(products, arrays["row_starts"][:-1])
    return sums


def _two_of_four(choices: np.random.Generator, groups: int) -> Array:
    """For each group of four which two are kept, in ascending order, one group after the other."""
    import numpy as np

    pairs = np.array(list(itertools.combinations(range(4), 2)), np.int32)
    return pairs[choices.integers(0, len(pairs), groups)].ravel()


OP = SparseGemmOp()
