"""The time of kernels that no table has: a roofline of the data sheet, corrected by trees fitted to the tables.

    t = (t₀ + max(F / P, B / W)) · exp(g(kernel))

F and B are the operations and least bytes of a kernel, P and W the peak and the bandwidth of the data sheet, and t₀ the
shortest time of the table. g is a sum of regression trees (gradient boosting, Friedman 2001, by LightGBM) over the
logarithms of the sizes, of F / P and of B / W, the waves and the alignment of tiles, and the framework. It is fitted to
the logarithm of measured over roofline time, without rows that are marked, and minimises the mean absolute error of it.

A fifth of the shapes takes no part in the fit. Their errors are those of the model, and make its intervals. Fitted
models are kept in the folder of remembered facts, as text.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput, Unavailable
from deepbench.core.files import read_regular, replacing
from deepbench.core.json_lines import with_checksum, without_checksum
from deepbench.gpus import package
from deepbench.gpus.families.family import PRECISIONS, Family, Kernels
from deepbench.gpus.sheet import Sheet, sheet
from deepbench.gpus.table import FINE, KernelTable, hashed, table
from deepbench.machine import remembered

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# Changes when models of an older program must not be used.
FORMAT = 5

# Shapes of which one in so many is held out.
FOLDS = 5

# Fewer rows than these say nothing about others.
LEAST_ROWS = 100

# More rows make the fit slower and hardly better.
MOST_ROWS = 150_000

TREES, LEAVES, RATE = 200, 127, 0.2

MOST_BYTES = 64 * 2**20

# Errors are kept for kernels of these times, in seconds: short ones are predicted worse.
BANDS = (0.0, 20e-6, 200e-6, float("inf"))

# The interval of a model that no held-out time could be compared with: a factor of 2.
UNKNOWN_ERROR = 0.7


@dataclass(frozen=True)
class ModelErrors:
    """Errors of kernels that took no part in the fit, as natural logarithms of predicted over measured."""

    count: int
    median: float
    """Of the sizes of relative errors, as the next one."""
    mean: float
    low: float
    """Quantiles at 2.5 % and 97.5 %."""
    high: float


@dataclass(frozen=True)
class Fitted:
    """A fitted model of some kernels of a family on a GPU."""

    machine: str
    family: str
    group: tuple[int, ...]
    sources: tuple[str, ...]
    floor_s: float
    text: str
    """The trees, as LightGBM writes them."""
    errors: tuple[ModelErrors | None, ...]
    """By band of time."""
    total: ModelErrors | None
    ranges: dict[str, tuple[int, int, int]]
    """The smallest and the largest value of each size, and what divides all of them: 1, 2, 4 or 8."""

    def seconds(self, family: Family, kernels: Kernels, sheet: Sheet, source: int) -> Array:
        """Predicted times of kernels of this group, as the source with this number would have them."""
        import numpy as np

        base = roofline_s(family, kernels, sheet, self.floor_s)
        if not len(base):
            return base
        trees = _booster(self.text)
        names = features(family, kernels, sheet, np.full(len(base), source), base)
        found: Array = base * np.exp(trees.predict(names, num_threads=1))
        return found

    def interval(self, seconds: Array) -> tuple[Array, Array]:
        """By what the time may be too large and too small: factors, by band of time."""
        import numpy as np

        low, high = np.full(len(seconds), np.exp(-UNKNOWN_ERROR)), np.full(len(seconds), np.exp(UNKNOWN_ERROR))
        for i, errors in enumerate(self.errors):
            if errors is not None:
                rows = (seconds >= BANDS[i]) & (seconds < BANDS[i + 1])
                low[rows], high[rows] = np.exp(-errors.high), np.exp(-errors.low)
        return np.minimum(low, 1.0), np.maximum(high, 1.0)

    def is_within(self, kernels: Kernels) -> Array:
        """Whether all sizes lie between those of the table, and are aligned as all of its are."""
        import numpy as np

        found = np.ones(len(next(iter(kernels.values()))), bool)
        for name, (low, high, step) in self.ranges.items():
            found &= (kernels[name] >= low) & (kernels[name] <= high) & (kernels[name] % step == 0)
        return found


def roofline_s(family: Family, kernels: Kernels, sheet: Sheet, floor_s: float) -> Array:
    """Seconds by the data sheet, and the shortest time of the table."""
    import numpy as np

    work = family.work(kernels)
    peaks = np.array([sheet.peak_of(name) for name in PRECISIONS])[work.precision]
    rate = sheet.bytes_per_s if family.name != "collectives" else sheet.link_bytes_per_s or 1e10
    found: Array = floor_s + np.maximum(work.flop / peaks, work.bytes / rate)
    return found


def features(family: Family, kernels: Kernels, sheet: Sheet, source: Array, base: Array) -> Array:
    """What the trees see: a row per kernel; names are numbers of categories, in the last columns."""
    import numpy as np

    work = family.work(kernels)
    peaks = np.array([sheet.peak_of(name) for name in PRECISIONS])[work.precision]
    sizes = [np.log2(kernels[name] + 1.0) for name in family.keys if name not in family.categories]
    compute_s, memory_s = np.maximum(work.flop / peaks, 1e-12), work.bytes / sheet.bytes_per_s
    times = [np.log2(base), np.log2(work.bytes), np.log2(compute_s / memory_s)]
    names = [kernels[name].astype(float) for name in family.categories]
    return np.stack([*sizes, *times, *family.features(kernels, sheet), *names, source.astype(float)], axis=1)


def group_of(family: Family, kernels: Kernels) -> Array:
    """A number for each kernel that says which model is its own."""
    import numpy as np

    if not family.groups:
        return np.zeros(len(next(iter(kernels.values()))), np.int64)
    return np.stack([kernels[name] for name in family.groups], axis=1)


def fold_of(family: Family, kernels: Kernels) -> Array:
    """Which of the `FOLDS` parts a shape belongs to; equal sizes are in one part, whatever their type and source."""
    import numpy as np

    sizes = [kernels[name] for name in family.keys if name not in family.categories]
    return (hashed(sizes) % np.uint64(FOLDS)).astype(np.int64)


def fit(rows: KernelTable, group: tuple[int, ...]) -> Fitted | None:
    """The model of a group of kernels; None where there are too few rows."""
    import numpy as np

    family, sheet = rows.family, rows.sheet
    chosen = rows.marks == FINE
    for name, value in zip(family.groups, group, strict=True):
        chosen &= rows.kernels[name] == value
    rows = rows.only(np.flatnonzero(chosen))
    if len(rows) < LEAST_ROWS:
        return None
    held = fold_of(family, rows.kernels) == 0
    if held.all():
        return None
    floor_s = float(np.quantile(rows.seconds, 0.001))
    base = roofline_s(family, rows.kernels, sheet, floor_s)
    table_of = features(family, rows.kernels, sheet, rows.source, base)
    wanted = np.log(rows.seconds / base)
    training = np.flatnonzero(~held)
    if len(training) > MOST_ROWS:
        training = np.random.default_rng(0).choice(training, MOST_ROWS, replace=False)
    trees = grown(table_of[training], wanted[training], len(family.categories) + 1)
    predicted = trees.predict(table_of[held], num_threads=1) if held.any() else np.zeros(0)
    ratios, times = predicted - wanted[held], rows.seconds[held]
    bands = [_held_out(ratios[(times >= low) & (times < high)]) for low, high in pairwise(BANDS)]
    total = _held_out(ratios)
    ranges = {
        name: (
            int(rows.kernels[name].min()),
            int(rows.kernels[name].max()),
            _step_of(rows.kernels[name]) if name in family.aligned else 1,
        )
        for name in family.keys
        if name not in family.categories
    }
    sources = tuple(source.text for source in rows.sources)
    text = trees.model_to_string()
    return Fitted(rows.machine, family.name, group, sources, floor_s, text, tuple(bands), total, ranges)


def grown(columns: Array, wanted: Array, names: int, leaves: int = LEAVES) -> Any:
    """Trees for the logarithms that are wanted; the last so many columns are numbers of names."""
    lightgbm = _library()
    count = columns.shape[1]
    options = {
        "objective": "l1",
        "learning_rate": RATE,
        "num_leaves": leaves,
        "min_data_in_leaf": 5,
        "verbose": -1,
        "seed": 0,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,  # with two, each waits for the other, 30 times as long on a busy machine
    }
    data = lightgbm.Dataset(columns, wanted, categorical_feature=list(range(count - names, count)))
    return lightgbm.train(options, data, TREES)


def _step_of(values: Array) -> int:
    """The largest of 1, 2, 4 and 8 that divides all values: libraries have other kernels for other sizes."""
    import numpy as np

    return int(np.gcd(np.gcd.reduce(values), 8))


def _held_out(ratios: Array) -> ModelErrors | None:
    import numpy as np

    if len(ratios) < 40:
        return None
    sizes = np.abs(np.exp(ratios) - 1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return ModelErrors(len(ratios), float(np.median(sizes)), float(sizes.mean()), float(low), float(high))


def _library() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise Unavailable("times of kernels that no table has need LightGBM", remedy=package.REMEDY) from None
    return lightgbm


@lru_cache(maxsize=64)
def _booster(text: str) -> Any:
    return _library().Booster(model_str=text)


# ---- remembered models


@lru_cache(maxsize=256)
def fitted(machine: str, family: str, group: tuple[int, ...]) -> Fitted | None:
    """The model of a group of kernels of a family on a GPU, fitted now or remembered; None with too few rows."""
    name = "-".join([machine, family, *map(str, group), _digest(machine, family)])
    path = remembered.folder() / "gpus" / f"{name}.json"
    with contextlib.suppress(Exception):  # what was kept is damaged or from elsewhere: fit again
        content = read_regular(path, MOST_BYTES, "a fitted model")
        line = without_checksum(content, required=True)  # trees with a wrong number end the process, or never end
        found = _from_plain(json.loads(line))
        if (found.machine, found.family, found.group) == (machine, family, group):
            _booster(found.text)
            return found
    new = fit(table(machine, family), group)
    if new is not None:
        with contextlib.suppress(OSError, BadInput):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path, ours=True) as draft:
                draft.write_bytes(with_checksum(json.dumps(asdict(new)).encode()))
    return new


def _digest(machine: str, family: str) -> str:
    """A text that changes with the files and the sheet that a model is fitted to, and with this module."""
    from deepbench.gpus.families import families

    stems = families()[family].stems
    facts: list[object] = [FORMAT, TREES, LEAVES, RATE, sheet(machine)]
    for file in package.tables(machine):
        if file.stem in stems:
            facts.append(package.facts(file))
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _from_plain(kept: dict[str, Any]) -> Fitted:
    errors = [ModelErrors(**e) if e is not None else None for e in [*kept["errors"], kept["total"]]]
    ranges = {str(name): (int(low), int(high), int(step)) for name, (low, high, step) in kept["ranges"].items()}
    return Fitted(
        str(kept["machine"]),
        str(kept["family"]),
        tuple(int(value) for value in kept["group"]),
        tuple(str(text) for text in kept["sources"]),
        float(kept["floor_s"]),
        str(kept["text"]),
        tuple(errors[:-1]),
        errors[-1],
        ranges,
    )


def groups(rows: KernelTable) -> Sequence[tuple[int, ...]]:
    """The groups of kernels of a table, the largest first."""
    import numpy as np

    if not rows.family.groups:
        return [()]
    found, counts = np.unique(group_of(rows.family, rows.kernels), axis=0, return_counts=True)
    order = np.argsort(-counts)
    return [tuple(int(value) for value in found[i]) for i in order]
