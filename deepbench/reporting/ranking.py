"""Rankings of machines in sentences and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from deepbench.core import units
from deepbench.judge.ranking import By, Machine, Place, Ranking, apart
from deepbench.judge.totals import Total
from deepbench.reporting.table import AtMost, Cell, Column, Part, Strong, Table, number, time_text

# A sentence names so many machines at most.
MOST_NAMES = 4

# From this ratio of costs on, tables say how many times the cost, and not how many per cent more.
DOUBLE = 2.0

# Why a machine after the second could be the best, too.
WHY_NEAR = {"overlap": "intervals overlap", "one process": "one process, near", "no interval": "no interval, near"}

# A run with a budget goes on with another budget; others end when their plan is done.
MORE_ROUNDS = "More rounds may decide: deepbench run --rounds N, or --resume of a run with --budget."

# Columns of the matrix that every terminal shows, before published machines that are rarely the best are left out.
MOST_ALWAYS_SHOWN = 2


# ---- sentences


def answer(ranking: Ranking) -> str:
    """Which machine is the best, how certain that is, and which machines are not ranked."""
    ranked = ranking.ranked
    more = []
    if len(ranked) > 1:
        order = order_sentence(ranked[0].machine.name, ranked[1].machine.name, ranking.over_best(ranked[1]), ranking.by)
        text = f"{order}; {_certainty_text(ranking)}"
        near = [f"{p.machine.name} ({WHY_NEAR[why]})" for p, why in ranking.could_be_best if p is not ranked[1]]
        if near:
            more.append(f"Could also be the best: {_listed(near)}.")
        if ranking.more_rounds_help:
            more.append(MORE_ROUNDS)
    elif ranked:
        text = f"only {ranked[0].machine.name} can be ranked, so there is no order"
    else:
        text = "no machine can be ranked"
    left = [f"{p.machine.name} ({_why(p.total)})" for p in ranking.places if p.total and not p.is_ranked]
    if left:
        more.append(f"Not ranked: {_listed(left)}.")
    return " ".join([f"{ranking.title}: {text}.", *more])


def _certainty_text(ranking: Ranking) -> str:
    pair = ranking.ranked[:2]
    both = _listed([p.machine.name for p in pair])
    if pair[0].is_bound:
        return f"the time of {pair[0].machine.name} is an upper bound, so this is certain, and the ratio the least"
    if ranking.certainty == "overlap":
        return f"the intervals of {both} overlap: the order is uncertain"
    if ranking.certainty == "one process":
        return f"the times of {both} come from one process and differ by less than 10 %: the order is uncertain"
    if ranking.certainty == "no interval":
        without = [p.machine.name for p in pair if p.interval(ranking.by) is None]
        return f"{_listed(without)} {'has' if len(without) == 1 else 'have'} no interval: certainty unknown"
    return "the intervals do not overlap: certain at 95 %"


def composition(ranking: Ranking) -> str | None:
    """`alder: sparse_gemm 94 %, gemm 6 % of the time.`: what the total of the best machine consists of."""
    total = ranking.ranked[0].total if ranking.ranked else None
    if total is None or not total.time_s:
        return None
    shares = {op: units.percent(s / total.time_s) for op, s in sorted(total.by_op_s.items(), key=lambda o: -o[1])}
    listed = ", ".join(f"{op} {share}" for op, share in shares.items() if share != "0 %")
    return f"{ranking.ranked[0].machine.name}: {listed} of the time." if listed else None


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


# ---- tables


def simulated_sentence(machines: Sequence[Machine]) -> list[str]:
    """Which machines have times of a simulator or a model, and not of a measurement."""
    names = [m.name for m in machines if m.is_simulated]
    return [f"Simulated, not measured: {', '.join(names)}."] if names else []


UNCHECKED = "Imported times are unchecked, and mostly means without an interval."
ONE_PASS = "each kernel once, or as often as a model calls it, with its fastest library"
PASS = f"time: {ONE_PASS}. Where a kernel has no time there is no total."
INTERVALS = "±: from the sum of the lower ends of the kernels' 95 % intervals to the sum of the upper ends."
UNRANKED = "≤: contains times that other programs disturbed. It has a rank only if it is below all others even so."


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
                "time": AtMost(place.time_s) if total and total.disturbed and place.time_s else place.time_s,
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
            "answer": answer(r),
            "machines": [{name: row[name] for name in FOR_PROGRAMS[2:]} for row in rows_of(r)],
        }
        for r in found
    ]


def apart_sentence(found: Sequence[Ranking]) -> str | None:
    """Which result files stand alone, and what to do; None where each can be compared with another machine."""
    names = apart(found) if len({p.machine.name for r in found for p in r.places}) > 1 else []
    if not names:
        return None
    have = "has" if len(names) == 1 else "have"
    return (
        f"{_listed(names)} {have} no application in common with another machine, because of other suites. To compare "
        "with published machines, measure the suite rank there: deepbench run rank (ten minutes)."
    )


def parts(found: Sequence[Ranking]) -> list[Part]:
    """A table for each ranking; then what the best total consists of, and which machine is the best."""
    made: list[Part] = []
    for ranking in found:
        made += [[ranking.title], _table(ranking), [*filter(None, (composition(ranking), answer(ranking)))]]
    alone = apart_sentence(found)
    return [*made, [alone]] if alone else made


def _table(ranking: Ranking) -> Table:
    rows = [row for row in rows_of(ranking) if row["kernels"] is not None]
    absent = [p.machine.name for p in ranking.places if p.total is None and p.has_kernels]
    without_any = [p.machine.name for p in ranking.places if p.total is None and not p.has_kernels]
    compared = _dearer if ranking.by == "cost" else units.faster_or_slower
    columns = [
        *(number("rank"), Column("machine"), Column("precision", title="type"), number("threads", narrow=3)),
        *(number("time", time_text), number("±", units.plus_minus)),
        number("cost_of_a_million", units.significant, "cost"),
        *(number("over_best", compared, "vs best"), number("interval", narrow=2)),
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
        *([f"No kernel of the application: {', '.join(without_any)}."] if without_any else []),
        *([f"No kernel of the application in a precision that competes: {', '.join(absent)}."] if absent else []),
        *[UNRANKED] * any(row["disturbed"] and row["measured"] == row["kernels"] for row in rows),
        *simulated_sentence([place.machine for place in ranking.places]),
        *[UNCHECKED] * any(m.kind != "measured" and not m.is_simulated for m in (p.machine for p in ranking.places)),
    ]
    return replace(Table(columns, rows, notes).without_empty_columns(), notes=notes)


def _dearer(ratio: float) -> str:
    """A ratio of costs in words: `12 % more`, or from twice as much `2.30× the cost`."""
    return f"{units.significant(ratio)}× the cost" if ratio >= DOUBLE else f"{units.percent(ratio - 1)} more"


def _prices(prices: Mapping[str, float]) -> str:
    return ", ".join(f"{price:g}/h ({name})" for name, price in prices.items())


def matrix(machines: Sequence[Machine], found: Sequence[Ranking]) -> Table:
    """One row per application, one column per machine.

    On a narrow terminal published machines that rarely win are left out, but no result file.
    """
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
    often_first = sorted(machines, key=lambda m: (m.is_published, -wins[m.name]))
    spared = {m.name: often_first.index(m) + 1 - MOST_ALWAYS_SHOWN for m in machines if m.is_published}
    columns = [
        Column("application"),
        Column("best"),
        *(Column(m.name, narrow=max(0, spared.get(m.name, 0))) for m in machines),
    ]
    texts = [str(row[m.name]) for row in rows for m in machines]
    doubtful = any(str(row["best"]).startswith("≈") for row in rows)
    notes = [
        *_about_cells(machines, found),
        *["–: no kernel of the application, or none in a precision that competes."]
        * ("–" in texts and set(texts) != {"–"}),
        *["– 12 of 20: only so many of the kernels have a time, so there is no total."]
        * any(text.startswith("– ") for text in texts),
        *["≤, D: contains times that other programs disturbed; it counts only where it is the best even so."]
        * any(text.endswith(" D") for text in texts),
        *["≈: another machine could be the best, too; with --application NAME the reason is shown."] * doubtful,
        *filter(None, [apart_sentence(found)]),
        *simulated_sentence(machines),
        *[UNCHECKED] * any(m.kind != "measured" and not m.is_simulated for m in machines),
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
    timed = time_text(AtMost(value) if total.disturbed else value)
    text = timed if by == "time" else units.significant(value)
    return f"{text} {total.precision}{' D' if total.disturbed else ''}"
