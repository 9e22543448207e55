"""All rows of a family on a GPU as columns, with a mark on each row that cannot be or that stands alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput
from deepbench.gpus import package
from deepbench.gpus.families import families
from deepbench.gpus.families.family import PRECISIONS, Family, Kernels
from deepbench.gpus.package import TableFile
from deepbench.gpus.sheet import Sheet, sheet

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

FINE, ABOVE_PEAK, ABOVE_BANDWIDTH, ALONE, OF_HOST = range(5)

MARKS = {
    ABOVE_PEAK: "above the peak of the data sheet",
    ABOVE_BANDWIDTH: "faster than the memory of the data sheet gives its bytes",
    ALONE: "more than twice or less than half of what its neighbours in size say",
    OF_HOST: "at most three times the shortest of its table, whose short times are those of the host",
}

# Rounding of data sheets.
SLACK = 1.02

# Operands up to so many times the L2 cache may stay in it.
CACHED = 2.0

# A time may be so many times that of the neighbours. Twice is more than any change of the algorithm explains often.
NEIGHBOUR = 2.0

# No kernel of a GPU needs so long for nothing: where nearly all times of a table are longer, the host set them.
HOST_S = 40e-6
OF_FLOOR = 3.0

# Sizes of kernels: larger ones are not read, so that products of them stay finite.
MOST_SIZE = 2**40


@dataclass(frozen=True)
class TableSource:
    """A framework and its version, whose times a table has."""

    framework: str
    version: str

    @property
    def text(self) -> str:
        """`vllm 0.24.0`."""
        return f"{self.framework} {self.version}".strip()


@dataclass(frozen=True)
class KernelTable:
    """Kernels of a family on a GPU, one per row."""

    machine: str
    family: Family
    sources: Sequence[TableSource]
    kernels: dict[str, Array]
    source: Array
    """Which of the sources each row is from."""
    seconds: Array
    unmapped: int
    """How many rows of the files are no kernel of ours."""

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def sheet(self) -> Sheet:
        """Of the GPU."""
        return sheet(self.machine)

    def only(self, chosen: Array) -> KernelTable:
        """Some of the rows."""
        kernels = {name: values[chosen] for name, values in self.kernels.items()}
        return KernelTable(
            self.machine, self.family, self.sources, kernels, self.source[chosen], self.seconds[chosen], self.unmapped
        )

    @cached_property
    def marks(self) -> Array:
        """Why a row is not trusted, as a number of `MARKS`; 0 where nothing speaks against it."""
        import numpy as np

        found = np.zeros(len(self), np.int8)
        if not len(self):
            return found
        found[self._stands_alone()] = ALONE
        found[self._is_of_host()] = OF_HOST
        if self.family.name != "collectives":
            work = self.family.work(self.kernels)
            peaks = np.array([self.sheet.peak_of(name) for name in PRECISIONS])[work.precision]
            is_large = work.bytes > CACHED * self.sheet.chip.cache_bytes
            least = self.family.least_bytes(self.kernels)
            found[is_large & (least / self.seconds > SLACK * self.sheet.bytes_per_s)] = ABOVE_BANDWIDTH
            found[work.flop / self.seconds > SLACK * peaks] = ABOVE_PEAK
        return found

    def _stands_alone(self) -> Array:
        """Rows that differ by more than `NEIGHBOUR` from the interpolation of both neighbours in the swept size."""
        import numpy as np

        sweep = self.kernels[self.family.sweep]
        group = hashed([*self.family.line(self.kernels), self.source])
        order = np.lexsort((sweep, group))
        g, x, y = group[order], np.log(np.maximum(sweep[order], 1)), np.log(self.seconds[order])
        inner = np.zeros(len(order), bool)
        inner[1:-1] = (g[1:-1] == g[:-2]) & (g[1:-1] == g[2:]) & (x[1:-1] > x[:-2]) & (x[2:] > x[1:-1])
        i = np.flatnonzero(inner)
        share = (x[i] - x[i - 1]) / (x[i + 1] - x[i - 1])
        wanted = y[i - 1] + share * (y[i + 1] - y[i - 1])
        lowest, highest = np.minimum(y[i - 1], y[i + 1]), np.maximum(y[i - 1], y[i + 1])
        limit = np.log(NEIGHBOUR)
        is_far = (np.abs(y[i] - wanted) > limit) & ((y[i] > highest + limit / 2) | (y[i] < lowest - limit / 2))
        found = np.zeros(len(order), bool)
        found[order[i[is_far]]] = True
        return found

    def _is_of_host(self) -> Array:
        """Rows near the shortest time of their source and type, where that is too long for a kernel."""
        import numpy as np

        kinds = hashed([self.source, *(self.kernels[name] for name in self.family.groups)])
        found = np.zeros(len(self), bool)
        if self.family.name == "collectives":
            return found
        for kind in np.unique(kinds):
            rows = kinds == kind
            floor = float(np.quantile(self.seconds[rows], 0.02))
            if floor > HOST_S:
                found |= rows & (self.seconds < OF_FLOOR * floor)
        return found


def hashed(columns: Sequence[Array]) -> Array:
    """A number for each row, equal where all columns are equal. Others collide once in 10^19 pairs."""
    import numpy as np

    total = np.full(len(columns[0]), 1469598103934665603, np.uint64)
    for column in columns:
        total = (total ^ column.astype(np.uint64)) * np.uint64(1099511628211)
        total ^= total >> np.uint64(29)
        total *= np.uint64(0xBF58476D1CE4E5B9)
    return total


@lru_cache(maxsize=64)
def table(machine: str, family_name: str, every_version: bool = False) -> KernelTable:
    """The rows of a family on a GPU, of one version of each framework or of every one.

    The version of a framework is that with the most rows, and the newest among equal ones. Where a file has a kernel
    twice, the faster one counts.
    """
    import numpy as np

    family = families()[family_name]
    files = [file for file in package.tables(machine) if file.stem in family.stems]
    if not every_version:
        files = _main_versions(files)
    sources: list[TableSource] = []
    parts: list[tuple[dict[str, Array], Array, Array]] = []
    unmapped = 0
    for file in files:
        columns = package.read(file, family.integers, family.texts)
        kernels = family.kernels(columns, file.stem)
        first = kernels[family.keys[0]]
        sizes = [kernels[name] for name in family.keys]
        least = np.min(np.stack(sizes), axis=0) if len(first) else first
        most = np.max(np.stack(sizes), axis=0) if len(first) else first
        seconds = columns.seconds
        kept = np.isfinite(seconds) & (seconds > 0) & (seconds < 1e4) & (least >= 0) & (most <= MOST_SIZE)
        for name in family.keys:
            if name not in (*family.categories, "window", "after"):
                kept &= kernels[name] > 0
        unmapped += int((~kept).sum())
        own = TableSource(file.framework, file.version)
        if own not in sources:
            sources.append(own)
        rows = {name: kernels[name][kept] for name in family.keys}
        parts.append((rows, np.full(int(kept.sum()), sources.index(own)), seconds[kept]))
    if not parts:
        raise BadInput(f"{machine} has no table of {family.title} ({family.name})")
    joined = {name: np.concatenate([rows[name] for rows, _, _ in parts]) for name in family.keys}
    source = np.concatenate([codes for _, codes, _ in parts])
    seconds = np.concatenate([times for _, _, times in parts])
    order = np.argsort(seconds, kind="stable")
    keys = hashed([*(joined[name] for name in family.keys), source])[order]
    _, first = np.unique(keys, return_index=True)
    chosen = np.sort(order[first])
    return KernelTable(machine, family, tuple(sources), joined, source, seconds, unmapped).only(chosen)


def _main_versions(files: Sequence[TableFile]) -> list[TableFile]:
    """Of each framework and kind of file the version with the most rows."""
    best: dict[tuple[str, str], tuple[int, tuple[object, ...], TableFile]] = {}
    for file in files:
        rank = (package.row_count(file), version_order(file.version), file)
        key = (file.framework, file.stem)
        if key not in best or rank[:2] > best[key][:2]:
            best[key] = rank
    return [file for _, _, file in best.values()]


def version_order(version: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts versions: `1.3.0rc9` before `1.3.0rc20`, then `1.3.0` and `1.3.0.post1`."""
    parts = re.findall(r"\d{1,9}|[a-z]+", version.lower())
    end = (-1, "")
    return *((int(part), "") if part.isdigit() else (0 if part == "post" else -2, part) for part in parts), end


def kernel_at(kernels: Kernels, row: int) -> Mapping[str, int]:
    """One kernel as plain numbers."""
    return {name: int(values[row]) for name, values in kernels.items()}
