"""What a change of hardware or of a library does to applications, and which change helps most.

On the same hardware a change scales the measurement: t₂ = t₁ · model(after) / model(before), so what the model misses
of a kernel stays in its time. On other hardware there is only the model.

**Intervals.** Of the time t of a kernel the model explains t · (1 ± e), where e is its cross-validated error. The rest
may depend on whatever changes, or on nothing that changes. With r = model(after) / model(before), and r₀ and r₁ the
least and the largest factor by which the change scales any part of the time, the ratio lies between r − e · (r − r₀)
and r + e · (r₁ − r). The parts are known as well as the constants of the model: the interval covers those of every fold
of the cross-validation. `Fit.unexplained` is e. The interval of a sum adds up the ends of its terms.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from deepbench.core.case import Case
from deepbench.judge.demand import Demand, demand_of, demand_of_bytes
from deepbench.networks.what_if.hardware import Hardware
from deepbench.networks.what_if.knobs import Change, Knob
from deepbench.networks.what_if.terms import ModelledApplication, Term
from deepbench.networks.what_if.time_model import (
    OPERATOR,
    Constants,
    ModelledTime,
    TimeModel,
    parts_of,
    peak_name,
    roofs,
)
from deepbench.results.peaks import F32

# A knob is turned by so much to find its elasticity.
SMALL_STEP = 1.0001

TWICE = 2.0


@dataclass(frozen=True)
class Range:
    """A value with the ends of its interval."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Range:
        """All of it multiplied."""
        return Range(factor * self.value, factor * self.low, factor * self.high)

    @property
    def inverse(self) -> Range:
        """The speed-up of a ratio of times."""
        return Range(1 / self.value, 1 / self.high, 1 / self.low)


@dataclass(frozen=True)
class Effect:
    """What a change does to one term."""

    term: Term
    ratio: Range
    """The time after the change over the time before; its interval is that of one kernel."""
    in_sum: Range
    """The same with the interval that counts in sums."""
    limits: tuple[float, float]
    """The ratio if all of its time scaled like the part that gains most, or least."""
    before: ModelledTime
    after: ModelledTime
    library: str | None = None
    """After the change, where another library than before is the fastest."""

    @property
    def after_s(self) -> float:
        """Of one call."""
        return self.term.seconds * self.ratio.value

    @property
    def saved_s(self) -> float:
        """Of all calls; below 0 where the change costs time."""
        return self.term.count * (self.term.seconds - self.after_s)


@dataclass(frozen=True)
class ApplicationEffect:
    """What a change does to an application."""

    application: ModelledApplication
    change: Change
    effects: Sequence[Effect]
    ratio: Range
    """The time after the change over the time before."""

    @property
    def before_s(self) -> float:
        """Measured."""
        return self.application.seconds

    @property
    def after_s(self) -> float:
        """Predicted."""
        return self.before_s * self.ratio.value

    @property
    def speed_up(self) -> Range:
        """How many times faster."""
        return self.ratio.inverse

    @property
    def bound_before(self) -> Mapping[str, float]:
        """The share of the time by what limits it, the largest first."""
        return _bounds((e.term.total_s, e.before) for e in self.effects)

    @property
    def bound_after(self) -> Mapping[str, float]:
        """The same after the change."""
        return _bounds((e.term.count * e.after_s, e.after) for e in self.effects)


def _bounds(parts: Iterable[tuple[float, ModelledTime]]) -> dict[str, float]:
    listed = list(parts)
    total = sum(seconds for seconds, _ in listed) or 1.0
    shares: dict[str, float] = {}
    for seconds, part in listed:
        for name, share in part.shares.items():
            shares[name] = shares.get(name, 0.0) + seconds * share / total
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


# ---- a change


def what_if(application: ModelledApplication, model: TimeModel, change: Change) -> ApplicationEffect:
    """What a change does to an application on the hardware on which it was measured."""
    after = model.hardware.changed(*change.of_hardware)
    return outcome(application, change, [effect(term, model, after, change) for term in application.terms])


def outcome(application: ModelledApplication, change: Change, effects: Sequence[Effect]) -> ApplicationEffect:
    """The outcome for an application whose terms change like this."""
    return ApplicationEffect(application, change, effects, _sum(effects))


