"""Collective operations: what they share. One process per rank; each rank can compute the data of every other rank.

The data of a rank repeats with the period of one tile (`operands.TILE`), so every rank knows what it must receive
without having seen the others' data. Integer data makes sums exact in any order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from deepbench.core.errors import BadInput
from deepbench.core.op import AnswerComparison, Op
from deepbench.core.precision import BITS
from deepbench.core.problem import BaseProblem, size

if TYPE_CHECKING:
    from deepbench.core.case import Case
    from deepbench.core.op import Array, Arrays
    from deepbench.core.precision import Precision

    Tiles = Callable[[int], Array]

# Rank r draws its data from random stream FIRST_STREAM + r.
FIRST_STREAM = 1000

# Integer data lies between -LARGEST_INTEGER and LARGEST_INTEGER, or closer if a sum over all ranks would be rounded.
LARGEST_INTEGER = 8

# Unit roundoff of a sum in each type; libraries round after every addition.
ROUNDOFF = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
FLOATS = tuple(ROUNDOFF)

# Algorithms of all libraries; each library has some of them.
ALGORITHMS = (
    *("default", "ring", "segmented_ring", "recursive_doubling", "recursive_exchange", "recursive_multiplying"),
    *("rabenseifner", "reduce_broadcast", "linear", "tree", "direct", "2d", "nvls", "collnet"),
)


@dataclass(frozen=True)
class Collective(BaseProblem):
    """`n`: elements in the larger of a rank's send and receive buffers; `ranks`: number of ranks."""

    n: int = size()
    ranks: int = size(least=2, most=65536)


