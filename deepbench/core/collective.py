"""What all-reduce and its kin share: one process a rank, data that each rank can compute of every other, bandwidths.

Each rank's data is random numbers repeated with the period of one tile (`arrays.TILE`, a prime), so that every rank
knows what it must find without having seen the others' data. With `whole` numbers sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from deepbench.core.errors import BadInput
from deepbench.core.op import Comparison, Op
from deepbench.core.precision import BITS
from deepbench.core.problem import BaseProblem, size

if TYPE_CHECKING:
    import numpy as np

    from deepbench.core.case import Case
    from deepbench.core.op import Arrays
    from deepbench.core.precision import Precision

    Array = np.ndarray[Any, Any]

# Streams of random numbers: rank r draws from this one plus r.
FIRST_STREAM = 1000

# Whole numbers from -WHOLE to WHOLE, and smaller where so many ranks are added that a sum would be rounded.
WHOLE = 8

# The unit roundoff of a sum in this type; libraries round after every addition.
ROUNDOFF = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}

# Names of algorithms over all libraries; each has some of them.
ALGORITHMS = (
    "default",
    "ring",
    "segmented_ring",
    "recursive_doubling",
    "recursive_exchange",
    "recursive_multiplying",
    "rabenseifner",
    "reduce_broadcast",
    "linear",
    "tree",
    "direct",
    "2d",
    "nvls",
    "collnet",
)


@dataclass(frozen=True)
class Collective(BaseProblem):
    """`n` elements in the larger of a rank's two buffers, over so many `ranks`."""

    n: int = size()
    ranks: int = size(least=2, most=65536)


