"""The time of kernels on a GPU without any table: from the tables of other GPUs, and both data sheets.

The same roofline and trees as in `fit.py`. The trees see how long the arithmetic and the traffic take by the data
sheet, how often the units are filled, and how much of the operands the cache holds. They do not see which GPU it is:
with the ratio of peak and bandwidth, or of peak and power, they took an H200 for an A100.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput
from deepbench.gpus import fit
from deepbench.gpus.families import families
from deepbench.gpus.families.family import PRECISIONS, Family, Kernels
from deepbench.gpus.sheet import Sheet
from deepbench.gpus.table import FINE, KernelTable, table

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# Rows of each GPU: more make the fit slower, and each GPU counts alike.
MOST_ROWS = 15_000

# The shortest time of a kernel where nothing is known of a GPU.
FLOOR_S = 2.5e-6


def predicted(
    family_name: str, group: tuple[int, ...], known: Sequence[str], kernels: Kernels, page: Sheet
) -> Array | None:
    """Seconds of kernels of a group on a GPU with this sheet; the median of the frameworks. None without any table."""
    import numpy as np

    family = families()[family_name]
    columns, wanted, frameworks = [], [], []
    for machine in known:
        rows = rows_of(machine, family_name, group)
        if rows is None:
            continue
        if len(rows) > MOST_ROWS:
            rows = rows.only(np.sort(np.random.default_rng(0).choice(len(rows), MOST_ROWS, replace=False)))
        base = fit.roofline_s(family, rows.kernels, rows.sheet, FLOOR_S)
        names = np.array([fit.framework_number(source.framework) for source in rows.sources])
        columns.append(_features(family, rows.kernels, rows.sheet, names[rows.source], base))
        wanted.append(np.log(rows.seconds / base))
        frameworks += [*{int(n) for n in names[rows.source]}]
    if not columns:
        return None
    trees = fit.grown(np.concatenate(columns), np.concatenate(wanted), len(family.categories) + 1, leaves=63)
    base = fit.roofline_s(family, kernels, page, FLOOR_S)
    each = [
        trees.predict(_features(family, kernels, page, np.full(len(base), number), base), num_threads=1)
        for number in sorted(set(frameworks))
    ]
    found: Array = base * np.exp(np.median(each, axis=0))
    return found


def rows_of(machine: str, family_name: str, group: tuple[int, ...]) -> KernelTable | None:
    """The rows of a group that are not marked; None where there are too few."""
    import numpy as np

    try:
        rows = table(machine, family_name)
    except BadInput:  # it has no table of the family
        return None
    chosen = rows.marks == FINE
    for name, value in zip(rows.family.groups, group, strict=True):
        chosen &= rows.kernels[name] == value
    return rows.only(np.flatnonzero(chosen)) if chosen.sum() >= fit.LEAST_ROWS else None


def _features(family: Family, kernels: Kernels, page: Sheet, source: Array, base: Array) -> Array:
    """Those of a fit on one GPU, and times by the data sheet, in front of the names."""
    import numpy as np

    own = fit.features(family, kernels, page, source, base)
    work = family.work(kernels)
    peaks = np.array([page.peak_of(name) for name in PRECISIONS])[work.precision]
    shares = [
        np.log2(np.maximum(work.flop / peaks, 1e-9)),
        np.log2(work.bytes / page.bytes_per_s),
        np.log2(work.bytes / page.chip.cache_bytes),
    ]
    names = len(family.categories) + 1
    return np.concatenate([own[:, :-names], np.stack(shares, axis=1), own[:, -names:]], axis=1)
