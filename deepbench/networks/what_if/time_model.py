"""A model of the time of a kernel on hardware, with constants that are fitted to measured times.

    t = t₀ · steps + (c^p + m^p)^(1/p)       c = F / (e_c · P · occupancy)       m = max over levels of B / (e_m · W)

F is what the kernel computes and P the peak of its precision; B are the least bytes that come from a level of memory,
because the levels inside of it are too small, and W is the rate of this level. The fitted constants are t₀ (a call, or
one of several steps that depend on each other), the efficiencies e_c and e_m, and p, which says how far computing and
reading overlap: not at all for 1, completely for large values. A number that a sparse product gathers costs as much as
`gather_bytes` of the innermost level. Without efficiencies and t₀ this is the roofline (Williams, Waterman, Patterson,
CACM 2009).

**Occupancy**, where the hardware has `units`: a product is cut into tiles, and the depth of the sums into parts (split
k), and the units compute tiles in waves. The occupancy is the useful part of the arithmetic that fits into these waves,
times the efficiency of the tile. The tile and the parts with the shortest time count.

**A systolic array** (`systolic.py`), where the hardware has one, gives the time of computing products instead.

The constants of an operation, direction and precision on a library minimise the mean relative error. They are
cross-validated: the times of each fifth of the problems are predicted with constants of the other four fifths, and
these errors go into every interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from deepbench.core import units
from deepbench.core.case import Case
from deepbench.core.stats import quantile
from deepbench.judge.demand import Demand, demand_of
from deepbench.networks.what_if.hardware import Hardware
from deepbench.results.peaks import F32

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# What a part of the time is called; parts of memory are called after the level.
CALL, OPERATOR, COMPUTE = "calls", "operators", "compute"

# Operations whose arithmetic is multiply-adds of products, which matrix units have peaks for. Others use vector units,
# whose peak is that of f32.
PRODUCTS = (
    *("gemm", "batched_gemm", "grouped_gemm", "linear", "weight_only_gemm", "sparse_gemm"),
    *("conv", "recurrent", "attention"),
)

# With fewer problems than this, an operation has no fit of its own.
LEAST_PROBLEMS = 8

FOLDS = 5

# Tiles of products that libraries have, in rows and columns, for hardware that lists none; and into how many parts the
# depth may be split.
TILES = (
    *((256, 128), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128)),
    *((64, 32), (32, 32), (64, 16), (32, 16), (16, 16)),
)
SPLITS = (1, 2, 4, 8, 16, 32)

# A tile of r × c loads r + c elements for each r · c multiply-adds. Its efficiency is 1 / (1 + this · (1/r + 1/c)).
LOADS_COST = 8.0

# How far computing and reading may overlap.
LEAST_P, MOST_P = 1.0, 16.0

# The error of a model that no time could be compared with: it may be off by as much as the time.
UNKNOWN_ERROR = 1.0

# Where the times do not decide a constant, it stays near that of the roofline: the price, in mean relative error, of an
# efficiency that is e times 1, and of a t₀ that is e times the measured cost of a call.
PRICE, PRICE_OF_CALL = 2e-3, 5e-4


def peak_name(case: Case | None) -> str:
    """The precision whose peak a case computes with."""
    return case.precision.name if case is not None and case.op in PRODUCTS else F32


def product_of(case: Case | None) -> tuple[int, int, int, int] | None:
    """Number, rows, columns and depth of the products of a case; None if it is not one product, or many equal ones."""
    if case is None:
        return None
    p = case.problem
    if case.op in ("gemm", "linear"):
        return 1, p.m, p.n, p.k
    if case.op == "batched_gemm":
        return p.batch, p.m, p.n, p.k
    return None


@dataclass(frozen=True)
class ModelledTime:
    """The time of a kernel by the model, and what it consists of."""

    call_s: float
    compute_s: float
    """If nothing else took time, as is the next one."""
    memory_s: float
    level: str
    """The level of memory that takes longest."""
    p: float
    fixed: str = CALL
    """What the first part is."""

    @property
    def times(self) -> tuple[float, float, float]:
        """Calls, computing, reading."""
        return self.call_s, self.compute_s, self.memory_s

    @cached_property
    def seconds(self) -> float:
        """All of it."""
        return self.call_s + _norm(self.compute_s, self.memory_s, self.p)

    @cached_property
    def shares(self) -> Mapping[str, float]:
        """The share of the time by its cause; they add up to 1."""
        total = self.seconds
        if not total:
            return {}
        largest = max(self.compute_s, self.memory_s) or 1.0
        weights = [(time / largest) ** self.p for time in (self.compute_s, self.memory_s)]
        rest = (total - self.call_s) / (sum(weights) or 1.0)
        found = {self.fixed: self.call_s, COMPUTE: weights[0] * rest, self.level: weights[1] * rest}
        return {name: seconds / total for name, seconds in found.items() if seconds}

    @property
    def bound(self) -> str:
        """What takes most of the time."""
        return max(self.shares, key=lambda name: self.shares[name], default=self.fixed)


def _norm(a: float, b: float, p: float) -> float:
    largest, smallest = (a, b) if a >= b else (b, a)
    return largest * (1 + (smallest / largest) ** p) ** (1 / p) if largest else 0.0


@dataclass(frozen=True)
class Constants:
    """What is fitted."""

    step_s: float = 0.0
    compute: float = 1.0
    memory: float = 1.0
    p: float = MOST_P


@dataclass(frozen=True)
class Errors:
    """Relative errors of predictions of times that took no part in the fit, without their signs."""

    mean: float
    median: float
    high: float
    """The 90th percentile."""
    count: int

    @classmethod
    def of(cls, errors: Iterable[float]) -> Errors:
        """From predicted / measured - 1; unknown without any."""
        sizes = sorted(map(abs, errors))
        if not sizes:
            return cls(UNKNOWN_ERROR, UNKNOWN_ERROR, UNKNOWN_ERROR, 0)
        return cls(sum(sizes) / len(sizes), quantile(sizes, 0.5), quantile(sizes, 0.9), len(sizes))


@dataclass(frozen=True)
class FittedModel:
    """Constants for some cases, with the error that they have on other cases."""

    title: str
    """What it was fitted to."""
    constants: Constants
    errors: Errors
    call_s: float | None
    """The fixed cost of a call of the hardware of the fit."""
    folds: tuple[Constants, ...] = ()
    """The constants that leave out a part of the times."""
    is_roofline: bool = False
    """Whether nothing was fitted, because there are too few times."""
    own: Mapping[Case, float] = field(default_factory=dict)
    """For each measured case: predicted / measured - 1, with constants to which it did not contribute."""

    def unexplained(self, case: Case | None, in_sum: bool) -> float:
        """The share of the time of a case that the model may not explain, at most 1.

        The error of this very case counts, because it is known. It may be small by chance, so the share is at least the
        90th percentile of the errors of the fit, or in a sum, where chances cancel out, their median.
        """
        own = abs(self.own.get(case, 0.0)) if case is not None else 0.0
        return min(1.0, max(own, self.errors.median if in_sum else self.errors.high))

    def parts(self, demand: Demand, hardware: Hardware, constants: Constants | None = None) -> ModelledTime:
        """The time of a kernel on hardware."""
        return parts_of(demand, hardware, constants or self.constants, self.call_s)

    def values(self) -> dict[str, Any]:
        """All of it as plain values, for programs."""
        return {
            "of": self.title,
            "roofline": self.is_roofline,
            "constants": asdict(self.constants),
            "errors": asdict(self.errors),
        }


Roof = tuple[float, float, str]
"""Seconds of computing and of reading at full rates, and the level that is read."""


def parts_of(
    demand: Demand, hardware: Hardware, c: Constants, call_s: float | None, found: Sequence[Roof] | None = None
) -> ModelledTime:
    """The time of a kernel with these constants, which were fitted where a call costs `call_s`.

    `found` are the `roofs`, if they are known.
    """
    costlier = hardware.overhead.call_s / call_s if hardware.overhead.call_s and call_s else 1.0
    call = c.step_s * costlier * demand.steps
    ways = [
        ModelledTime(call, compute_s / c.compute, memory_s / c.memory, level, c.p)
        for compute_s, memory_s, level in (roofs(demand, hardware) if found is None else found)
    ]
    return ways[0] if len(ways) == 1 else min(ways, key=lambda parts: parts.seconds)


def roofs(demand: Demand, hardware: Hardware) -> list[Roof]:
    """What a kernel takes at full rates, for each way to cut a product."""
    peak = hardware.peak_of(peak_name(demand.case))
    compute_s = demand.flop / peak if peak else 0.0
    ways, product = [(1.0, 0.0)], product_of(demand.case)
    if hardware.array is not None and demand.case is not None and peak:
        products = demand.case.operation.matrix_products(demand.case)
        compute_s = hardware.array.seconds(products, peak) if products else compute_s
    elif product is not None and hardware.units is not None:
        ways = list(ways_of(product, hardware.units, hardware.tiles or TILES))
    found = []
    for occupancy, extra in ways:
        memory_s, level = 0.0, hardware.main.name
        for memory, crossing in zip(hardware.memory, demand.crossing, strict=True):
            size = crossing + (extra if memory is hardware.main else 0.0)
            if memory.gather_bytes:
                size = max(size, demand.gathers * memory.gather_bytes)
            if size and memory.bytes_per_s and size / memory.bytes_per_s > memory_s:
                memory_s, level = size / memory.bytes_per_s, memory.name
        found.append((compute_s / occupancy, memory_s, level))
    return found


@lru_cache(maxsize=2**16)
def ways_of(
    product: tuple[int, int, int, int], units_count: int, tiles: tuple[tuple[int, int], ...]
) -> tuple[tuple[float, float], ...]:
    """The occupancy of the best tile for each number of parts of the depth, and the bytes that adding them up takes."""
    count, m, n, k = product
    found: list[tuple[float, float]] = []
    for parts in SPLITS:
        if parts > k:
            break
        best = 0.0
        for rows, columns in tiles:
            waves = math.ceil(count * math.ceil(m / rows) * math.ceil(n / columns) * parts / units_count)
            useful = count * m * n * k / (waves * units_count * rows * columns * math.ceil(k / parts))
            best = max(best, useful / (1 + LOADS_COST * (1 / rows + 1 / columns)))
        if not found or best > found[-1][0]:  # more parts cost more bytes
            found.append((best, 8.0 * count * m * n * parts if parts > 1 else 0.0))
    return tuple(found)


# ---- fitting


@dataclass(frozen=True)
class Columns:
    """The roofline's times of many kernels on hardware, as arrays."""

    compute_s: Array
    """With a row for each way to cut products, as the next one."""
    memory_s: Array
    steps: Array
    measured_s: Array

    @classmethod
    def of(cls, demands: Sequence[Demand], times_s: Sequence[float], hardware: Hardware) -> Columns:
        """From demands and their measured times."""
        import numpy as np

        ways = [roofs(demand, hardware) for demand in demands]
        most = max(map(len, ways))
        padded = [[*found, *[found[0]] * (most - len(found))] for found in ways]
        compute_s, memory_s = (np.array([[way[i] for way in found] for found in padded]).T for i in (0, 1))
        return cls(compute_s, memory_s, np.array([float(d.steps) for d in demands]), np.array(times_s, float))

    def only(self, chosen: Array) -> Columns:
        """Those of some kernels."""
        return Columns(self.compute_s[:, chosen], self.memory_s[:, chosen], self.steps[chosen], self.measured_s[chosen])

    def predicted_s(self, c: Constants) -> Array:
        """Seconds by the model."""
        import numpy as np

        compute_s, memory_s = self.compute_s / c.compute, self.memory_s / c.memory
        largest = np.maximum(np.maximum(compute_s, memory_s), 1e-30)
        norm = largest * ((compute_s / largest) ** c.p + (memory_s / largest) ** c.p) ** (1 / c.p)
        return np.asarray(c.step_s * self.steps + norm.min(axis=0))

    def errors(self, c: Constants) -> Array:
        """Predicted / measured - 1."""
        import numpy as np

        return np.asarray(self.predicted_s(c) / self.measured_s - 1)


