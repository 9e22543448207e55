"""Machines ranked by application: by time, or by cost where prices are known, and how certain the order is.

A ranking of machines. The rank of a process in a group is another thing (`core/collective.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from deepbench.core.aliases import did_you_mean
from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.core.precision import find_precision
from deepbench.judge import heats
from deepbench.judge.totals import Total
from deepbench.results import published

By = Literal["time", "cost"]
Certainty = Literal["certain", "overlap", "one process", "no interval"]

ALL = "all"
WIDTHS = ("8", "16", "19", "32")

# A pass calls each kernel of an application once, or as often as a model does. Costs are of so many passes.
PASSES = 1e6


@dataclass(frozen=True)
class Machine:
    """The machine of a result file."""

    name: str
    kind: Literal["measured", "imported"]
    totals: Sequence[Total]
    price_per_h: float | None = None
    is_published: bool = False
    """Whether the original DeepBench published it; otherwise it is a result file."""
    is_simulated: bool = False
    """Whether a simulator or a model says its times."""


@dataclass(frozen=True)
class Place:
    """A machine in the ranking of an application."""

    machine: Machine
    total: Total | None
    """Its best precision and number of threads; None where it has no kernel in a precision that competes."""
    is_bound: bool = False
    """Whether its total contains disturbed times, and even so is below those of all others: it is an upper bound."""
    has_kernels: bool = True
    """Whether it has a kernel of the application in any precision."""

    @property
    def is_ranked(self) -> bool:
        """Whether it has a total that is trusted, or whose order is beyond doubt."""
        return self.total is not None and (self.total.is_ranked or self.is_bound)

    @property
    def time_s(self) -> float | None:
        """The total."""
        return self.total.time_s if self.total else None

    @property
    def cost(self) -> float | None:
        """What a million passes cost, in the currency of the price."""
        price = self.machine.price_per_h
        return None if self.time_s is None or price is None else PASSES * self.time_s / 3600 * price

    def value(self, by: By) -> float | None:
        """What it is ranked by."""
        return self.time_s if by == "time" else self.cost

    def interval(self, by: By) -> tuple[float, float] | None:
        """At least a 95 % interval of the value; prices are exact."""
        value, total = self.value(by), self.total
        if self.is_bound:
            return None
        if value is None or total is None or total.time_s is None or total.low_s is None or total.high_s is None:
            return None
        return value * total.low_s / total.time_s, value * total.high_s / total.time_s


@dataclass(frozen=True)
class Ranking:
    """The machines by one application of a suite."""

    suite: str
    application: str
    places: Sequence[Place]
    """The ranked ones, the best first; then those with disturbed times; then those without a total."""
    by: By

    @property
    def title(self) -> str:
        """`Speech Recognition (server)`."""
        return f"{self.application} ({self.suite.removeprefix('deepbench/')})"

    @property
    def ranked(self) -> list[Place]:
        """The machines with a total that is trusted, the best first."""
        return [place for place in self.places if place.is_ranked]

    def over_best(self, place: Place) -> float | None:
        """The value of a ranked machine over that of the best; None for the best."""
        ranked = self.ranked
        value, best = place.value(self.by), ranked[0].value(self.by) if ranked else None
        return value / best if value and best and place.is_ranked and place is not ranked[0] else None

    def interval_over_best(self, place: Place) -> tuple[float, float] | None:
        """An interval of the same ratio: it contains every ratio of values within both intervals."""
        ends = place.interval(self.by), self.ranked[0].interval(self.by) if self.ranked else None
        if self.over_best(place) is None or ends[0] is None or ends[1] is None:
            return None
        return ends[0][0] / ends[1][1], ends[0][1] / ends[1][0]

    @property
    def certainty(self) -> Certainty | None:
        """How certain it is that the first one is better than the second; None where there are not two to compare."""
        return self.compared(self.ranked[1]) if len(self.ranked) > 1 else None

    @property
    def could_be_best(self) -> list[tuple[Place, Certainty]]:
        """Machines after the first that could be the best, too, and why that is not excluded."""
        kinds = [(place, self.compared(place)) for place in self.ranked[1:]]
        return [(place, kind) for place, kind in kinds if kind != "certain" and self._is_near(place)]

    def compared(self, other: Place) -> Certainty:
        """How certain it is that the first one is better than this one."""
        best = self.ranked[0]
        if best.is_bound:
            return "certain"
        one, two = best.interval(self.by), other.interval(self.by)
        if one is None or two is None:
            return "no interval"
        if two[0] <= one[1]:
            return "overlap"
        single = any(place.total is not None and place.total.single_process for place in (best, other))
        return "one process" if single and not heats.is_order(self.over_best(other) or 1.0) else "certain"

    def _is_near(self, other: Place) -> bool:
        """Whether a machine could be the best. Without an interval that is so within 10 %, as with one process."""
        one, two = self.ranked[0].interval(self.by), other.interval(self.by)
        high, low = one[1] if one else self.ranked[0].value(self.by), two[0] if two else other.value(self.by)
        return high is not None and low is not None and low <= high * (1 + heats.ONE_PROCESS)

    @property
    def more_rounds_help(self) -> bool:
        """Whether the order is uncertain and can be measured again. An imported time stays without an interval."""
        near = [*self.ranked[:2], *(place for place, _ in self.could_be_best)]
        again = all(place.machine.kind == "measured" or place.interval(self.by) for place in near)
        return again and (self.certainty != "certain" or bool(self.could_be_best))


# ---- which precisions compete


Competes = Callable[["Machine", Total], bool]


def competing(words: Sequence[str]) -> Competes:
    """Whether a total competes: in a precision or width that is named, or else in one that meets DeepBench's minimum.

    A width stands for its precisions that meet the minimum. An imported total competes in every precision that
    multiplies as many bits: other programs do not say more. `BadInput` for unknown words.
    """
    wanted = set[str]()
    for word in words:
        name = published.THEIRS.get(word, word)
        if name not in (*WIDTHS, ALL):
            find_precision(name)
        wanted.add(name)

    def competes(machine: Machine, total: Total) -> bool:
        if ALL in wanted or total.precision in wanted:
            return True
        if machine.kind == "imported" and wanted & {*published.PRECISIONS.get(total.precision, ())}:
            return True
        return not total.below_minimum and (not wanted or str(total.bits) in wanted)

    return competes


# ---- ranking


def rankings(machines: Sequence[Machine], competes: Competes) -> list[Ranking]:
    """A ranking for each application of a suite of which any machine has a time."""
    keys = {(t.suite, t.application): None for m in machines for t in m.totals if t.measured}
    return [_ranking(machines, suite, application, competes) for suite, application in sorted(keys)]


def apart(found: Sequence[Ranking]) -> list[str]:
    """The names of the result files that have no application in common with any other machine."""
    having = [[p.machine for p in r.places if p.has_kernels] for r in found]
    shared = {machine.name for machines in having if len(machines) > 1 for machine in machines}
    every = {machine.name: machine for machines in having for machine in machines}
    return [name for name, machine in every.items() if name not in shared and not machine.is_published]


def _ranking(machines: Sequence[Machine], suite: str, application: str, competes: Competes) -> Ranking:
    places = []
    for machine in machines:
        own = [t for t in machine.totals if (t.suite, t.application) == (suite, application)]
        of_kind = [t for t in own if competes(machine, t)]
        has_kernels = any(t.measured for t in own)
        places.append(Place(machine, min(of_kind, key=_standing, default=None), has_kernels=has_kernels))
    places = _with_bound(places)
    ranked = [p for p in places if p.is_ranked]
    by: By = "cost" if ranked and all(p.cost is not None for p in ranked) else "time"

    def order(place: Place) -> tuple[int, float]:
        standing = _standing(place.total)
        return (0, place.value(by) or 0.0) if place.is_ranked else standing

    return Ranking(suite, application, sorted(places, key=order), by)


def _with_bound(places: Sequence[Place]) -> list[Place]:
    """The places; a total with disturbed times is ranked if it is the only one, and below all others in their interval.

    Disturbance only adds time. So the order is beyond doubt, also by cost if the prices say so.
    """
    disturbed = [p for p in places if p.total and p.total.disturbed and p.time_s is not None]
    trusted = [p for p in places if p.is_ranked]
    if len(disturbed) != 1 or not trusted:
        return list(places)
    (only,) = disturbed

    def is_below(by: By) -> bool:
        value, ends = only.value(by), [(p.interval(by), p.value(by)) for p in trusted]
        lows = [interval[0] if interval else other for interval, other in ends]
        return value is not None and all(low is not None and value < low for low in lows)

    has_prices = all(p.cost is not None for p in (only, *trusted))
    if not is_below("cost" if has_prices else "time"):
        return list(places)
    return [replace(p, is_bound=True) if p is only else p for p in places]


def _standing(total: Total | None) -> tuple[int, float]:
    """Totals that are trusted come first, then disturbed ones, then sums over some kernels: the most kernels first."""
    if total is None:
        return 3, 0.0
    if total.time_s is None:
        return 2, -total.measured / total.kernels
    return (1 if total.disturbed else 0), total.time_s


# ---- what people call machines and applications


def machine_named(known: Sequence[str], text: str) -> str:
    """The machine whose name is this text or contains it, ignoring case; `BadInput` for none or several."""
    wanted = printable(text).lower()
    exact = [name for name in known if name.lower() == wanted]
    # A file may be named as it was on the command line.
    of_file = [name for name in known if _stem(wanted).endswith(_stem(name.lower()))]
    within = [name for name in known if wanted and wanted in name.lower()]
    found = next((names for names in (exact, of_file, within) if names), [])
    if len(found) != 1:
        reason = f"several machines ({', '.join(found)})" if found else f"none of {', '.join(known)}"
        raise BadInput(f"--price names {reason}: {shorten(text)!r}; use the name as in the table")
    return found[0]


def _stem(name: str) -> str:
    return name.removesuffix(".gz").removesuffix(".jsonl")


def titles_named(known: Mapping[str, str], text: str) -> list[str]:
    """The titles of the application with this name, or of the only one whose title contains it, ignoring case.

    `known` has the application of each title, such as `OCR` of `OCR (server)`. `BadInput` for none or several.
    """
    wanted = text.strip().lower()
    exact = [title for title, name in known.items() if wanted in (name.lower(), title.lower())]
    chosen = exact or [title for title in known if wanted and wanted in title.lower()]
    names = sorted({known[title] for title in chosen})
    if len(names) > 1:
        raise BadInput(f"--application {shorten(text)!r} is part of several: {', '.join(names)}; name one")
    if not chosen:
        every = sorted(set(known.values()))
        raise BadInput(
            f"no machine has a time of application {shorten(text)!r}; there are {', '.join(every)}"
            f"{did_you_mean(text, every)}"
        )
    return chosen
