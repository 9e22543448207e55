"""GPUs ranked by one step of a model: by its time on the fewest of them that hold the model, or by its cost.

The time of a step is known once per framework, as the sum of its kernels. The median of the frameworks counts. The
interval reaches from the fastest to the slowest framework, each with the errors of its kernels: frameworks timed nearly
the same kernels, so their spread is the only estimate of the uncertainty of published times that there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from statistics import median
from typing import Literal

from deepbench.core.errors import BadInput, shorten
from deepbench.core.progress import Activity, Progress, no_progress
from deepbench.gpus import package
from deepbench.gpus.serving.server import USED_MEMORY, WORK_BYTES
from deepbench.gpus.serving.steps import Part, ServedFormat, StepTime, held, parts_of, step_times
from deepbench.gpus.sheet import Sheet, sheet
from deepbench.gpus.times import frameworks
from deepbench.plan.suites import model_of

By = Literal["time", "cost"]
DIVISION = ("tensor", "data", "expert", "expert_tensor")
COUNTS = (1, 2, 4, 8)

# With one framework, the interval has at least this: the usual distance between two of them.
ONE_FRAMEWORK = 0.1


@dataclass(frozen=True)
class Candidate:
    """A GPU, and one step of the model on the fewest of them that hold it."""

    machine: str
    devices: int
    weights_bytes: float
    """On each GPU."""
    cache_bytes: float
    """Keys and values of the sequences of the step, on each GPU."""
    fits: bool
    units: int
    """Tokens of a step."""
    steps: Mapping[str, StepTime] = field(default_factory=dict)
    """By framework."""
    reason: str | None = None
    """Why there is no time."""
    price_per_h: float | None = None
    """Of one GPU."""

    @property
    def sheet(self) -> Sheet:
        """Of the GPU."""
        return sheet(self.machine)

    @property
    def is_ranked(self) -> bool:
        """Whether it has a time, and the model fits."""
        return bool(self.steps) and self.fits

    @property
    def time_s(self) -> float | None:
        """Of a step: the median of the frameworks."""
        return median(step.total_s for step in self.steps.values()) if self.steps else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """At least 95 % of it."""
        if not self.steps:
            return None
        low, high = min(s.low_s for s in self.steps.values()), max(s.high_s for s in self.steps.values())
        if len(self.steps) == 1:
            (only,) = self.steps.values()
            low, high = min(low, only.total_s * (1 - ONE_FRAMEWORK)), max(high, only.total_s * (1 + ONE_FRAMEWORK))
        return low, high

    @property
    def units_per_s(self) -> float | None:
        """Tokens per second, of all GPUs together."""
        return self.units / self.time_s if self.time_s else None

    @property
    def cost(self) -> float | None:
        """Of a million tokens, in the currency of the price."""
        if self.price_per_h is None or not self.units_per_s:
            return None
        return self.price_per_h * self.devices / 3600 * 1e6 / self.units_per_s

    @property
    def most_joules(self) -> float | None:
        """Of a token, if each GPU took the power that the data sheet allows: an upper bound."""
        power = self.sheet.power_w
        return power * self.devices / self.units_per_s if power and self.units_per_s else None

    def share(self, how: str) -> float | None:
        """Of the time of all frameworks: measured, interpolated or modelled."""
        if not self.steps:
            return None
        total = sum(step.total_s for step in self.steps.values())
        return sum(step.total_s * step.shares.get(how, 0.0) for step in self.steps.values()) / total

    def value(self, by: By) -> float | None:
        """What it is ranked by."""
        return self.cost if by == "cost" else self.time_s

    def ends(self, by: By) -> tuple[float, float] | None:
        """The interval of the same; prices are exact."""
        value, interval, time_s = self.value(by), self.interval, self.time_s
        if value is None or interval is None or not time_s:
            return None
        return value * interval[0] / time_s, value * interval[1] / time_s


@dataclass(frozen=True)
class ModelRanking:
    """GPUs by one step of a model."""

    title: str
    suite: str
    phase: str
    unit: str
    parameters: Mapping[str, int]
    format: ServedFormat
    candidates: Sequence[Candidate]
    """The ranked ones, the best first; then those without a rank."""
    by: By

    @property
    def ranked(self) -> list[Candidate]:
        """Those with a time that hold the model."""
        return [c for c in self.candidates if c.is_ranked]

    @property
    def could_be_best(self) -> list[Candidate]:
        """Those after the first whose interval reaches that of the first."""
        ranked = self.ranked
        if not ranked:
            return []
        best = ranked[0].ends(self.by)
        near = []
        for other in ranked[1:]:
            ends = other.ends(self.by)
            if best is None or ends is None or ends[0] <= best[1]:
                near.append(other)
        return near


@dataclass(frozen=True)
class AskedStep:
    """One step of a model that GPUs are ranked by."""

    suite: str
    phase: str | None
    """None: the first one of decode and prefill that the model has."""
    settings: Mapping[str, str]
    format: ServedFormat


def rank(
    suite: str,
    machines: Sequence[str],
    phase: str | None,
    settings: Mapping[str, str],
    kind: ServedFormat,
    framework: str | None = None,
    prices: Mapping[str, float] | None = None,
    devices: int | None = None,
) -> ModelRanking:
    """Rank GPUs by a step of a model. `BadInput` for a phase, a setting or a GPU that does not exist."""
    fixed = {name: int(settings[name]) for name in DIVISION if settings.get(name, "").isdecimal()}
    used = fixed.get("tensor", 1) * fixed.get("data", 1)
    if fixed and devices not in (None, used):
        raise BadInput(f"{devices} devices are wanted, and the sizes of the model divide it over {used}; leave one out")
    (found,) = rank_all([AskedStep(suite, phase, settings, kind)], machines, framework, prices, devices)
    if all(candidate.reason for candidate in found.candidates):
        raise BadInput(f"{found.candidates[0].machine} cannot be ranked: {found.candidates[0].reason}")
    return found


def rank_all(
    steps: Sequence[AskedStep],
    machines: Sequence[str],
    framework: str | None = None,
    prices: Mapping[str, float] | None = None,
    devices: int | None = None,
    progress: Progress = no_progress,
) -> list[ModelRanking]:
    """Rank GPUs by each of many steps, whose kernels are looked up together. `BadInput` as for one step."""
    chosen = [_chosen(step) for step in steps]
    names = [package.find(name) for name in machines]
    if twice := [name for name in names if names.count(name) > 1]:
        raise BadInput(f"a GPU is named twice: {twice[0]}; name each once")
    by_machine = []
    for i, name in enumerate(names):
        progress(Activity(name, i, len(names)))
        price = (prices or {}).get(name)
        plans = [_plan(step, name, own, price, devices) for step, own in zip(steps, chosen, strict=True)]
        by_machine.append(_timed(plans, name, framework))
    candidates = list(zip(*by_machine, strict=True)) if by_machine else [()] * len(steps)
    return [_ranking(step, own, found) for step, own, found in zip(steps, chosen, candidates, strict=True)]


def _chosen(step: AskedStep) -> tuple[str, dict[str, int]]:
    """The phase and the parameters of a step, defaults included."""
    model = model_of(step.suite)
    phases = [name for name in model.phases if name in ("decode", "prefill")]
    if not phases:
        raise BadInput(f"{step.suite} has no phase decode or prefill; GPUs are ranked by the steps of language models")
    phase = step.phase or ("decode" if "decode" in phases else phases[0])
    if phase not in phases:
        raise BadInput(f"{step.suite} has the phases {', '.join(phases)} to rank GPUs by, found {shorten(phase)!r}")
    return model.chosen({"phase": phase, **step.settings})


def _ranking(step: AskedStep, chosen: tuple[str, Mapping[str, int]], found: Sequence[Candidate]) -> ModelRanking:
    model, (phase, parameters) = model_of(step.suite), chosen
    by: By = "cost" if all(c.cost is not None for c in found if c.is_ranked) and any(map(_has_cost, found)) else "time"

    def order(candidate: Candidate) -> tuple[bool, float]:
        return not candidate.is_ranked, candidate.value(by) or 0.0

    ordered = sorted(found, key=order)
    return ModelRanking(model.title, step.suite, phase, model.unit_of(phase), parameters, step.format, ordered, by)


def _has_cost(candidate: Candidate) -> bool:
    return candidate.is_ranked and candidate.cost is not None


def _plan(
    step: AskedStep, machine: str, chosen: tuple[str, Mapping[str, int]], price: float | None, devices: int | None
) -> tuple[Candidate, Sequence[Part] | None]:
    """The fewest GPUs that hold the model, without a time, and its kernels on each; None: it cannot be divided so."""
    suite, (phase, parameters) = step.suite, chosen
    fixed = {name: int(step.settings[name]) for name in DIVISION if name in step.settings}
    own = {name: value for name, value in parameters.items() if name not in DIVISION}
    first: Candidate | None = None
    for count in COUNTS if devices is None and not fixed else [devices or 1]:
        division = fixed or divided(suite, count)
        used = division.get("tensor", 1) * division.get("data", 1)
        pairs = tuple(sorted({**own, **division}.items()))
        try:
            parts = parts_of(suite, phase, pairs, step.format)
        except BadInput as error:
            if fixed or devices is not None:
                raise
            if first is None:
                first = Candidate(machine, used, 0.0, 0.0, False, 0, reason=str(error), price_per_h=price)
            continue
        memory = held(suite, tuple(division.items()), step.format)
        cached = memory.cached * own.get("batch", 1) * own.get("context", 1)
        room = USED_MEMORY * (sheet(machine).memory_bytes or 0.0) - WORK_BYTES
        fits = memory.weights + cached <= room
        units = model_of(suite).units(phase, dict(pairs))
        candidate = Candidate(machine, used, memory.weights, cached, fits, units, price_per_h=price)
        if first is None or not first.fits:
            first = candidate
        if fits or count == COUNTS[-1] or devices is not None or fixed:
            return candidate, parts
    assert first is not None, "there is at least one number of GPUs"
    return first, None


def divided(suite: str, devices: int, data: int = 1, expert: int | None = None) -> dict[str, int]:
    """How a model is divided over so many GPUs: tensor parallelism in `data` groups, and each expert over all GPUs.

    With `expert`, so many groups of GPUs have experts of their own. `BadInput` where a number does not divide.
    """
    if devices % data:
        raise BadInput(f"data must divide the {devices} GPUs, found {data}")
    sizes = {"tensor": devices // data, "data": data}
    if not model_of(suite).sizes.get("experts", 0):
        if expert not in (None, 1):
            raise BadInput(f"{suite} has no experts; leave out expert={expert}")
        return sizes
    spread = expert or 1
    if devices % spread:
        raise BadInput(f"expert must divide the {devices} GPUs, found {spread}")
    return {**sizes, "expert": spread, "expert_tensor": devices // spread}


def _timed(
    plans: Sequence[tuple[Candidate, Sequence[Part] | None]], machine: str, framework: str | None
) -> list[Candidate]:
    """The candidates of a GPU with the times of their kernels."""
    known = frameworks(machine, "linear")
    if framework is not None and framework not in known:
        absent = f"no times of {framework}; there are {', '.join(known)}"
        return [candidate if parts is None else replace(candidate, reason=absent) for candidate, parts in plans]
    planned = [parts for _, parts in plans if parts is not None]
    by_framework = {name: step_times(planned, machine, name) for name in ([framework] if framework else known)}
    found, at = [], 0
    for candidate, parts in plans:
        if parts is None:
            found.append(candidate)
            continue
        steps = {name: times[at] for name, times in by_framework.items() if not isnan(times[at].total_s)}
        reason = None if steps else "no published times of its kernels in this precision"
        found.append(replace(candidate, steps=steps, reason=reason))
        at += 1
    return found