@dataclass(frozen=True)
class Parts(Collective):
    """A collective whose larger buffer is divided into equal parts, one per rank."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n % self.ranks:
            raise BadInput(f"n must be a multiple of ranks, found n={self.n} and ranks={self.ranks}")


class RankGroup(Protocol):
    """All ranks of a case, seen from one of them. Implemented in `measure/group/link.py`."""

    rank: int
    ranks: int
    host: str
    hosts: list[str]
    """Host of every rank."""
    address: str
    """Network address under which other ranks reach this one."""

    @property
    def local_rank(self) -> int:
        """Index of this rank among the ranks on its host."""

    @property
    def local_ranks(self) -> int:
        """Number of ranks on this host."""

    def gather(self, value: Any) -> list[Any]:
        """Collect one value from every rank, in rank order. Waits for all ranks."""


class CollectiveOp(Op):
    """An operation in which several ranks take part, one process each."""

    Problem = Collective
    is_group = True
    sweep_field = "n"
    outputs = ("receive",)
    settings = {  # noqa: RUF012  (ClassVar in Op)
        "algorithm": ALGORITHMS,
        "mpi_threads": ("multiple", "single"),
    }
    variants: ClassVar[tuple[str, ...]] = ("algorithm", "mpi_threads")
    equal_on_all_ranks = False
    """Whether all ranks receive the same data."""
    is_periodic = False
    """Whether the received data repeats with the tile."""
    reduces = False
    """Whether the ranks' data is added, so that results are rounded."""

    # ---- what each operation defines

    def sizes(self, problem: Any) -> tuple[int, int]:
        """Number of elements that a rank sends and number that it receives."""
        return problem.n, problem.n

    @abstractmethod
    def bus_factor(self, problem: Any) -> float:
        """Bus bandwidth divided by algorithm bandwidth, as defined by nccl-tests (doc/PERFORMANCE.md)."""

    def expected(self, problem: Any, rank: int, tiles: Tiles, first: int, count: int) -> Array:
        """Elements `first` to `first + count` of what `rank` must receive, in float64.

        Element i of rank r's data is `tiles(r)[i % len(tiles(r))]`. If the operation reduces, `tiles(0)` is the sum of
        all ranks' tiles. By default every rank receives this sum, or the data of rank 0.
        """
        return periodic_slice(tiles(0), first, count)

    # ---- what all collectives share

    def reference(self, case: Case, arrays: Arrays) -> Arrays:
        """Not used: each rank computes what it must receive (`expected`)."""
        raise TypeError(f"{self.name} has no reference for all ranks together; use expected()")

    def compare(self, case: Case, arrays: Arrays) -> Iterator[AnswerComparison]:
        """Not used: each rank compares with `compare_rank`."""
        raise TypeError(f"{self.name} is compared rank by rank; use compare_rank()")

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floating-point types that are sent as they are."""
        return precision.name in ROUNDOFF

    def result_type(self, case: Case) -> str:
        """The type that is sent."""
        return case.precision.data

    def operand_bytes(self, case: Case) -> int:
        """Bytes of both buffers of one rank."""
        return sum(self.sizes(case.problem)) * BITS[case.precision.data] // 8

    def flop(self, case: Case) -> int:
        """(ranks - 1)·n additions over all ranks if the operation reduces, else 0."""
        return int((case.problem.ranks - 1) * case.problem.n) if self.reduces else 0

    def workspace_bytes(self, case: Case) -> int:
        """Bytes that the check of one rank needs: some tiles in float64."""
        from deepbench.core.operands import TILE

        return int(8 * 8 * min(case.problem.n, TILE))

    def traffic_bytes(self, case: Case, capacity: int | None = None) -> int:
        """Bytes of the larger buffer: algorithm bandwidth is this divided by the time."""
        return int(case.problem.n * BITS[case.precision.data] // 8)

    def facts(self, case: Case) -> dict[str, Any]:
        """`bus_factor`, and `original_bytes`: ranks × bytes, from which the original computes its bandwidth."""
        p = case.problem
        return {"bus_factor": self.bus_factor(p), "original_bytes": p.ranks * self.traffic_bytes(case)}

    def expected_s(self, case: Case, flop_per_s: float, bytes_per_s: float) -> float:
        """Every byte crosses the bus about twice, and a call takes some 20 µs per rank."""
        return float(2 * self.traffic_bytes(case) / bytes_per_s + 20e-6 * case.problem.ranks)

    def operands(self, case: Case) -> Arrays:
        """Buffers of rank 0; see `rank_operands`."""
        return self.rank_operands(case, 0, integers=False)

    def rank_operands(self, case: Case, rank: int, integers: bool) -> Arrays:
        """`send`, filled, and `receive`, uninitialized until `reset_rank`; one dimension each."""
        from deepbench.core import operands

        kind = case.precision.data
        sent, received = self.sizes(case.problem)
        arrays = {"send": operands.empty((sent,), kind), "receive": operands.empty((received,), kind)}
        self.fill_send(case, rank, arrays, integers)
        return arrays

    def fill_send(self, case: Case, rank: int, arrays: Arrays, integers: bool) -> None:
        """Fill `send` with this rank's data."""
        tile, send = self.tile(case, rank, integers), arrays["send"]
        for start in range(0, send.size, tile.size):
            part = send[start : start + tile.size]
            part[...] = tile[: part.size]

    def integer_bound(self, case: Case) -> int:
        """Largest integer that ranks may send so that all sums are exact; 0 if there is none."""
        most = round(1 / ROUNDOFF[case.precision.data])
        return int(min(LARGEST_INTEGER, most // case.problem.ranks)) if self.reduces else LARGEST_INTEGER

    def tile(self, case: Case, rank: int, integers: bool) -> Array:
        """One period of a rank's data, in the type that is sent."""
        import numpy as np

        from deepbench.core import operands
        from deepbench.core.precision import dtype

        count, kind = min(self.sizes(case.problem)[0], operands.TILE), case.precision.data
        if not integers:
            return operands.draw(count, kind, FIRST_STREAM + rank)
        bound, random = self.integer_bound(case), operands.generator(FIRST_STREAM + rank)
        return random.integers(-bound, bound, count, dtype=np.int8, endpoint=True).astype(dtype(kind))

    def reset(self, case: Case, arrays: Arrays) -> None:
        """Reset rank 0; see `reset_rank`."""
        self.reset_rank(case, 0, arrays)

    def reset_rank(self, case: Case, rank: int, arrays: Arrays) -> None:
        """Poison `receive`, or copy `send` into it if the operation works in place."""
        from deepbench.core import operands

        if case.settings.get("place") == "in":
            arrays["receive"][...] = arrays["send"]
        else:
            operands.poison(arrays["receive"])

    def compare_rank(self, case: Case, rank: int, arrays: Arrays, integers: bool) -> Iterator[AnswerComparison]:
        """Compare every element that this rank received, one tile at a time."""
        import numpy as np

        from deepbench.core.operands import TILE

        p, received = case.problem, arrays["receive"]

        @lru_cache(maxsize=2)
        def tile(r: int) -> Array:
            return self.tile(case, r, integers).astype(np.float64)

        total = magnitude = np.zeros(1)
        for r in range(p.ranks if self.reduces else 0):
            total, magnitude = total + tile(r), magnitude + np.abs(tile(r))
        tiles: Tiles = (lambda _: total) if self.reduces else tile
        unit = p.ranks * ROUNDOFF[case.precision.data]
        how = "every element of integer data" if integers else "every element"
        want = tolerance = np.zeros(0)
        for first in range(0, received.size, TILE):
            got = received[first : first + TILE].astype(np.float64)
            if not self.is_periodic or got.size != want.size:
                want = self.expected(p, rank, tiles, first, got.size)
                tolerance = np.zeros(got.size)
                if self.reduces and not integers:
                    tolerance = unit * self.expected(p, rank, lambda _: magnitude, first, got.size)
            yield AnswerComparison(how, got, want, tolerance, received.size, received.size)

    def title(self, problem: Any) -> str:
        """`all-reduce of 4194304, 4 ranks`."""
        return f"{self.name.replace('_', '-')} of {problem.n}, {problem.ranks} ranks"


# Size of one matrix product that overlaps an all-reduce, and bytes that one core transfers in about its time.
PRODUCT_SIZE, BYTES_PER_PRODUCT = 256, 2**21


def products(transfer_bytes: int, progress: Callable[[], object]) -> Callable[[], None]:
    """A function that multiplies f32 matrices for about as long as a transfer of so many bytes takes.

    It calls `progress` after every product: libraries without a thread of their own advance a message only when called.
    """
    from deepbench.core import operands

    n, repeats = PRODUCT_SIZE, max(1, transfer_bytes // BYTES_PER_PRODUCT)
    a, b = (operands.random((n, n), "f32", stream) for stream in (20, 21))
    c = operands.empty((n, n), "f32")

    def run() -> None:
        import numpy as np

        for _ in range(repeats):
            np.matmul(a, b, out=c)
            progress()

    return run


def concatenated_slice(tiles: Tiles, start: int, length: int, first: int, count: int) -> Array:
    """Elements `first` to `first + count` of a concatenation of `length` elements of every rank, from `start` on."""
    import numpy as np

    slices = []
    while count:
        piece, inside = divmod(first, length)
        taken = min(count, length - inside)
        slices.append(periodic_slice(tiles(piece), start + inside, taken))
        first, count = first + taken, count - taken
    return np.concatenate(slices)


def periodic_slice(tile: Array, first: int, count: int) -> Array:
    """Elements `first` to `first + count` of a sequence that repeats `tile`."""
    import numpy as np

    start = first % tile.size
    if start + count <= tile.size:
        return tile[start : start + count]
    return np.resize(np.roll(tile, -start), count)
