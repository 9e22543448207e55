"""Matrix products: what dense and sparse, single and batched ones share, and the check of dense products."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from deepbench.core.op import FLOATS_4, AnswerComparison, Op
from deepbench.core.parts import TensorsOp, finite
from deepbench.core.precision import BITS, SIXTEEN_BITS
from deepbench.core.traffic import product_bytes

if TYPE_CHECKING:
    import numpy as np

    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays
    from deepbench.core.precision import Precision
    from deepbench.core.tolerance import InitialC, Matrix

# Rows or columns of a matrix.
Index: TypeAlias = "slice | Array"

# Up to this many multiply-adds, and elements of one operand, the full product is computed in float64 (milliseconds).
# Beyond, individual elements are sampled, and a random projection covers all elements.
FULL_CHECK_MULTIPLY_ADDS = 2**27
FULL_CHECK_ELEMENTS = 2**20

# Where a projection is impossible: so many rows and columns of a product are recomputed, in strips of so many elements.
CROSSED, STRIP_ELEMENTS = 4, 2**20


class ProductOp(Op):
    """An operation whose output is a dense m × n matrix C, with the setting `result`."""

    sweep_field = "n"
    outputs: ClassVar[tuple[str, ...]] = ("c",)

    def unused_settings(self, problem: Any, direction: str, precision: Precision) -> tuple[str, ...]:
        """Only results of 16-bit floats can be stored in two types."""
        return () if precision.name in SIXTEEN_BITS else ("result",)

    def result_type(self, case: Case) -> str:
        """`result=wide`: the type of the accumulation; `narrow`: 16 bits for 16-bit floats."""
        narrow = case.settings["result"] == "narrow" and case.precision.name in SIXTEEN_BITS
        return case.precision.data if narrow else case.precision.result


class AddingProductOp(ProductOp):
    """C = A·B + C, with the settings `beta` and `result`."""

    @abstractmethod
    def matrix_bytes(self, case: Case) -> tuple[int, int, int]:
        """Bytes of A, B and C as stored."""

    def operand_bytes(self, case: Case) -> int:
        """Bytes of A, B and C as stored."""
        return sum(self.matrix_bytes(case))

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """A and B are read once; C is written once and, with beta = 1, read once too."""
        a, b, c = self.matrix_bytes(case)
        return 0 if self.stays_in(case, capacity) else a + b + c * (2 if case.settings["beta"] == "1" else 1)

    def is_idempotent(self, case: Case) -> bool:
        """With beta = 1 every call adds to C."""
        return case.settings["beta"] == "0"

    def initial_c(self, case: Case) -> InitialC:
        """The contents of C before a product."""
        from deepbench.core.tolerance import InitialC

        return InitialC.make(case.problem.m, case.problem.n, case.settings["beta"])

    def calls_in(self, case: Case, arrays: Arrays) -> float | None:
        """With beta = 1 and sums in f32: C - C₀ over A·B, both times random signs, by least squares."""
        if self.is_idempotent(case) or self.result_type(case) != "f32":
            return None  # 16 bits stop growing, integers overflow
        from deepbench.core.operands import generator

        signs = generator(stream=2).integers(0, 1, case.problem.n, endpoint=True) * 2.0 - 1.0
        got, one_call = self.projections(case, arrays, signs)
        difference = got - self.initial_c(case).projection(signs)
        return float(difference @ one_call / (one_call @ one_call))

    @abstractmethod
    def projections(self, case: Case, arrays: Arrays, signs: Array) -> tuple[Array, Array]:
        """C·signs and A·B·signs in float64, each with m elements; C as it is stored now."""

    def free_inputs(self, case: Case) -> tuple[str, ...]:
        """B: libraries may convert A ahead."""
        return ("b",)


@dataclass(frozen=True)
class Product:
    """One product and its stored result, as views; column-major matrices are row-major arrays of the other shape."""

    left: Matrix
    """Aᵀ, shape (k, m)."""
    right: Matrix
    """Bᵀ, shape (n, k)."""
    c: Array
    """Shape (n, m)."""
    initial: InitialC | None = None
    """What is added to A·B."""
    then: Callable[[Array, Array], tuple[Array, Array]] | None = None
    """Applied to each element of A·B + C₀ and its tolerance."""

    @property
    def multiply_adds(self) -> int:
        """m·n·k."""
        return int(self.c.size * self.right.shape[1])

    def wanted(self, j: Index, i: Index, unit: float) -> tuple[Array, Array]:
        """Rows `j` and columns `i` of C in float64, and their tolerance without the rounding of storing them."""
        import numpy as np

        from deepbench.core.precision import type_name

        a, b = self.left[:, i].astype(np.float64), self.right[j, :].astype(np.float64)
        want, norms = b @ a, np.outer(np.linalg.norm(b, axis=1), np.linalg.norm(a, axis=0))
        stored: Array | float = 0.0
        if self.initial is not None:
            stored = self.initial.rounding(type_name(self.c.dtype), want)
            rows, columns = np.arange(self.c.shape[1])[i], np.arange(self.c.shape[0])[j]
            initial = self.initial.elements(rows[None, :], columns[:, None])
            want += initial
            norms = norms_with_initial(norms, initial, a.shape[0])
        tolerance = unit * norms + stored
        return (want, tolerance) if self.then is None else self.then(want, tolerance)


def norms_with_initial(norms: Array, initial: Array, terms: Array | int) -> Array:
    """By how many roundoffs, in the unit of `norms`, elements of A·B + C₀ may differ that sum so many `terms` each.

    A kernel that adds the products to C one by one rounds C each time. With random signs, the standard deviation is
    about 0.6·√terms of its roundoffs. As part of the tolerance of 16, this allows for 7 of them.
    """
    import numpy as np

    bounds: Array = np.maximum(norms + 1, np.abs(initial) * (np.sqrt(terms) / 4))
    return bounds


class ProductsOp(ProductOp, TensorsOp):
    """One or many dense products that are not added to anything, with the setting `result`."""

    settings = {"result": ("narrow", "wide")}  # noqa: RUF012  (ClassVar in Op)

    @abstractmethod
    def products(self, case: Case, arrays: Arrays) -> list[Product]:
        """All products with at least one element, in the order in which the output stores their results.

        A sum of no products is zero.
        """

    def allows(self, direction: str, precision: Precision) -> bool:
        """All precisions but 4-bit floats."""
        return precision.name not in FLOATS_4

    def roundoff(self, case: Case) -> float:
        """Roundoff of a sum of k products, in units of |row of A| · |column of B|."""
        from deepbench.core.tolerance import sum_roundoff

        return sum_roundoff(case.precision, case.problem.k)

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """Every product in full."""
        import numpy as np

        every = slice(None)
        want = [product.wanted(every, every, 0.0)[0].reshape(-1) for product in self.products(case, arrays)]
        output = next(name for name in self.outputs if name in arrays)
        return {output: np.concatenate(want).reshape(arrays[output].shape)}

    def compare(self, case: Case, arrays: Arrays) -> Iterator[AnswerComparison]:
        """Every element of small products; a sample and a projection of large ones."""
        yield from compare_products(self.products(case, arrays), self.roundoff(case), self.result_type(case))

    def read_and_written_bytes(self, case: Case) -> int:
        """Bytes of the arrays, each once, as far as a call needs them."""
        return self.operand_bytes(case)

    def narrowest_bytes(self, case: Case) -> float:
        """Bytes of an element of the narrowest matrix."""
        types = case.precision
        return min(BITS[kind] for kind in (types.weights, types.data, self.result_type(case))) / 8

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """Every array once, or as much as blocks that fit into the level need; see `core/traffic.py`."""
        once = self.read_and_written_bytes(case)
        if capacity is None:
            return once
        if once <= capacity:
            return 0
        return max(once, product_bytes(self.flop(case) // 2, capacity, self.narrowest_bytes(case)))


def products_of(case: Case, arrays: Arrays) -> list[Product]:
    """The products of a case, for libraries that make a call for each."""
    op = case.operation
    assert isinstance(op, ProductsOp), "only libraries that serve products ask"
    return op.products(case, arrays)


def compare_products(products: Sequence[Product], roundoff: float, stored: str) -> Iterator[AnswerComparison]:
    """Every element of small products. Of large ones a sample, and a projection that covers every element.

    A projection is impossible if a function is applied to the elements: then rows and columns are compared in full.
    `roundoff` is that of a sum, `stored` the type of C.
    """
    from deepbench.core.operands import generator
    from deepbench.core.tolerance import TOLERANCE_UNITS

    unit, every = TOLERANCE_UNITS * roundoff, slice(None)
    if are_checked_in_full(products):
        yield _blocks("every element", [(p, every, every) for p in products], products, unit, stored)
        return
    choices = generator(stream=2)
    blocks = _sample(products, choices)
    yield _blocks(f"{len(blocks)} elements", blocks, products, unit, stored)
    if any(p.then is not None for p in products):
        yield _crossed(products, choices, unit, stored)
        yield from (finite(p.c, "") for p in products)
    else:
        yield _projected(products, choices, unit, stored)


def are_checked_in_full(products: Sequence[Product]) -> bool:
    """Whether every element is compared."""
    largest = max(max(_size(p.left), _size(p.right), p.c.size) for p in products)
    return sum(p.multiply_adds for p in products) <= FULL_CHECK_MULTIPLY_ADDS and largest <= FULL_CHECK_ELEMENTS


def checked_blocks(products: Sequence[Product]) -> list[tuple[Product, Index, Index]]:
    """The rows and columns that `compare_products` compares one by one."""
    from deepbench.core.operands import generator

    every = slice(None)
    if are_checked_in_full(products):
        return [(product, every, every) for product in products]
    return _sample(products, generator(stream=2))


def _size(matrix: Matrix) -> int:
    return matrix.shape[0] * matrix.shape[1]


def _blocks(
    how: str, blocks: Sequence[tuple[Product, Index, Index]], products: Sequence[Product], unit: float, stored: str
) -> AnswerComparison:
    """Some rows and columns of some products, each recomputed in float64."""
    import numpy as np

    from deepbench.core.tolerance import storage_error

    wanted = [product.wanted(j, i, unit) for product, j, i in blocks]
    got = np.concatenate([product.c[j, i].astype(np.float64).reshape(-1) for product, j, i in blocks])
    want = np.concatenate([values.reshape(-1) for values, _ in wanted])
    tolerance = np.concatenate([bounds.reshape(-1) for _, bounds in wanted]) + storage_error(stored, want)
    total = sum(p.c.size for p in products)
    return AnswerComparison(how, got, want, tolerance, min(got.size, total), total)


def _sample(products: Sequence[Product], choices: np.random.Generator) -> list[tuple[Product, Index, Index]]:
    """The corners of the first and the last product, and random elements of all."""
    import numpy as np

    from deepbench.core.tolerance import sampled_elements

    chosen = [
        (product, j, i)
        for product in dict.fromkeys((0, len(products) - 1))
        for j in (0, products[product].c.shape[0] - 1)
        for i in (0, products[product].c.shape[1] - 1)
    ]
    ends = np.cumsum([p.c.size for p in products])
    for element in choices.integers(0, ends[-1], sampled_elements(max(1, *(p.right.shape[1] for p in products)))):
        product = int(np.searchsorted(ends, element, side="right"))
        c = products[product].c
        chosen.append((product, *divmod(int(element - ends[product]) + c.size, c.shape[1])))
    return [(products[product], slice(j, j + 1), slice(i, i + 1)) for product, j, i in chosen]


def _crossed(products: Sequence[Product], choices: np.random.Generator, unit: float, stored: str) -> AnswerComparison:
    """The first, the last and some random rows and columns of each product."""
    import numpy as np

    blocks: list[tuple[Product, Index, Index]] = []
    for p in products:
        n, m = p.c.shape
        rows, columns = (np.r_[0, size - 1, choices.integers(0, size, CROSSED)] for size in (n, m))
        step = max(1, STRIP_ELEMENTS // p.right.shape[1])
        blocks += [(p, rows, slice(i, i + step)) for i in range(0, m, step)]
        blocks += [(p, slice(j, j + step), columns) for j in range(0, n, step)]
    return _blocks("rows and columns", blocks, products, unit, stored)


def _projected(products: Sequence[Product], choices: np.random.Generator, unit: float, stored: str) -> AnswerComparison:
    """C·x against A·(B·x) + C₀·x for random signs x: covers every element at the cost of reading C once.

    Freivalds' algorithm (1977), with a tolerance for rounded sums.
    """
    import numpy as np

    from deepbench.core.tolerance import PROJECTION_SAFETY, project, storage_error

    found: list[tuple[Array, Array, Array]] = []
    for p in products:
        n = p.c.shape[0]
        signs = choices.integers(0, 1, n, endpoint=True) * 2.0 - 1.0
        inner, b_squares = project(signs, p.right)
        want, a_squares = project(inner, p.left)
        norms, added, rounding = a_squares * b_squares.sum(), 0, np.zeros(1)
        if p.initial is not None:
            want += p.initial.projection(signs)
            added = n
            # For operands like ours, the square of an element of A·B is |a|²·|b|² over the number of products.
            rounding = rounding + p.initial.rounding(stored, np.sqrt(norms / p.right.shape[1]))
        got, squares = project(signs, p.c)
        tolerance = PROJECTION_SAFETY * (
            unit * np.sqrt(norms + added) + storage_error(stored, np.sqrt(squares)) + rounding
        )
        found.append((got, want, tolerance))
    got, want, tolerance = map(np.concatenate, zip(*found, strict=True))
    total = sum(p.c.size for p in products)
    return AnswerComparison("projection of every element", got, want, tolerance, total, total)