def effect(term: Term, model: TimeModel, after: Hardware, change: Change) -> Effect:
    """What a change does to one term.

    Where the change scales the times of a library, the fastest of the term and its rivals afterwards counts. Changes of
    hardware leave every kernel on its library: differences between fits would decide, and always for the better.
    """
    own = fastest = _on_its_library(term, model, after, change)
    if any(knob.is_time for knob in change.knobs):
        others = (_on_its_library(rival, model, after, change) for rival in term.rivals)
        fastest = min((own, *others), key=lambda e: e.after_s)
    if fastest is own:
        return own
    by, (least, most) = fastest.term.seconds / term.seconds, fastest.limits
    library = fastest.term.case.backend if fastest.term.case is not None else None
    ratio, in_sum = fastest.ratio.times(by), fastest.in_sum.times(by)
    return Effect(term, ratio, in_sum, (by * least, by * most), own.before, fastest.after, library)


def _on_its_library(term: Term, model: TimeModel, after: Hardware, change: Change) -> Effect:
    if term.is_overhead:
        return _of_overhead(term, model.hardware, after)
    fit = model.fit_of(term.case)
    one, other = _demand(term, model.hardware), _demand(term, after)
    roofs_before, roofs_after = model.roofs(one), roofs(other, after)

    def both(c: Constants) -> tuple[ModelledTime, ModelledTime]:
        return (
            parts_of(one, model.hardware, c, fit.call_s, roofs_before),
            parts_of(other, after, c, fit.call_s, roofs_after),
        )

    before, changed = both(fit.constants)
    ratio = changed.seconds / before.seconds
    folds = [second.seconds / first.seconds for first, second in map(both, fit.folds)]
    low, high = min([ratio, *folds]), max([ratio, *folds])
    least, most = _extremes(before, changed, (model.hardware, after))
    factor = change.time_factor(term.case)
    single, in_sum = (
        Range(ratio, low - e * max(0.0, low - least), high + e * max(0.0, most - high)).times(factor)
        for e in (fit.unexplained(term.case, counts) for counts in (False, True))
    )
    return Effect(term, single, in_sum, (factor * least, factor * most), before, changed)


def _of_overhead(term: Term, before: Hardware, after: Hardware) -> Effect:
    """What a framework adds: as much more or less as the hardware says of an operator."""
    known = before.overhead.operator_s, after.overhead.operator_s
    ratio = known[1] / known[0] if known[0] and known[1] else 1.0
    one, other = (ModelledTime(seconds, 0.0, 0.0, before.main.name, 1.0, OPERATOR) for seconds in (1.0, ratio))
    exact = Range(ratio, ratio, ratio)
    return Effect(term, exact, exact, (min(1.0, ratio), max(1.0, ratio)), one, other)


def _extremes(before: ModelledTime, after: ModelledTime, hardware: tuple[Hardware, Hardware]) -> tuple[float, float]:
    """The least and the largest factor by which a change scales a part of the time; 1 belongs to what it leaves.

    Every level of memory counts, because the model may be wrong about the one that a kernel reads.
    """
    factors = [1.0]
    factors += [other / one for one, other in zip(before.times, after.times, strict=True) if one > 0]
    for one, other in zip(*(h.memory for h in hardware), strict=False):
        if one.bytes_per_s and other.bytes_per_s and one.name == other.name:
            factors.append(one.bytes_per_s / other.bytes_per_s)
    return min(factors), max(factors)


def _demand(term: Term, hardware: Hardware) -> Demand:
    if term.case is None:
        return demand_of_bytes(term.bytes, hardware.capacities)
    return demand_of(term.case, hardware.capacities)


def _sum(effects: Sequence[Effect]) -> Range:
    """The ratio of sums, with its interval from the model and from the measurement.

    An error of the measured time of a term changes its weight in the ratio. All such errors may have the worst sign.
    Whatever the weights are, the ratio stays between those of the terms that gain most and least.
    """
    total = sum(e.term.total_s for e in effects)
    if not total:
        return Range(1.0, 1.0, 1.0)
    weighted = [(e.term.total_s / total, e) for e in effects]
    value, low, high = (sum(w * getattr(e.in_sum, end) for w, e in weighted) for end in ("value", "low", "high"))
    measured = sum(w * _half_width(e.term) * abs(e.ratio.value - value) for w, e in weighted)
    least, most = min(e.limits[0] for e in effects), max(e.limits[1] for e in effects)
    # Rounding may put the value itself outside of what is possible.
    return Range(value, min(value, max(least, low - measured)), max(value, min(most, high + measured)))


