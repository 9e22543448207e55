"""The table by application and the table by backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log

from deepbench.core import units
from deepbench.report.cases import rankings
from deepbench.report.table import Cell, Column, Table, number
from deepbench.results.summary import Summary


def by_application(
    summaries: Sequence[Summary], other: Sequence[Summary] | None = None, price_per_h: float | None = None
) -> Table:
    """What each application's kernels take together, every listed row at its fastest library.

    A row that a suite lists twice counts twice. Gradients that training does not need are left out. With `other`, the
    geometric mean of the ratio of times (this file's over the other's) over the rows that both have.
    """
    here = _rows(summaries)
    there = _without_threads(_rows(other)) if other is not None else {}
    kinds = list(dict.fromkeys((key.suite, key.application, key.precision, key.threads) for key in here))
    totals: dict[tuple[str, str, int], float] = {}
    for key, time_s in here.items():
        whole = (key.suite, key.precision, key.threads)
        totals[whole] = totals.get(whole, 0.0) + (time_s or 0.0)
    rows: list[dict[str, Cell]] = []
    for suite, application, precision, threads in kinds:
        kind = (suite, application, precision, threads)
        mine = {k: t for k, t in here.items() if (k.suite, k.application, k.precision, k.threads) == kind}
        measured = {k: t for k, t in mine.items() if t is not None}
        total = sum(measured.values())
        all_of_it = totals[suite, precision, threads]
        by_op: dict[str, float] = {}
        for key, time_s in measured.items():
            by_op[key.op] = by_op.get(key.op, 0.0) + time_s
        row: dict[str, Cell] = {
            "suite": suite,
            "application": application,
            "precision": precision,
            "threads": threads,
            "kernels": len(mine),
            "measured": len(measured),
            "time": total if measured else None,
            "share": total / all_of_it if measured and all_of_it else None,
            "of which": ", ".join(
                f"{op} {units.percent(t / total)}" for op, t in sorted(by_op.items(), key=lambda item: -item[1])
            )
            if total
            else None,
        }
        if price_per_h is not None:
            row["cost of a million"] = 1e6 * total / 3600 * price_per_h if measured else None
        if other is not None:
            # The other machine may have another number of cores; that is part of what is compared.
            ratios = [t / o for k, t in measured.items() if (o := there.get(replace(k, threads=0))) is not None]
            row["in both"] = len(ratios)
            row["× other"] = _geometric_mean(ratios)
        rows.append(row)
    rows.sort(key=lambda row: (str(row["suite"]), str(row["precision"]), row["threads"], -float(row["time"] or 0.0)))
    columns = [
        *(Column("suite"), Column("application"), Column("precision")),
        *(number("threads"), number("kernels"), number("measured")),
        *(number("time", units.seconds), number("share", units.percent), Column("of which")),
        *([number("cost of a million", units.significant)] if price_per_h is not None else []),
        *([number("in both"), number("× other", units.significant)] if other is not None else []),
    ]
    notes = [
        f"kernels: rows that a suite lists and a network needs; each counts once, at its fastest{_merged(summaries)}.",
        "time: one pass over them, a sum of kernels alone, not the time of a network.",
    ]
    if price_per_h is not None:
        notes.append(f"cost of a million: of a million passes, at {price_per_h:g} an hour for this machine.")
    if other is not None:
        notes.append(
            "× other: geometric mean of this file's time over the other's, kernel by kernel; below 1 is faster."
        )
    return Table(columns, rows, notes)


def _without_threads(rows: dict[_Row, float | None]) -> dict[_Row, float | None]:
    """The fastest of each row over numbers of threads."""
    found: dict[_Row, float | None] = {}
    for key, time_s in rows.items():
        known = found.get(replace(key, threads=0))
        found[replace(key, threads=0)] = time_s if known is None else known if time_s is None else min(known, time_s)
    return found


def _merged(summaries: Sequence[Summary]) -> str:
    """Which libraries and settings the fastest was taken of."""
    cases = [s for s in summaries if s.is_ranked and s.record["sources"]]
    libraries = dict.fromkeys(s.record["library_title"] for s in cases)
    words = dict.fromkeys(word for s in cases for word in s.settings_words())
    return f" of {', '.join(libraries)}" + (f" with or without {', '.join(words)}" if words else "")


@dataclass(frozen=True)
class _Row:
    """A row of a suite in one direction, precision and number of threads."""

    application: str
    precision: str
    threads: int
    suite: str
    row: int
    op: str
    direction: str


def _rows(summaries: Sequence[Summary]) -> dict[_Row, float | None]:
    """The fastest time of each row, over libraries and settings; None where no library has a time."""
    found: dict[_Row, float | None] = {}
    for s in summaries:
        r = s.record
        if s.is_group:  # how often a model calls it depends on how many machines train it
            continue
        for source in r["sources"]:
            if not source["application"] or not source.get("needed", True):
                continue
            place = (source["suite"], source["row"], r["op"], r["direction"])
            key = _Row(source["application"], r["precision"], r["threads"], *place)
            time_s = s.estimate.time_s if s.estimate and s.is_ranked else None
            known = found.get(key)
            found[key] = time_s if known is None else known if time_s is None else min(known, time_s)
    return _gradients_once(found)


GRADIENTS = ("backward_data", "backward_weights")


def _gradients_once(rows: dict[_Row, float | None]) -> dict[_Row, float | None]:
    """Of a layer whose gradients were measured together and apart, what takes less: a pass needs them once."""
    left = dict(rows)
    for key, whole in rows.items():
        parts = [replace(key, direction=d) for d in GRADIENTS]
        if key.direction == "backward" and all(part in rows for part in parts):
            times = [rows[part] for part in parts]
            known = [t for t in times if t is not None]
            apart = sum(known) if len(known) == len(times) else None
            for gone in [key] if whole is None or (apart is not None and apart < whole) else parts:
                del left[gone]
    return left


def by_backend(summaries: Sequence[Summary]) -> Table:
    """Every library's time side by side, and what a framework adds to the fastest library."""
    is_framework = {s.library_title: s.is_framework for s in summaries if s.is_ranked}
    names = sorted(is_framework, key=lambda n: is_framework[n])  # libraries first
    frameworks = [n for n in names if is_framework[n]]
    rows: list[dict[str, Cell]] = []
    ratios: dict[str, list[float]] = {n: [] for n in names}
    fastest = dict.fromkeys(names, 0)
    for ranking in rankings(summaries):
        if not ranking.ranked:
            continue
        first = ranking.ranked[0]
        times = {s.library_title: s.estimate.time_s for s in ranking.ranked if s.estimate}
        row: dict[str, Cell] = {"problem": first.problem_title, "precision": first.record["precision"]}
        row |= {n: times.get(n) for n in names}
        libraries = {n: t for n, t in times.items() if n not in frameworks}
        best = min(libraries.values(), default=None)
        for n in frameworks:
            row[f"{n} adds"] = times[n] - best if best is not None and n in times else None
        fastest[first.library_title] += 1
        if best is not None:
            for n, t in times.items():
                ratios[n].append(t / best)
        rows.append(row)
    columns = [
        *(Column("problem"), Column("precision"), *(number(n, units.seconds) for n in names)),
        *(number(f"{n} adds", _signed_seconds) for n in frameworks),
    ]
    notes = []
    for n in names:
        mean = _geometric_mean(ratios[n])
        against = f", {units.significant(mean)} times the fastest library's time (geometric mean)" if mean else ""
        notes.append(f"{n}: {len(ratios[n])} measured, fastest of all {fastest[n]} times{against}.")
    if frameworks:
        notes.append("adds: the framework's time less the fastest library's; below zero it has a better one inside.")
    return Table(columns, rows, notes)


def _geometric_mean(ratios: Sequence[float]) -> float | None:
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else None


def _signed_seconds(value: float) -> str:
    return ("+" if value >= 0 else "−") + units.seconds(abs(value))