@dataclass(frozen=True)
class Parts(Collective):
    """The same, where each rank has or gets an equal part."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n % self.ranks:
            raise BadInput(f"n must be a multiple of ranks, found n={self.n} and ranks={self.ranks}")


class Group(Protocol):
    """All ranks of a case, as one of them sees them. `measure/group/link.py` has the real one."""

    rank: int
    ranks: int
    host: str
    hosts: list[str]
    """The host of every rank."""
    address: str
    """Where other ranks reach this one."""

    @property
    def local_rank(self) -> int:
        """Which of the ranks on this host this is."""

    @property
    def local_ranks(self) -> int:
        """Ranks on this host."""

    def gather(self, value: Any) -> list[Any]:
        """What every rank sent, in rank order; waits for all of them."""


class CollectiveOp(Op):
    """An operation that one process a rank takes part in."""

    Problem = Collective
    is_group = True
    sweep_field = "n"
    outputs = ("receive",)
    settings = {  # noqa: RUF012  (ClassVar in Op)
        "algorithm": ALGORITHMS,
        "mpi_threads": ("multiple", "single"),
    }
    variants: ClassVar[tuple[str, ...]] = ("algorithm", "mpi_threads")
    same_everywhere = False
    """Whether all ranks receive the same."""
    repeats = False
    """Whether what is received repeats itself with the tile."""
    adds = False
    """Whether numbers of ranks are added, so that the result is rounded."""

    # ---- what an operation says of itself

    def sizes(self, problem: Any) -> tuple[int, int]:
        """Elements that a rank sends and receives."""
        return problem.n, problem.n

    def bus_factor(self, problem: Any) -> float:
        """Bus bandwidth over algorithm bandwidth, as nccl-tests has them (its doc/PERFORMANCE.md)."""
        raise NotImplementedError

    def wanted(self, problem: Any, rank: int, of: Sequence[Array], first: int, count: int) -> Array:
        """Elements `first` to `first + count` of what a rank must receive, in float64.

        `of[r]` is the tile of rank r: its element i is `of[r][i % len(of[r])]`. Where ranks are added, `of[0]` is the
        sum of all tiles.
        """
        raise NotImplementedError

    # ---- what is the same for all

    def allows(self, direction: str, precision: Precision) -> bool:
        """Floats as they are sent."""
        return precision.name in ROUNDOFF

    def result_type(self, case: Case) -> str:
        """What is sent is received."""
        return case.precision.data

    def bytes(self, case: Case) -> int:
        """Of the larger buffer of a rank."""
        return int(case.problem.n * BITS[case.precision.data] // 8)

    def operand_bytes(self, case: Case) -> int:
        """Of one rank."""
        return sum(self.sizes(case.problem)) * BITS[case.precision.data] // 8

    def flop(self, case: Case) -> int:
        """Additions over all ranks, each element of the result once; 0 where nothing is added."""
        return int((case.problem.ranks - 1) * case.problem.n) if self.adds else 0

    def workspace_bytes(self, case: Case) -> int:
        """Of one rank's check: some tiles in float64."""
        from deepbench.core.operands import TILE

        return int(8 * 8 * min(case.problem.n, TILE))

    def traffic_bytes(self, case: Case) -> int:
        """The bytes of the larger buffer: what algorithm bandwidth divides by the time."""
        return self.bytes(case)

    def facts(self, case: Case) -> dict[str, Any]:
        """`bus_factor`: bus over algorithm bandwidth. `original_bytes`: ranks × bytes, which the original divided."""
        p = case.problem
        return {"bus_factor": self.bus_factor(p), "original_bytes": p.ranks * self.bytes(case)}

    def expected_s(self, case: Case, flop_per_s: float, bytes_per_s: float) -> float:
        """Every byte goes over the bus twice or so, and a call takes some microseconds a rank."""
        return float(2 * self.bytes(case) / bytes_per_s + 20e-6 * case.problem.ranks)

    def operands(self, case: Case) -> Arrays:
        """Of rank 0: other ranks have `operands_of`."""
        return self.operands_of(case, 0, whole=False)

    def operands_of(self, case: Case, rank: int, whole: bool) -> Arrays:
        """`send`, filled, and `receive`, for `begin` to fill."""
        from deepbench.core import operands

        kind = case.precision.data
        sent, received = self.sizes(case.problem)
        arrays = {"send": operands.empty((sent,), kind), "receive": operands.empty((received,), kind)}
        self.fill(case, rank, arrays, whole)
        return arrays

    def fill(self, case: Case, rank: int, arrays: Arrays, whole: bool) -> None:
        """What this rank sends."""
        tile, send = self.tile(case, rank, whole), arrays["send"]
        for start in range(0, send.size, tile.size):
            part = send[start : start + tile.size]
            part[...] = tile[: part.size]

    def whole_bound(self, case: Case) -> int:
        """Largest whole number that ranks send, so that sums and parts of sums are exact; 0: there is none."""
        most = round(1 / ROUNDOFF[case.precision.data])
        return int(min(WHOLE, most // case.problem.ranks)) if self.adds else WHOLE

    def tile(self, case: Case, rank: int, whole: bool) -> Array:
        """The numbers that a rank's data repeats, in the type that is sent."""
        import numpy as np

        from deepbench.core import operands
        from deepbench.core.precision import dtype

        count, kind = min(self.sizes(case.problem)[0], operands.TILE), case.precision.data
        if whole:
            bound = self.whole_bound(case)
            numbers = operands.generator(FIRST_STREAM + rank).integers(
                -bound, bound, count, dtype=np.int8, endpoint=True
            )
            return numbers.astype(dtype(kind))
        return operands.draw(count, kind, FIRST_STREAM + rank)

    def reset(self, case: Case, arrays: Arrays) -> None:
        """As of rank 0: other ranks have `begin`."""
        self.begin(case, 0, arrays)

    def begin(self, case: Case, rank: int, arrays: Arrays) -> None:
        """Poison where the answer will be, or in place what is sent."""
        from deepbench.core import operands

        if case.settings.get("place") == "in":
            arrays["receive"][...] = arrays["send"]
        else:
            operands.poison(arrays["receive"])

    def compare_of(self, case: Case, rank: int, arrays: Arrays, whole: bool) -> Iterator[Comparison]:
        """Every element that this rank received, a tile at a time."""
        import numpy as np

        from deepbench.core.operands import TILE

        p, got = case.problem, arrays["receive"]
        tiles: Sequence[Array] = _Tiles(lambda r: self.tile(case, r, whole).astype(np.float64), p.ranks)
        sizes: Sequence[Array] = []
        if self.adds:
            total = size = np.zeros(1)
            for r in range(p.ranks):
                total, size = total + tiles[r], size + np.abs(tiles[r])
            tiles, sizes = [total], [] if whole else [size]
        unit = p.ranks * ROUNDOFF[case.precision.data]
        how = "every element of whole numbers" if whole else "every element"
        want = tolerance = np.zeros(0)
        for first in range(0, got.size, TILE):
            part = got[first : first + TILE].astype(np.float64)
            if not self.repeats or part.size != want.size:
                want = self.wanted(p, rank, tiles, first, part.size)
                tolerance = unit * self.wanted(p, rank, sizes, first, part.size) if sizes else np.zeros(part.size)
            yield Comparison(how, part, want, tolerance, got.size, got.size)

    def title(self, problem: Any) -> str:
        """`all-reduce of 4194304, 4 ranks`."""
        return f"{self.name.replace('_', '-')} of {problem.n}, {problem.ranks} ranks"


class _Tiles(Sequence["Array"]):
    """The tiles of all ranks, of which the last two are kept: all together are more than a machine may have."""

    def __init__(self, make: Callable[[int], Array], count: int) -> None:
        self._make, self._count = lru_cache(maxsize=2)(make), count

    def __getitem__(self, rank: Any) -> Array:  # type: ignore[override]  # no slices are asked for
        return self._make(rank)

    def __len__(self) -> int:
        return self._count


# One product of what runs beside an all-reduce, and bytes that travel in about its time on one core.
PRODUCT_SIZE, BYTES_A_PRODUCT = 256, 2**21


def products(count: int, between: Callable[[], object]) -> Callable[[], None]:
    """A function that multiplies f32 matrices for about as long as so many bytes travel, and calls `between` two.

    Libraries that have no thread of their own go on with a message only when they are called.
    """
    from deepbench.core import operands

    size, turns = PRODUCT_SIZE, max(1, count // BYTES_A_PRODUCT)
    a, b = (operands.random((size, size), "f32", stream) for stream in (20, 21))
    c = operands.empty((size, size), "f32")

    def run() -> None:
        import numpy as np

        for _ in range(turns):
            np.matmul(a, b, out=c)
            between()

    return run


def joined(pieces: Sequence[tuple[Array, int]], part: int, first: int, count: int) -> Array:
    """Elements `first` to `first + count` of pieces of `part` elements, each of a tile from a place in it on."""
    import numpy as np

    found = []
    while count:
        piece, inside = divmod(first, part)
        length = min(count, part - inside)
        tile, start = pieces[piece]
        found.append(stretch(tile, start + inside, length))
        first, count = first + length, count - length
    return np.concatenate(found)


def stretch(tile: Array, first: int, count: int) -> Array:
    """Elements `first` to `first + count` of a tile that repeats itself."""
    import numpy as np

    start = first % tile.size
    if start + count <= tile.size:
        return tile[start : start + count]
    turns = -(-(start + count) // tile.size)
    return np.concatenate([tile] * turns)[start : start + count]