def _half_width(term: Term) -> float:
    """Half the interval of a measured time relative to it; 0 where there is none, which the reader is told."""
    return 0.0 if term.low_s is None or term.high_s is None else (term.high_s - term.low_s) / 2 / term.seconds


# ---- sensitivity


@dataclass(frozen=True)
class KnobSensitivity:
    """How much an application depends on one knob."""

    knob: str
    elasticity: float | None
    """d ln T / d ln knob: by how many percent the time changes for one percent more; None for a size, which changes the
    time in steps."""
    twice: ApplicationEffect
    """Twice the rate or the size, half the fixed cost or the time: what helps."""


def sensitivity(application: ModelledApplication, model: TimeModel, knobs: Sequence[str] = ()) -> list[KnobSensitivity]:
    """One entry per knob of the hardware, the one that helps most first."""
    found = []
    for name in knobs or useful_knobs(application, model):
        is_cost = is_fixed_cost(name)
        twice = Change((Knob.parse(f"{name}{'/' if is_cost else '*'}{TWICE:g}"),))
        is_size = name.endswith((".bytes", ".rows", ".columns", ".count")) or name == "units"
        elasticity = None if is_size else _elasticity(application, model, name)
        found.append(KnobSensitivity(name, elasticity, what_if(application, model, twice)))
    return sorted(found, key=lambda s: s.twice.ratio.value)


def is_fixed_cost(knob: str) -> bool:
    """Whether more of it makes everything slower."""
    return knob.endswith("_s") and not knob.endswith("bytes_per_s")


def useful_knobs(application: ModelledApplication, model: TimeModel) -> list[str]:
    """The knobs that any term of an application may depend on: peaks of its precisions, the memory, fixed costs."""
    # Every precision has at least the peak of f32.
    used = {name for t in application.terms if t.case is not None for name in (peak_name(t.case), F32)}
    names = []
    for name in model.hardware.knobs:
        first, *rest = name.split(".")
        is_of_operators = name == "overhead.operator_s" and not any(t.is_overhead for t in application.terms)
        is_unused = (first == "peak" and rest[0] not in used) or is_of_operators
        if not is_unused and name != f"memory.{model.hardware.main.name}.bytes":
            names.append(name)
    return names


def _elasticity(application: ModelledApplication, model: TimeModel, name: str) -> float:
    # More only, never less: where two peaks are equal, the larger one counts, and less of one changes nothing.
    more = Change((Knob.parse(f"{name}*{SMALL_STEP}"),))
    return math.log(what_if(application, model, more).ratio.value) / math.log(SMALL_STEP)


# ---- another device


@dataclass(frozen=True)
class Elsewhere:
    """An application on hardware on which nothing was measured: what the model says, and nothing else."""

    application: ModelledApplication
    hardware: Hardware
    seconds: float
    low_s: float
    high_s: float
    parts: Sequence[tuple[Term, ModelledTime]]

    @property
    def bound(self) -> Mapping[str, float]:
        """The share of the time by what limits it."""
        return _bounds((term.count * parts.seconds, parts) for term, parts in self.parts)


# By what factor the time of all published products was at most wrong on a device whose times took no part in the fit:
# the sum of the T4 was 43 % too small (`benchmarks/time_model.py`, eleven devices).
OTHER_DEVICE = 1.8

# The mean errors per kernel on these devices: from the least to the largest.
OTHER_DEVICE_KERNEL = (0.17, 0.34)


def elsewhere(application: ModelledApplication, model: TimeModel, other: Hardware) -> Elsewhere:
    """The time of an application on other hardware, with the constants that were fitted on this one."""
    found = [(term, _there(term, model, other)) for term in application.terms]
    seconds = sum(term.count * parts.seconds for term, parts in found)
    return Elsewhere(application, other, seconds, seconds / OTHER_DEVICE, seconds * OTHER_DEVICE, found)


def _there(term: Term, model: TimeModel, other: Hardware) -> ModelledTime:
    """The time of a term on other hardware, with the constants of its fastest library there."""
    if term.is_overhead:
        ratio = _of_overhead(term, model.hardware, other).ratio.value
        return ModelledTime(term.seconds * ratio, 0.0, 0.0, other.main.name, 1.0, OPERATOR)
    ways = [model.fit_of(t.case).parts(_demand(t, other), other) for t in (term, *term.rivals)]
    return min(ways, key=lambda parts: parts.seconds)


