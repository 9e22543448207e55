"""GEMM: C = A·B + C on column-major matrices, as in the original DeepBench.

A is m × k, B is k × n, C is m × n. With `a_t=1` A is stored transposed (as k × m), with `b_t=1` B is (as n × k).
With 8-bit floats `result=narrow` stores bf16, and `accumulate=fast` leaves sums in the 14 bits of the matrix units; by
default they are added in f32 now and then.

alpha = 1, and beta = 1 unless the setting `beta=0` is chosen; with beta = 1, C is read, added to and written. A
column-major matrix is a row-major NumPy array of the transposed shape: array `c` has shape (n, m), `a` (k, m) or, with
`a_t=1`, (m, k), and `b` (n, k) or, with `b_t=1`, (k, n).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.case import RUN_SETTINGS, Case, check_settings
from deepbench.core.lowering import MatrixProduct
from deepbench.core.op import FLOATS_4, FLOATS_8
from deepbench.core.precision import BITS, SIXTEEN_BITS
from deepbench.core.problem import BaseProblem, size
from deepbench.core.product import AddingProductOp, Product, compare_products
from deepbench.core.traffic import product_bytes

if TYPE_CHECKING:
    from deepbench.core.op import AnswerComparison, Array, Arrays
    from deepbench.core.precision import Precision


@dataclass(frozen=True)
class Gemm(BaseProblem):
    """Sizes of one product; `a_t` and `b_t` are 1 if the operand is stored transposed."""

    m: int = size()
    n: int = size()
    k: int = size()
    a_t: int = size(default=0, least=0, most=1)
    b_t: int = size(default=0, least=0, most=1)


class GemmOp(AddingProductOp):
    name = "gemm"
    Problem = Gemm
    settings = {  # noqa: RUF012  (ClassVar in Op)
        "weights": ("plain", "packed"),
        "beta": ("1", "0"),
        "result": ("wide", "narrow"),
        "accumulate": ("full", "fast"),
    }
    rare_settings = ("accumulate",)
    weights = ("a",)
    smoke = (
        Gemm(1, 1, 1),
        Gemm(35, 1, 7),
        Gemm(1, 33, 64),
        Gemm(16, 17, 31, a_t=1),
        Gemm(13, 64, 5, b_t=1),
        Gemm(48, 32, 129, a_t=1, b_t=1),
        Gemm(64, 48, 32, a_t=1),  # the order and multiples that 8-bit kernels of GPUs need
    )
    probes = (Gemm(1536, 1536, 1536), Gemm(512, 512, 1024, b_t=1))
    # The order that 8-bit kernels of GPUs need. On an H200 others are as fast in bf16, and 4096³ is slower.
    device_probes = (Gemm(8192, 8192, 8192, a_t=1),)

    def allows(self, direction: str, precision: Precision) -> bool:
        """All precisions but 4-bit floats."""
        return precision.name not in FLOATS_4

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """8-bit floats have results of two types and two kinds of sums."""
        is_float8 = precision.name in FLOATS_8
        return () if is_float8 else (*super().unused_settings(problem, direction, precision), "accumulate")

    def result_type(self, case: Case) -> str:
        """As in other products, and bf16 for narrow results of 8-bit floats."""
        is_narrow = case.precision.name in FLOATS_8 and case.settings["result"] == "narrow"
        return "bf16" if is_narrow else super().result_type(case)

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
        return {"c": self._product(case, arrays).wanted(slice(None), slice(None), 0.0)[0]}

    def compare(self, case: Case, arrays: Arrays) -> Iterator[AnswerComparison]:
        """Every element of a small product; a sample and a projection of a large one."""
        from deepbench.core.tolerance import sum_roundoff

        product = self._product(case, arrays)
        yield from compare_products([product], sum_roundoff(case.precision, case.problem.k), self.result_type(case))

    def projections(self, case: Case, arrays: Arrays, signs: Array) -> tuple[Array, Array]:
        """See `AddingProductOp.projections`."""
        from deepbench.core.tolerance import project

        product = self._product(case, arrays)
        inner, _ = project(signs, product.right)
        return project(signs, product.c)[0], project(inner, product.left)[0]

    def free_inputs(self, case: Case) -> tuple[str, ...]:
        """A and B; B alone where A was packed ahead."""
        return ("a", "b") if case.settings["weights"] == "plain" else ("b",)

    def flop(self, case: Case) -> int:
        """2·m·n·k: one multiplication and one addition per product, as the original counts."""
        p = case.problem
        return int(2 * p.m * p.n * p.k)

    def matrix_products(self, case: Case) -> tuple[MatrixProduct, ...]:
        """The product itself."""
        p = case.problem
        return (MatrixProduct("", p.m, p.n, p.k),)

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

    def _product(self, case: Case, arrays: Arrays) -> Product:
        p, a, b = case.problem, arrays["a"], arrays["b"]
        return Product(a.T if p.a_t else a, b.T if p.b_t else b, arrays["c"], self.initial_c(case))


def component(case: Case, m: int, n: int, k: int, a_t: int = 0, b_t: int = 0) -> Case:
    """A product that is a part of another case's work: on the same library, in the same types, run the same way.

    It overwrites C, and stores 16-bit results in 16 bits. Weights that the case has packed ahead are packed ahead.
    """
    kept = {name: value for name, value in case.overrides if name in (*RUN_SETTINGS, "weights")}
    narrow = {"result": "narrow"} if case.precision.name in SIXTEEN_BITS else {}
    overrides = check_settings("gemm", {**kept, **narrow, "beta": "0"})
    problem = Gemm(m, n, k, a_t, b_t)
    return Case("gemm", problem, "forward", case.precision, case.backend, case.threads, overrides, case.named_device)


OP = GemmOp()
