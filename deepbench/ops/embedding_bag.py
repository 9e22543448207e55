"""Embedding bag: sums of rows of a table, chosen by a list of row numbers (PyTorch's `EmbeddingBag`, Caffe2's SLS).

    y[i] = sum of table[indices[j]] for j from offsets[i] to offsets[i] + bag - 1

With `bag=1` it is an embedding: rows are only copied. The row numbers are drawn uniformly from a fixed seed, but the
first is 0 and the last is rows - 1. The backward pass has the gradient `dy` of y and computes the gradient of the whole
table, as frameworks do unless they are asked for sparse gradients:

    dtable[r] = sum of dy[i] for each time that row r is in bag i

Rows that no bag has become zero. `table`, `y` and gradients have the type of the data; `indices` and `offsets` are s32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput
from deepbench.core.parts import Expected, PartsOp, Tensor, expected_distinct
from deepbench.core.precision import STORAGE_ROUNDOFF, Precision
from deepbench.core.problem import LARGEST_SIZE, BaseProblem, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays

# Roundoffs of a sum whose partial sums are rounded to 16 bits; with random signs, two would do, but small numbers are
# lost next to a large sum.
PARTIAL_SUMS = 8


@dataclass(frozen=True)
class EmbeddingBag(BaseProblem):
    """A table of `rows` of `dim` numbers, and `bags` of `bag` rows each."""

    rows: int = size()
    dim: int = size()
    bags: int = size()
    bag: int = size(default=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lookups > LARGEST_SIZE:
            raise BadInput(f"bags · bag must be at most {LARGEST_SIZE}, found {self.lookups}")

    @property
    def lookups(self) -> int:
        """Rows that are looked up, those in several bags counted as often."""
        return self.bags * self.bag


class EmbeddingBagOp(PartsOp):
    name = "embedding_bag"
    Problem = EmbeddingBag
    directions = ("forward", "backward")
    outputs = ("y", "dtable")
    weights = ("table",)
    sweep_field = "bags"
    smoke = (
        EmbeddingBag(1, 1, 1, 1),
        EmbeddingBag(10, 7, 5, 3),
        EmbeddingBag(1000, 64, 33, 20),
        EmbeddingBag(101, 128, 37, 1),
        EmbeddingBag(3, 16, 50, 9),
    )

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats that are summed in f32."""
        return precision.name in ("f32", "bf16", "f16")

    def result_type(self, case: Case) -> str:
        """Results have the type of the table."""
        return case.precision.data

    def tensors(self, case: Case) -> dict[str, Tensor]:
        """`table` (rows, dim), `indices` (bags · bag), `offsets` (bags), `y` (bags, dim), and the gradients."""
        p, kind = case.problem, case.precision.data
        table, y = Tensor((p.rows, p.dim), kind), Tensor((p.bags, p.dim), kind)
        places = {"indices": Tensor((p.lookups,), "s32"), "offsets": Tensor((p.bags,), "s32")}
        if case.direction == "forward":
            return {"table": table, **places, "y": y}
        return {"dy": y, **places, "dtable": table}

    def fill(self, case: Case, name: str, array: Array, stream: int) -> None:
        """Row numbers from a fixed seed."""
        import numpy as np

        from deepbench.core.operands import generator

        if name == "indices":
            array[...] = generator(stream).integers(0, case.problem.rows, array.size, dtype=np.int32)
            array[-1], array[0] = case.problem.rows - 1, 0
        elif name == "offsets":
            array[...] = np.arange(array.size, dtype=np.int32) * case.problem.bag
        else:
            super().fill(case, name, array, stream)

    def parts(self, case: Case) -> int:
        """Bags, or rows of the table."""
        return int(case.problem.bags if case.direction == "forward" else case.problem.rows)

    def expected(self, case: Case, arrays: Arrays, parts: Array) -> Iterator[Expected]:
        """Sums with the tolerance of a product with ones. Every partial sum may be stored in the type of the data."""
        import numpy as np

        from deepbench.core.tolerance import TOLERANCE_UNITS

        p = case.problem
        if case.direction == "forward":
            output, source = "y", arrays["table"]
            rows = arrays["indices"].reshape(p.bags, p.bag)[parts].reshape(-1)
            counts = np.full(parts.size, p.bag)
        else:
            output, source = "dtable", arrays["dy"]
            wanted = np.full(p.rows, -1, np.int32)
            wanted[parts] = np.arange(parts.size)
            part = wanted[arrays["indices"]]
            (places,) = np.nonzero(part >= 0)
            rows = (places[np.argsort(part[places], kind="stable")]) // p.bag
            counts = np.bincount(part[places], minlength=parts.size)
        want, squares = np.zeros((2, parts.size, p.dim))
        ends = np.cumsum(counts)
        for begin, part_slice in _strips(counts, ends, p.dim):
            values = source[rows[begin : ends[part_slice.stop - 1]]].astype(np.float64)
            some = counts[part_slice]
            filled = np.flatnonzero(some)
            if filled.size:
                starts = (np.cumsum(some) - some)[filled]
                want[part_slice][filled] = np.add.reduceat(values, starts, axis=0)
                squares[part_slice][filled] = np.add.reduceat(values**2, starts, axis=0)
        norms = np.sqrt(squares * counts[:, None])
        unit = TOLERANCE_UNITS * case.precision.roundoff
        if case.direction == "backward":
            unit += PARTIAL_SUMS * STORAGE_ROUNDOFF[case.precision.data]
        yield Expected(output, arrays[output][parts], want, unit * norms * (counts > 1)[:, None])

    def flop(self, case: Case) -> int:
        """Forward one addition for every further row of a bag, backward one for every row that is looked up."""
        p = case.problem
        additions = p.bags * (p.bag - 1) if case.direction == "forward" else p.lookups
        return int(additions * p.dim)

    def touched_bytes(self, case: Case) -> int:
        """All arrays but the rows of the table that no bag has."""
        p = case.problem
        rows = expected_distinct(p.lookups, p.rows)
        tensors = self.tensors(case)
        row_bytes = Tensor((p.dim,), case.precision.data).bytes
        return sum(t.bytes for name, t in tensors.items() if name != "table") + rows * row_bytes * ("table" in tensors)

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """Each row of the table that some bag has once; its gradient is written whole."""
        touched = self.touched_bytes(case)
        return 0 if capacity is not None and touched <= capacity else touched

    def gathers(self, case: Case) -> int:
        """Rows at positions that the row numbers decide."""
        return int(case.problem.lookups)

    def title(self, problem: Any) -> str:
        """`2048 × 20 of 1000000 × 128`: bags of rows of a table."""
        return f"{problem.bags} × {problem.bag} of {problem.rows} × {problem.dim}"


def _strips(counts: Array, ends: Array, dim: int) -> Iterator[tuple[int, slice]]:
    """Where the rows of some parts begin, and these parts: so many that their numbers fit the memory of a strip."""
    import numpy as np

    from deepbench.core.parts import STRIP

    part = begin = 0
    while part < counts.size:
        after = int(np.searchsorted(ends, begin + max(1, STRIP // dim), side="right"))
        after = max(after, part + 1)
        yield begin, slice(part, after)
        part, begin = after, int(ends[after - 1])


OP = EmbeddingBagOp()