def model_of(
    applications: Iterable[ModelledApplication], hardware: Hardware, further: Iterable[Term] = ()
) -> TimeModel:
    """The time model of a machine, fitted to every term and rival of these applications that has a case."""
    samples: dict[Case, float] = {}
    for application in applications:
        for term in application.terms:
            for t in (term, *term.rivals):
                if t.case is not None:
                    samples[t.case] = t.seconds
    samples |= {t.case: t.seconds for t in further if t.case is not None}
    return TimeModel(hardware, samples)


# ---- several changes of several applications


@dataclass(frozen=True)
class ChangeEffects:
    """Changes and what they do to applications."""

    model: TimeModel
    applications: Sequence[ModelledApplication]
    changes: Sequence[Change]
    """Each one alone, as it was asked for."""

    @property
    def columns(self) -> list[Change]:
        """Each change alone and, if there are several that are no alternatives, all together."""
        several = [Change.together(self.changes)] if self.has_together else []
        return [*self.changes, *several]

    @property
    def has_together(self) -> bool:
        """Whether there are several changes, and no two of them change the same value of the hardware."""
        changed = [knob.path for change in self.changes for knob in {k.path: k for k in change.of_hardware}.values()]
        return len(self.changes) > 1 and len(set(changed)) == len(changed)

    @cached_property
    def outcomes(self) -> list[list[ApplicationEffect]]:
        """For each application: what each of `columns` does."""
        return [[what_if(a, self.model, change) for change in self.columns] for a in self.applications]

    @cached_property
    def whole(self) -> list[ApplicationEffect]:
        """The same for one pass of each application, one after the other."""
        together = self._together
        return [what_if(together, self.model, change) for change in self.columns]

    def mean(self, column: int) -> Range:
        """The geometric mean of the speed-ups by one of `columns`, in which each application counts alike."""
        ranges = [outcomes[column].speed_up for outcomes in self.outcomes]
        ends = ([getattr(r, end) for r in ranges] for end in ("value", "low", "high"))
        return Range(*(statistics.geometric_mean(values) for values in ends))

    @property
    def is_of_one_precision(self) -> bool:
        """Whether a sum over the applications counts each model once."""
        return len({a.precision for a in self.applications}) == 1

    @cached_property
    def sensitivities(self) -> list[KnobSensitivity]:
        """Of one pass of each application, one entry per knob."""
        return sensitivity(self._together, self.model)

    @cached_property
    def sensitivities_of_each(self) -> list[list[KnobSensitivity]]:
        """Of each application, for the knobs of `sensitivities` in their order."""
        knobs = [s.knob for s in self.sensitivities]
        found = [{s.knob: s for s in sensitivity(a, self.model, knobs)} for a in self.applications]
        return [[by_knob[knob] for knob in knobs] for by_knob in found]

    @property
    def _together(self) -> ModelledApplication:
        if len(self.applications) == 1:
            return self.applications[0]
        title = f"all {len(self.applications)}, one pass of each"
        return ModelledApplication(title, [term for a in self.applications for term in a.terms])

    def values(self, with_sensitivity: bool = True) -> dict[str, Any]:
        """All of it as plain values, for programs."""
        return {
            "hardware": self.model.hardware.values(),
            "applications": [
                {
                    "application": a.title,
                    "suite": a.suite,
                    "time_s": a.seconds,
                    "kernels": len(a.terms),
                    "remarks": dict(a.remarks),
                    "changes": [_outcome_values(o) for o in outcomes],
                }
                for a, outcomes in zip(self.applications, self.outcomes, strict=True)
            ],
            "sensitivity": [
                {"knob": s.knob, "elasticity": s.elasticity, "speed_up_of_twice": asdict(s.twice.speed_up)}
                for s in (self.sensitivities if with_sensitivity else [])
            ],
            "fits": [fit.values() for fit in self.model.used],
        }


def _outcome_values(o: ApplicationEffect) -> dict[str, Any]:
    return {
        "change": o.change.text,
        "time_s": o.after_s,
        "speed_up": asdict(o.speed_up),
        "bound_before": dict(o.bound_before),
        "bound_after": dict(o.bound_after),
        "kernels": [
            {
                "kernel": e.term.label,
                "count": e.term.count,
                "before_s": e.term.seconds,
                "after_s": e.after_s,
                "ratio": asdict(e.ratio),
                "bound_before": e.before.bound,
                "bound_after": e.after.bound,
                "library_after": e.library,
            }
            for e in o.effects
        ],
    }
