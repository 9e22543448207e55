"""Machines ranked by application: by time, or by cost where prices are known, and how certain the order is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from deepbench.core import units
from deepbench.core.precision import find_precision
from deepbench.judge import heats
from deepbench.reporting.table import Cell, Column, Part, Strong, Table, number
from deepbench.reporting.totals import Total

By = Literal["time", "cost"]
Certainty = Literal["certain", "overlap", "one process", "no interval"]

ALL = "all"
WIDTHS = ("8", "16", "19", "32")

# A pass calls each kernel of an application once, or as often as a model does. Costs are of so many passes.
PASSES = 1e6

# A sentence names so many machines at most.
MOST_NAMES = 4

# From this ratio of costs on, tables say how many times the cost, and not how many per cent more.
DOUBLE = 2.0

# Why a machine after the second could be the best, too.
WHY_NEAR = {"overlap": "intervals overlap", "one process": "one process, near", "no interval": "no interval, near"}

# A run with a budget goes on with another budget; others end when their plan is done.
MORE_ROUNDS = "More rounds may decide: deepbench run --rounds N, or --resume of a run with --budget."

# Columns of the matrix that every terminal shows, before machines that are rarely the best are left out.
MOST_ALWAYS_SHOWN = 2


@dataclass(frozen=True)
class Machine:
    """The machine of a result file."""

    name: str
    kind: Literal["measured", "imported"]
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

    @property
    def certainty(self) -> Certainty | None:
        """How certain it is that the first one is better than the second; None where there are not two to compare."""
        return self._compared(self.ranked[1]) if len(self.ranked) > 1 else None

    @property
    def could_be_best(self) -> list[tuple[Place, Certainty]]:
        """Machines after the first that could be the best, too, and why that is not excluded."""
        kinds = [(place, self._compared(place)) for place in self.ranked[1:]]
        return [(place, kind) for place, kind in kinds if kind != "certain" and self._is_near(place)]

    def _compared(self, other: Place) -> Certainty:
        best = self.ranked[0]
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
    def answer(self) -> str:
        """Which machine is the best, how certain that is, and which machines are not ranked."""
        ranked = self.ranked
        more = []
        if len(ranked) > 1:
            order = order_sentence(ranked[0].machine.name, ranked[1].machine.name, self.over_best(ranked[1]), self.by)
            text = f"{order}; {self._certainty_text()}"
            near = [f"{p.machine.name} ({WHY_NEAR[why]})" for p, why in self.could_be_best if p is not ranked[1]]
            if near:
                more.append(f"Could also be the best: {_listed(near)}.")
            if self._more_rounds_help:
                more.append(MORE_ROUNDS)
        elif ranked:
            text = f"only {ranked[0].machine.name} can be ranked, so there is no order"
        else:
            text = "no machine can be ranked"
        left = [f"{p.machine.name} ({_why(p.total)})" for p in self.places if p.total and not p.is_ranked]
        if left:
            more.append(f"Not ranked: {_listed(left)}.")
        return " ".join([f"{self.title}: {text}.", *more])

    def _certainty_text(self) -> str:
        pair = self.ranked[:2]
        both = _listed([p.machine.name for p in pair])
        if self.certainty == "overlap":
            return f"the intervals of {both} overlap: the order is uncertain"
        if self.certainty == "one process":
            return f"the times of {both} come from one process and differ by less than 10 %: the order is uncertain"
        if self.certainty == "no interval":
            without = [p.machine.name for p in pair if p.interval(self.by) is None]
            return f"{_listed(without)} {'has' if len(without) == 1 else 'have'} no interval: certainty unknown"
        return "the intervals do not overlap: certain at 95 %"

    @property
    def _more_rounds_help(self) -> bool:
        """Whether the order is uncertain and can be measured again. An imported time stays without an interval."""
        near = [*self.ranked[:2], *(place for place, _ in self.could_be_best)]
        again = all(place.machine.kind == "measured" or place.interval(self.by) for place in near)
        return again and (self.certainty != "certain" or bool(self.could_be_best))

    @property
    def composition(self) -> str | None:
        """`alder: sparse_gemm 94 %, gemm 6 % of the time.`: what the total of the best machine consists of."""
        total = self.ranked[0].total if self.ranked else None
        if total is None or not total.time_s:
            return None
        shares = {op: units.percent(s / total.time_s) for op, s in sorted(total.by_op_s.items(), key=lambda o: -o[1])}
        listed = ", ".join(f"{op} {share}" for op, share in shares.items() if share != "0 %")
        return f"{self.ranked[0].machine.name}: {listed} of the time." if listed else None


def _why(total: Total) -> str:
    """Why a machine is not ranked."""
    if total.time_s is None:
        return f"{total.measured} of {total.kernels} kernels"
    return f"{total.disturbed} time{'s' * (total.disturbed > 1)} disturbed"


def order_sentence(best: str, second: str, ratio: float | None, by: By) -> str:
    """`X is 1.12× faster than Y`, or `Y costs 12 % more than X`, with the figure of the table: Y's value over X's."""
    ratio = ratio or 1.0
    if by == "time":
        return units.speed_sentence(best, 1 / ratio, second)
    more = _dearer(ratio)
    if more == "0 % more":
        return f"{second} costs as much as {best}"
    return f"{second} costs {more.replace('the cost', 'as much as') if ratio >= DOUBLE else f'{more} than'} {best}"


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
    wanted = set[str]()
    for word in words:
        if word not in (*WIDTHS, ALL):
            find_precision(word)
        wanted.add(word)

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

UNCHECKED = "Imported times are unchecked, and mostly means without an interval."
ONE_PASS = "each kernel once, or as often as a model calls it, with its fastest library"
PASS = f"time: {ONE_PASS}. Where a kernel has no time there is no total."
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
            "could_be_best": [place.machine.name for place, _ in r.could_be_best],
            "answer": r.answer,
            "machines": [{name: row[name] for name in FOR_PROGRAMS[2:]} for row in rows_of(r)],
        }
        for r in found
    ]


def parts(found: Sequence[Ranking]) -> list[Part]:
    """A table for each ranking; then what the best total consists of, and which machine is the best."""
    made: list[Part] = []
    for ranking in found:
        made += [[ranking.title], _table(ranking), [*filter(None, (ranking.composition, ranking.answer))]]
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
    return f"{units.significant(ratio)}× the cost" if ratio >= DOUBLE else f"{units.percent(ratio - 1)} more"


def _prices(prices: Mapping[str, float]) -> str:
    return ", ".join(f"{price:g}/h ({name})" for name, price in prices.items())


def matrix(machines: Sequence[Machine], found: Sequence[Ranking]) -> Table:
    """One row per application, one column per machine; on a narrow terminal those that rarely win are left out."""
    wins = {m.name: sum(bool(r.ranked) and r.ranked[0].machine is m for r in found) for m in machines}
    rows: list[dict[str, Cell]] = []
    for ranking in found:
        ranked = ranking.ranked
        doubt = "≈ " if ranking.could_be_best else ""
        row: dict[str, Cell] = {"application": ranking.title, "best": None}
        if len(ranked) > 1:
            row["best"] = f"{doubt}{ranked[0].machine.name}"
        for place in ranking.places:
            text = _matrix_text(place, ranking.by)
            row[place.machine.name] = Strong(text) if len(ranked) > 1 and place is ranked[0] else text
        rows.append(row)
    often_first = sorted(machines, key=lambda m: -wins[m.name])
    columns = [
        Column("application"),
        Column("best"),
        *(Column(m.name, narrow=max(0, often_first.index(m) + 1 - MOST_ALWAYS_SHOWN)) for m in machines),
    ]
    texts = [str(row[m.name]) for row in rows for m in machines]
    doubtful = any(str(row["best"]).startswith("≈") for row in rows)
    notes = [
        *_about_cells(machines, found),
        *["–: no kernel of the application in a precision that competes."] * ("–" in texts and set(texts) != {"–"}),
        *["– 12 of 20: only so many of the kernels have a time, so there is no total."]
        * any(text.startswith("– ") for text in texts),
        *["D: contains times that other programs disturbed; it does not count for the best."]
        * any(text.endswith(" D") for text in texts),
        *["≈: another machine could be the best, too; with --application NAME the reason is shown."] * doubtful,
        *[UNCHECKED] * any(m.kind != "measured" for m in machines),
    ]
    return Table(columns, rows, notes)


def _about_cells(machines: Sequence[Machine], found: Sequence[Ranking]) -> list[str]:
    """What the cells of the matrix contain, or why they contain nothing."""
    if not any(place.total for ranking in found for place in ranking.places):
        precisions = ", ".join(sorted({t.precision for m in machines for t in m.totals if t.measured}))
        return [f"No machine has a time in a precision that competes; --precision can be {precisions}."]
    kinds = {ranking.by for ranking in found if ranking.ranked}
    prices = {m.name: m.price_per_h for m in machines if m.price_per_h is not None}
    what = "cost of a million passes" if "cost" in kinds else "time of one pass"
    if kinds == {"cost", "time"}:
        what += ", or (with a unit) time of one pass where a machine has no price"
    unpriced = {p.machine.name: None for r in found for p in r.ranked if p.cost is None} if prices else {}
    return [
        f"Cells: {what}, and the precision. A pass is {ONE_PASS}.",
        *[f"Prices: {_prices(prices)}."] * ("cost" in kinds),
        *([f"Ranked by time: no price of {_listed([*unpriced])} (--price NAME=2.5/h)."] if unpriced else []),
    ]


def _matrix_text(place: Place, by: By) -> str:
    total = place.total
    if total is None:
        return "–"
    value = place.value(by)
    if value is None:
        return f"– {total.measured} of {total.kernels}" if total.time_s is None else "no price"
    text = units.seconds(value) if by == "time" else units.significant(value)
    return f"{text} {total.precision}{' D' if total.disturbed else ''}"
