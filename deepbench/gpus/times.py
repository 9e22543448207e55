"""Times of kernels on a GPU: from a row of a table where there is one, else from the fitted model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from deepbench.gpus import fit
from deepbench.gpus.families import families
from deepbench.gpus.families.family import Kernels
from deepbench.gpus.table import FINE, KernelTable, hashed, table

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

How = Literal["measured", "interpolated", "modelled"]
MEASURED, INTERPOLATED, MODELLED = range(3)
HOW: tuple[How, ...] = ("measured", "interpolated", "modelled")

# The spread of frameworks, as a natural logarithm, where fewer than so many kernels were timed with two of them.
LEAST_SHARED = 30
USUAL_SPREAD = 0.1


@dataclass(frozen=True)
class KernelTimes:
    """Times of kernels with one framework."""

    seconds: Array
    low_s: Array
    """The ends of an interval that has 95 % of such errors."""
    high_s: Array
    how: Array
    """0, 1, 2: an index of `HOW`."""


# Lines of rows lie one after the other in one array; the logarithm of a size is below this.
GAP = 64.0

# Two sizes with at most this ratio have times in between on a line.
FARTHEST = 1.5


@dataclass(frozen=True)
class Lines:
    """Rows in lines (`Family.line`), in the order of the swept size."""

    groups: Array
    """A number for each line and source, sorted."""
    position: Array
    """Of each row: the index of its line times `GAP`, and the logarithm of its swept size; sorted."""
    log_seconds: Array


@dataclass(frozen=True)
class Lookup:
    """A table that finds kernels by their keys."""

    rows: KernelTable
    keys: Array
    """Of the rows that are not marked, sorted."""
    order: Array
    spread: float
    """Half of a 95 % interval of the logarithm of a time, from the ratios of frameworks for the same kernel."""
    served: frozenset[tuple[int, tuple[int, ...]]]
    """Sources and groups most of whose rows are trusted."""

    @cached_property
    def lines(self) -> Lines:
        """The rows that are not marked, in lines."""
        import numpy as np

        family, fine = self.rows.family, np.sort(self.order)
        kernels = {name: values[fine] for name, values in self.rows.kernels.items()}
        group = hashed([*family.line(kernels), self.rows.source[fine]])
        groups, index = np.unique(group, return_inverse=True)
        position = index.ravel() * GAP + np.log(np.maximum(kernels[family.sweep], 1))
        order = np.argsort(position)
        return Lines(groups, position[order], np.log(self.rows.seconds[fine][order]))


@lru_cache(maxsize=64)
def lookup(machine: str, family: str) -> Lookup:
    """The rows of a family on a GPU, to find kernels in."""
    import numpy as np

    rows = table(machine, family)
    fine = np.flatnonzero(rows.marks == FINE)
    keys = hashed([*(rows.kernels[name][fine] for name in rows.family.keys), rows.source[fine]])
    order = np.argsort(keys)
    return Lookup(rows, keys[order], fine[order], _spread(rows, fine), frozenset(_served(rows)))


def _served(rows: KernelTable) -> list[tuple[int, tuple[int, ...]]]:
    found = []
    groups = fit.group_of(rows.family, rows.kernels)
    for group in fit.groups(rows):
        own = (groups == group).all(axis=1) if rows.family.groups else groups == 0
        for source in range(len(rows.sources)):
            marks = rows.marks[own & (rows.source == source)]
            if len(marks) and (marks == FINE).mean() > 0.5:
                found.append((source, group))
    return found


def _spread(rows: KernelTable, fine: Array) -> float:
    """Of kernels that two sources have: 1.96 standard deviations of one source, from quantiles of the ratio."""
    import numpy as np

    shape = hashed([rows.kernels[name][fine] for name in rows.family.keys])
    order = np.argsort(shape, kind="stable")
    same = shape[order][1:] == shape[order][:-1]
    logs = np.log(rows.seconds[fine][order])
    ratios = np.abs(logs[1:] - logs[:-1])[same]
    if len(ratios) < LEAST_SHARED:
        return USUAL_SPREAD
    # The difference of two has √2 times the deviation of one; the median size of a normal value is 0.6745 deviations.
    return float(1.96 * np.median(ratios) / 0.6745 / np.sqrt(2))


def frameworks(machine: str, family: str) -> list[str]:
    """The frameworks whose times a GPU has of a family."""
    return list(dict.fromkeys(source.framework for source in table(machine, family).sources))


def times(machine: str, family_name: str, kernels: Kernels, framework: str) -> KernelTimes | None:
    """Times of kernels with a framework; None where it has no table of this family on this GPU.

    Every key of the family must be given. A kernel of a kind that the framework has no trusted rows of has NaN.
    """
    import numpy as np

    found = lookup(machine, family_name)
    family, count = families()[family_name], len(next(iter(kernels.values())))
    codes = [i for i, source in enumerate(found.rows.sources) if source.framework == framework]
    if not codes:
        return None
    seconds, how = np.full(count, np.nan), np.full(count, MODELLED)
    low, high = np.full(count, np.nan), np.full(count, np.nan)
    for code in codes:
        keys = hashed([*(kernels[name] for name in family.keys), np.full(count, code)])
        at = np.minimum(np.searchsorted(found.keys, keys), max(len(found.keys) - 1, 0))
        hit = (found.keys[at] == keys) & np.isnan(seconds) if len(found.keys) else np.zeros(count, bool)
        seconds[hit] = found.rows.seconds[found.order[at[hit]]]
        how[hit] = MEASURED
    if family.smooth:
        _between(found, codes, kernels, seconds, how)
    low[:], high[:] = seconds * np.exp(-found.spread), seconds * np.exp(found.spread)
    _model_others(found, codes, kernels, seconds, low, high, how)
    return KernelTimes(seconds, low, high, how)


def _between(found: Lookup, codes: Sequence[int], kernels: Kernels, seconds: Array, how: Array) -> None:
    """Fill in times that lie between two rows which differ in the swept size alone, on a line of the logarithms."""
    import numpy as np

    family, line = found.rows.family, found.lines
    for code in codes:
        open_rows = np.flatnonzero(np.isnan(seconds))
        if not len(open_rows) or len(line.position) < 2:
            return
        part = {name: values[open_rows] for name, values in kernels.items()}
        group = hashed([*family.line(part), np.full(len(open_rows), code)])
        at = np.minimum(np.searchsorted(line.groups, group), len(line.groups) - 1)
        known = line.groups[at] == group
        wanted = at * GAP + np.log(np.maximum(part[family.sweep], 1))
        after = np.clip(np.searchsorted(line.position, wanted), 1, len(line.position) - 1)
        low, high = line.position[after - 1], line.position[after]
        inside = known & (low >= at * GAP) & (high < (at + 1) * GAP) & (high - low <= FARTHEST)
        share = np.where(inside, (wanted - low) / np.maximum(high - low, 1e-9), 0.0)
        value = line.log_seconds[after - 1] * (1 - share) + line.log_seconds[after] * share
        seconds[open_rows[inside]] = np.exp(value[inside])
        how[open_rows[inside]] = INTERPOLATED


def _model_others(
    found: Lookup,
    codes: Sequence[int],
    kernels: Kernels,
    seconds: Array,
    low: Array,
    high: Array,
    how: Array,
) -> None:
    """Fill in what no row has, from the fitted models."""
    import numpy as np

    family, machine = found.rows.family, found.rows.machine
    open_rows = np.flatnonzero(np.isnan(seconds))
    if not len(open_rows):
        return
    groups = fit.group_of(family, {key: values[open_rows] for key, values in kernels.items()})
    for group in {tuple(np.atleast_1d(g).tolist()) if family.groups else () for g in groups}:
        source = next((code for code in codes if (code, group) in found.served), None)
        model = fit.fitted(machine, family.name, group) if source is not None else None
        if model is None or source is None:
            continue
        own = open_rows[(groups == group).all(axis=1)] if family.groups else open_rows
        part = {key: values[own] for key, values in kernels.items()}
        seconds[own] = model.seconds(family, part, found.rows.sheet, source)
        below, above = model.interval(seconds[own])
        low[own], high[own] = seconds[own] * below, seconds[own] * above
        how[own] = np.where(model.is_within(part), INTERPOLATED, MODELLED)


def as_arrays(kernels: Sequence[Mapping[str, int]], keys: Sequence[str]) -> dict[str, Array]:
    """Kernels one by one as columns."""
    import numpy as np

    return {key: np.array([kernel[key] for kernel in kernels], np.int64) for key in keys}
