"""Machines ranked by application: by time, or by cost where prices are known, and how certain the order is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from deepbench.core import units
from deepbench.core.precision import find_precision
from deepbench.judge import heats
from deepbench.report.table import Cell, Column, Part, Strong, Table, number
from deepbench.report.totals import Total
from deepbench.results import published

By = Literal["time", "cost"]

ALL = "all"
WIDTHS = ("8", "16", "19", "32")

# A pass is one call of each kernel of an application. Costs are of so many.
PASSES = 1e6

# A sentence names so many machines at most.
MOST_NAMES = 4

# Columns of the matrix that every terminal shows, before machines that are rarely the best are left out.
MOST_ALWAYS_SHOWN = 2


@dataclass(frozen=True)
class Machine:
    """A result file, or a published machine."""

    name: str
    kind: Literal["measured", "imported", "published"]
    totals: Sequence[Total]
    price_per_h: float | None = None


@dataclass(frozen=True)
class Place:
    """A machine in the ranking of an application."""

    machine: Machine
    total: Total | None
    """Its best precision and number of threads; None where it has no kernel in a precision that competes."""

    @property
    def is_ranked(self) -> bool:
        """Whether it has a total that is trusted."""
        return self.total is not None and self.total.is_ranked

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

    @cached_property
    def certainty(self) -> Literal["certain", "overlap", "one process", "no interval"] | None:
        """How certain it is that the first one is the best; None where there are not two to compare."""
        ranked = self.ranked
        if len(ranked) < 2:
            return None
        kinds = {self._compared(other) for other in ranked[1:]}
        return next(kind for kind in ("overlap", "one process", "no interval", "certain") if kind in kinds)

    def _compared(self, other: Place) -> Literal["certain", "overlap", "one process", "no interval"]:
        best = self.ranked[0]
        one, two = best.interval(self.by), other.interval(self.by)
        if one is None or two is None:
            return "no interval"
        if two[0] <= one[1]:
            return "overlap"
        single = any(place.total is not None and place.total.single_process for place in (best, other))
        return "one process" if single and not heats.is_order(self.over_best(other) or 1.0) else "certain"

    @property
    def answer(self) -> str:
        """Which machine is the best, how certain that is, and which machines are not ranked."""
        ranked = self.ranked
        if len(ranked) > 1:
            ratio = self.over_best(ranked[1]) or 1.0
            order = less_sentence(ranked[0].machine.name, 1 / ratio, ranked[1].machine.name, self.by)
            text = f"{order}; {self._certainty_text()}"
        elif ranked:
            text = f"only {ranked[0].machine.name} can be ranked, so there is no order"
        else:
            text = "no machine can be ranked"
        left = [f"{p.machine.name} ({_why(p.total)})" for p in self.places if p.total and not p.is_ranked]
        return f"{self.title}: {text}.{f' Not ranked: {_listed(left)}.' if left else ''}"

    def _certainty_text(self) -> str:
        others = [p.machine.name for p in self.ranked[1:] if self._compared(p) == self.certainty]
        both = _listed([self.ranked[0].machine.name, *others])
        if self.certainty == "overlap":
            return f"the intervals of {both} overlap: the order is uncertain"
        if self.certainty == "one process":
            return f"the times of {both} come from one process and differ by less than 10 %: the order is uncertain"
        if self.certainty == "no interval":
            without = [p.machine.name for p in self.ranked if p.interval(self.by) is None]
            return f"{_listed(without)} {'has' if len(without) == 1 else 'have'} no interval: certainty unknown"
        return "the intervals do not overlap: certain at 95 %"


def _why(total: Total) -> str:
    """Why a machine is not ranked."""
    if total.time_s is None:
        return f"{total.measured} of {total.kernels} kernels"
    return f"{total.disturbed} time{'s' * (total.disturbed > 1)} disturbed"


def less_sentence(subject: str, ratio: float, other: str, by: By) -> str:
    """`X is 1.12× faster than Y`, or `X costs 12 % less than Y`; the ratio is X's value over Y's, at most 1."""
    if by == "time":
        return units.speed_sentence(subject, ratio, other)
    share = units.percent(1 - ratio)
    return f"{subject} costs as much as {other}" if share == "0 %" else f"{subject} costs {share} less than {other}"


def _listed(names: Sequence[str]) -> str:
    """`A, B and C`; of more than four names the first three."""
    if len(names) > MOST_NAMES:
        names = [*names[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} others"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# ---- which precisions compete


def competing(words: Sequence[str]) -> Callable[[Total], bool]:
    """Whether a total competes: in a precision or width that is named, or else in one that meets DeepBench's minimum.

    A width stands for its precisions that meet the minimum. `BadInput` for unknown words.
    """
    wanted = set()
    for word in words:
        if word not in (*WIDTHS, ALL, *published.PRECISIONS):
            find_precision(word)
        wanted |= {word, *(name for name, ours in published.PRECISIONS.items() if word in ours)}

    def competes(total: Total) -> bool:
        if ALL in wanted or total.precision in wanted:
            return True
        return not total.below_minimum and (not wanted or str(total.bits) in wanted)

    return competes


# ---- ranking


def rankings(machines: Sequence[Machine], competes: Callable[[Total], bool]) -> list[Ranking]:
    """A ranking for each application of a suite of which any machine has a time."""
    keys = {(t.suite, t.application): None for m in machines for t in m.totals if t.measured}
    return [_ranking(machines, suite, application, competes) for suite, application in sorted(keys)]


def _ranking(machines: Sequence[Machine], suite: str, application: str, competes: Callable[[Total], bool]) -> Ranking:
    places = []
    for machine in machines:
        of_kind = [t for t in machine.totals if (t.suite, t.application) == (suite, application) and competes(t)]
        places.append(Place(machine, min(of_kind, key=_standing, default=None)))
    ranked = [p for p in places if p.is_ranked]
    by: By = "cost" if ranked and all(p.cost is not None for p in ranked) else "time"

    def order(place: Place) -> tuple[int, float]:
        standing = _standing(place.total)
        return standing[0], (place.value(by) or 0.0) if place.is_ranked else standing[1]

    return Ranking(suite, application, sorted(places, key=order), by)


def _standing(total: Total | None) -> tuple[int, float]:
    """Totals that are trusted come first, then disturbed ones, then sums over some kernels: the most kernels first."""
    if total is None:
        return 3, 0.0
    if total.time_s is None:
        return 2, -total.measured / total.kernels
    return (1 if total.disturbed else 0), total.time_s


# ---- tables

UNCHECKED = "Published and imported times are unchecked; published ones are means without an interval."
PASS = "time: one call of each kernel, with its fastest library. Where a kernel has no time there is no total."
INTERVALS = "±: from the sum of the lower ends of the kernels' 95 % intervals to the sum of the upper ends."
UNRANKED = "Totals with disturbed times are shown, and have no rank."


def rows_of(ranking: Ranking) -> list[dict[str, Cell]]:
    """The values of each machine, in the order of the ranking."""
    rows: list[dict[str, Cell]] = []
    for rank, place in enumerate(ranking.places, 1):
        total, over = place.total, ranking.interval_over_best(place)
        is_best = place.is_ranked and rank == 1
        rows.append(
            {
                "suite": ranking.suite,
                "application": ranking.application,
                "rank": rank if place.is_ranked else None,
                "machine": Strong(place.machine.name) if is_best else place.machine.name,
                "kind": place.machine.kind,
                "precision": total.precision if total else None,
                "threads": total.threads if total else None,
                "time": place.time_s,
                "±": total.half_width if total else None,
                "low": total.low_s if total else None,
                "high": total.high_s if total else None,
                "ranked_by": ranking.by,
                "over_best": ranking.over_best(place),
                "over_best_low": over[0] if over else None,
                "over_best_high": over[1] if over else None,
                "interval": f"{units.significant(over[0])} to {units.significant(over[1])}×" if over else None,
                "price_per_h": place.machine.price_per_h,
                "cost_of_a_million": place.cost,
                "joules": total.joules if total else None,
                "kernels": total.kernels if total else None,
                "measured": total.measured if total else None,
                "disturbed": total.disturbed if total else None,
                "coverage": f"{total.measured} of {total.kernels}" if total else None,
            }
        )
    return rows


FOR_PROGRAMS = (
    *("suite", "application", "rank", "machine", "kind", "precision", "threads", "time", "low", "high", "ranked_by"),
    *("over_best", "over_best_low", "over_best_high", "price_per_h", "cost_of_a_million", "joules", "kernels"),
    *("measured", "disturbed"),
)


def for_programs(found: Iterable[Ranking]) -> Table:
    """One row per application and machine, with plain values."""
    rows = [row for ranking in found for row in rows_of(ranking)]
    return Table([Column(name) for name in FOR_PROGRAMS], rows)


def to_json(found: Iterable[Ranking]) -> list[dict[str, Any]]:
    """For each application: who is the best, how certain that is, and the values of each machine."""
    return [
        {
            "suite": r.suite,
            "application": r.application,
            "ranked_by": r.by,
            "best": r.ranked[0].machine.name if r.ranked else None,
            "certainty": r.certainty,
            "answer": r.answer,
            "machines": [{name: row[name] for name in FOR_PROGRAMS[2:]} for row in rows_of(r)],
        }
        for r in found
    ]


def parts(found: Sequence[Ranking]) -> list[Part]:
    """A table for each ranking, and a sentence at its end."""
    made: list[Part] = []
    for ranking in found:
        made += [[ranking.title], _table(ranking), [ranking.answer]]
    return made


def _table(ranking: Ranking) -> Table:
    rows = [row for row in rows_of(ranking) if row["kernels"] is not None]
    absent = [p.machine.name for p in ranking.places if p.total is None]
    compared = _dearer if ranking.by == "cost" else units.faster_or_slower
    columns = [
        *(number("rank"), Column("machine"), Column("precision", title="type"), number("threads", narrow=3)),
        *(number("time", units.seconds), number("±", units.plus_minus)),
        number("cost_of_a_million", units.significant, "cost"),
        *(number("over_best", compared, "than the best"), number("interval", narrow=2)),
        *(number("joules", units.joules, "energy", narrow=1), Column("coverage", title="kernels", narrow=1)),
    ]
    priced = [p.machine for p in ranking.places if p.total]
    prices = {m.name: m.price_per_h for m in priced if m.price_per_h is not None}
    without = [p.machine.name for p in ranking.ranked if p.machine.price_per_h is None]
    notes = [
        PASS,
        *[INTERVALS] * any(row["±"] is not None for row in rows),
        *[f"cost: of a million passes, at {_prices(prices)}."] * bool(prices),
        *([f"Ranked by time: no price of {_listed(without)} (--price NAME=2.5/h)."] if prices and without else []),
        *([f"No kernel of the application in a precision that competes: {', '.join(absent)}."] if absent else []),
        *[UNRANKED] * any(row["disturbed"] and row["measured"] == row["kernels"] for row in rows),
        *[UNCHECKED] * any(row["kind"] != "measured" for row in rows),
    ]
    return replace(Table(columns, rows, notes).without_empty_columns(), notes=notes)


def _dearer(ratio: float) -> str:
    """A ratio of costs in words: `12 % more`, or from twice as much `2.30× the cost`."""
    return f"{units.significant(ratio)}× the cost" if ratio >= 2 else f"{units.percent(ratio - 1)} more"


def _prices(prices: Mapping[str, float]) -> str:
    return ", ".join(f"{price:g}/h ({name})" for name, price in prices.items())


def matrix(machines: Sequence[Machine], found: Sequence[Ranking]) -> Table:
    """One row per application, one column per machine; on a narrow terminal those that rarely win are left out."""
    by_cost = all(r.by == "cost" for r in found if r.ranked)
    wins = {m.name: sum(bool(r.ranked) and r.ranked[0].machine is m for r in found) for m in machines}
    rows: list[dict[str, Cell]] = []
    for ranking in found:
        ranked = ranking.ranked
        doubt = "≈ " if ranking.certainty not in (None, "certain") else ""
        row: dict[str, Cell] = {"application": ranking.title, "best": None}
        if len(ranked) > 1:
            row["best"] = f"{doubt}{ranked[0].machine.name}"
        for place in ranking.places:
            text = _matrix_text(place, "cost" if by_cost else "time")
            row[place.machine.name] = Strong(text) if len(ranked) > 1 and place is ranked[0] else text
        rows.append(row)
    often_first = sorted(machines, key=lambda m: -wins[m.name])
    columns = [
        Column("application"),
        Column("best"),
        *(Column(m.name, narrow=max(0, often_first.index(m) + 1 - MOST_ALWAYS_SHOWN)) for m in machines),
    ]
    texts = [str(row[m.name]) for row in rows for m in machines]
    what = "cost of a million passes" if by_cost else "time of one pass"
    doubtful = any(str(row["best"]).startswith("≈") for row in rows)
    notes = [
        f"Cells: {what}, and the precision. A pass is one call of each kernel, with its fastest library.",
        *["– 12 of 20: only so many of the kernels have a time, so there is no total."]
        * any(text.startswith("– ") for text in texts),
        *["D: contains times that other programs disturbed; it does not count for the best."]
        * any(text.endswith(" D") for text in texts),
        *["≈: the order is uncertain or unknown; with --application NAME the reason is shown."] * doubtful,
        *[UNCHECKED] * any(m.kind != "measured" for m in machines),
    ]
    return Table(columns, rows, notes)


def _matrix_text(place: Place, by: By) -> str:
    total = place.total
    if total is None:
        return "–"
    value = place.value(by)
    if value is None:
        return f"– {total.measured} of {total.kernels}" if total.time_s is None else "–"
    text = units.seconds(value) if by == "time" else units.significant(value)
    return f"{text} {total.precision}{' D' if total.disturbed else ''}"