def fitted(columns: Columns, call_s: float | None) -> Constants:
    """The constants with the least mean relative error: a search on a grid that becomes finer."""
    import numpy as np

    # Where a call of no work would already take longer than a measured one, t₀ is too large.
    least_s = float(np.min(columns.measured_s / columns.steps))

    def cost(values: Sequence[float]) -> float:
        c = Constants(*values)
        error = float(np.mean(np.abs(columns.errors(c))))
        price = PRICE * (math.log(c.compute) ** 2 + math.log(c.memory) ** 2)
        return error + price + (PRICE_OF_CALL * math.log(c.step_s / call_s) ** 2 if call_s else 0.0)

    bounds = ((least_s * 1e-4, least_s), (1e-3, 4.0), (0.1, 4.0), (LEAST_P, MOST_P))
    best: tuple[float, list[float]] | None = None
    for p in (1.0, 4.0):
        found = minimum(cost, [least_s * 0.3, 0.7, 0.7, p], bounds)
        best = found if best is None or found[0] < best[0] else best
    assert best is not None, "there are starts"
    return Constants(*best[1])


def minimum(
    cost: Callable[[Sequence[float]], float],
    start: Sequence[float],
    bounds: Sequence[tuple[float, float]],
    first_step: float = 2.0,
    last_step: float = 1.01,
) -> tuple[float, list[float]]:
    """The least cost near a start, and where it is: one value after the other, by factors that become smaller."""
    values, least = list(start), cost(start)
    steps = [math.log(first_step)] * len(values)
    while max(steps) > math.log(last_step):
        for i, (low, high) in enumerate(bounds):
            for sign in (1, -1):
                moved = [*values]
                moved[i] = min(high, max(low, values[i] * math.exp(sign * steps[i])))
                if moved[i] != values[i] and (found := cost(moved)) < least - 1e-7:
                    values, least = moved, found
                    steps[i] *= 1.2
                    break
            else:
                steps[i] /= 1.8
    return least, values


def folds_of(keys: Sequence[object], count: int = FOLDS) -> list[int]:
    """The fold of each sample: those with equal keys are in one fold, so that none is predicted from its twin."""
    number: dict[object, int] = {}
    for key in keys:
        number.setdefault(key, len(number) % count)
    return [number[key] for key in keys]


def _columns(cases: Sequence[Case], times_s: Sequence[float], hardware: Hardware) -> Columns:
    return Columns.of([demand_of(case, hardware.capacities) for case in cases], times_s, hardware)


def fit_cases(title: str, cases: Sequence[Case], times_s: Sequence[float], hardware: Hardware) -> FittedModel:
    """The fit to measured times, cross-validated."""
    import numpy as np

    columns, call_s = _columns(cases, times_s, hardware), hardware.overhead.call_s
    fold = np.array(folds_of([sizes_of(case) for case in cases]))
    folds = tuple(fitted(columns.only(np.flatnonzero(fold != i)), call_s) for i in range(FOLDS))
    errors = np.array([columns.errors(c) for c in folds])[fold, np.arange(len(cases))].tolist()
    own = dict(zip(cases, errors, strict=True))
    return FittedModel(title, fitted(columns, call_s), Errors.of(errors), call_s, folds, own=own)


def sizes_of(case: Case) -> tuple[object, ...]:
    """What twins have in common: all sizes but whether an operand is transposed."""
    return tuple(v for name, v in case.problem.values.items() if name not in ("a_t", "b_t"))


# ---- all fits of a machine


class TimeModel:
    """The time model of a machine: fits to the times of its cases, made when they are needed."""

    def __init__(self, hardware: Hardware, times_s: Mapping[Case, float]) -> None:
        self.hardware = hardware
        self._times = dict(times_s)
        self._groups: dict[tuple[object, ...], list[Case]] = {}
        for case in self._times:
            for key in dict.fromkeys(_keys(case)):
                self._groups.setdefault(key, []).append(case)
        self._fits: dict[tuple[object, ...], FittedModel] = {}
        self._roofs: dict[Demand, list[Roof]] = {}
        self._chosen: dict[tuple[tuple[object, ...], ...], FittedModel] = {}

    @property
    def used(self) -> list[FittedModel]:
        """The fits that were asked for, each once."""
        return list({id(fit): fit for fit in self._chosen.values()}.values())

    def fit_of(self, case: Case | None) -> FittedModel:
        """The fit with the least error among those of the groups of a case with enough problems; else the roofline.

        A narrow group fits better, unless it has too few or too different problems.
        """
        keys = tuple(_keys(case))
        if keys not in self._chosen:
            fits = [self._fit(key) for key in keys if key in self._groups and self._has_enough(key)]
            self._chosen[keys] = min(fits, key=lambda fit: fit.errors.mean, default=None) or self._roofline(keys)
        return self._chosen[keys]

    def _has_enough(self, key: tuple[object, ...]) -> bool:
        return len({case.problem for case in self._groups[key]}) >= LEAST_PROBLEMS

    def roofs(self, demand: Demand) -> list[Roof]:
        """What a kernel takes at full rates on the hardware of the fits."""
        if demand not in self._roofs:
            self._roofs[demand] = roofs(demand, self.hardware)
        return self._roofs[demand]

    def _fit(self, key: tuple[object, ...]) -> FittedModel:
        if key not in self._fits:
            group = self._groups[key]
            self._fits[key] = fit_cases(_title(key), group, [self._times[case] for case in group], self.hardware)
        return self._fits[key]

    def _roofline(self, keys: Sequence[tuple[object, ...]]) -> FittedModel:
        """The roofline, with its error on the times of the narrowest group that has any."""
        group = next((self._groups[key] for key in keys if key in self._groups), [])
        call_s = self.hardware.overhead.call_s
        constants = Constants(step_s=call_s or 0.0)
        columns = _columns(group, [self._times[case] for case in group], self.hardware) if group else None
        own = dict(zip(group, map(float, columns.errors(constants)), strict=True)) if columns else {}
        title = f"{_title(keys[-1])}, too few times"
        return FittedModel(title, constants, Errors.of(own.values()), call_s, is_roofline=True, own=own)

    @property
    def errors(self) -> Errors | None:
        """The errors of all times of the fits that were asked for; None before the first.

        Groups overlap: a time of several fits counts once, in the fit with the least error, as in `fit_of`.
        """
        pooled: dict[Case, float] = {}
        for fit in sorted(self.used, key=lambda fit: fit.errors.mean):
            pooled = {**fit.own, **pooled}
        return Errors.of(pooled.values()) if pooled else None

    @property
    def sentence(self) -> str:
        """What was fitted, and how far it is off."""
        errors = self.errors
        if errors is None:
            return "Time model: no times to fit it to."
        fits = [fit for fit in self.used if not fit.is_roofline]
        if not fits:
            what = f"the roofline, because no operation has times of {LEAST_PROBLEMS} problems. Error"
        else:
            rest = "; the roofline where there are too few times" if len(fits) < len(self.used) else ""
            count = len({case for fit in fits for case in fit.own})
            what = f"{len(fits)} fit{'s' * (len(fits) > 1)} to {count} times of the file{rest}. Cross-validated error"
        return (
            f"Time model: {what} per kernel: mean {units.percent(errors.mean)}, median "
            f"{units.percent(errors.median)}, 90th percentile {units.percent(errors.high)}."
        )


def _keys(case: Case | None) -> list[tuple[object, ...]]:
    """The groups that a case belongs to, the narrowest first."""
    if case is None:
        return [("memory", F32)]
    kind = "products" if case.op in PRODUCTS else "memory"
    precision = case.precision.name
    return [
        (case.op, case.direction, precision, case.backend, *(f"{name}={value}" for name, value in case.overrides)),
        (case.op, case.direction, precision, case.backend),
        (case.op, precision, case.backend),
        (case.op, precision),
        (kind, precision),
    ]


def _title(key: tuple[object, ...]) -> str:
    kinds = {"products": "all products", "memory": "all other operations"}
    return " ".join(str(kinds.get(str(word), word)) for word in key)
