"""A comparison of two files for people and programs: what differs, the means, each case, the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deepbench.core import units
from deepbench.judge.compare import IN_TURN, LONGEST_S, QUIET_MACHINE, ROUNDS, ComparedCase, Comparison
from deepbench.report.notes import DISTURBED
from deepbench.report.table import Cell, Column, Part, Table, escape_markdown, markdown_of, number

# Decided cases come first.
ORDER = ("slower", "faster", "cannot tell", "same")

# Cases without a ratio are named up to this number; the others are counted.
MOST_NAMED = 5


def ratio_columns(name: str, title: str) -> list[Column]:
    """A ratio of times in words, with its 95 % confidence interval; programs get numbers. `name` has the direction."""
    words = units.faster_or_slower
    return [
        *(number(name, words, title), number("±", units.plus_minus)),
        *(number("low", words, narrow=5), number("high", words, narrow=5)),
    ]


def ratio_cells(name: str, ratio: float | None, interval: tuple[float, float] | None) -> dict[str, Cell]:
    """The values of these columns."""
    low, high = interval or (None, None)
    half_width = (high - low) / 2 / ratio if ratio and low is not None and high is not None else None
    return {name: ratio, "±": half_width, "low": low, "high": high}


SECOND_OVER_FIRST = "second_over_first"
"""The name of the ratio of two files in exports."""

RATIO = ratio_columns(SECOND_OVER_FIRST, "second is")


def ratio_line(first: str, second: str) -> str:
    """What a ratio means."""
    return f"faster, slower: time of {second} compared with time of {first}"


def headline(comparison: Comparison, names: tuple[str, str]) -> str:
    """The mean over all cases, or why there is none."""
    mean = next(m for m in comparison.means() if m.name == "all")
    if mean.ratio is None:
        return f"{mean.undecided} of {mean.count} cases are undecided; no overall ratio"
    undecided = f", {mean.undecided} of them undecided" if mean.undecided else ""
    sentence = units.speed_sentence(names[1], mean.ratio, names[0])
    return f"{sentence} (geometric mean over {mean.count} common cases{undecided})"


def heading(comparison: Comparison, names: tuple[str, str]) -> list[str]:
    """What to know before reading a ratio."""
    lines = [ratio_line(*names)]
    if comparison.interleaved:
        met = any(c.a.record["heat"] for c in comparison.cases)
        lines.append(f"Measured in turn{', in heats' if met else ''}; drift affects both sides alike")
    else:
        lines.append(
            "Measured separately; drift may affect the ratios (run --ab and --against alternate between the sides)"
        )
    lines += [f"differs: {text}" for text in comparison.differences]
    if not comparison.differences and not comparison.interleaved:
        lines.append("no recorded difference between the two sides")
    return lines


def means(comparison: Comparison) -> Table:
    """Geometric means of the ratios: all cases, then by operation and application."""
    rows: list[dict[str, Cell]] = []
    for m in comparison.means():
        row: dict[str, Cell] = {"geometric mean": m.name, "cases": m.count, "undecided": m.undecided}
        rows.append({**row, **ratio_cells(SECOND_OVER_FIRST, m.ratio, m.interval)})
    notes = []
    if any(row[SECOND_OVER_FIRST] is None for row in rows):
        notes.append("There is no mean where most of the cases are undecided.")
    return Table([Column("geometric mean"), number("cases"), number("undecided"), *RATIO], rows, notes)


def cases(comparison: Comparison) -> Table:
    """One row per case."""
    columns = [
        *(Column("case"), Column("precision", title="type"), Column("library")),
        *(number("first", units.seconds), number("second", units.seconds, narrow=2), *RATIO),
        *(Column("processes", narrow=4), Column("verdict", whole=True), Column("to decide", narrow=1)),
        Column("notes", style="yellow", narrow=3),
    ]
    rows = list(map(_row, ordered(comparison)))
    notes = [DISTURBED.footnote] * any(c.is_disturbed for c in comparison.cases)
    table = Table(columns, rows, notes)
    return table if any(row["notes"] for row in rows) else replace(table, columns=columns[:-1])


def ordered(comparison: Comparison) -> list[ComparedCase]:
    """Decided cases first, the largest change on top."""
    return sorted(comparison.cases, key=lambda c: (ORDER.index(c.verdict), -abs(c.ratio - 1)))


def _row(c: ComparedCase) -> dict[str, Cell]:
    sides = [name for name, s in (("first", c.a), ("second", c.b)) if s.is_disturbed]
    # A disturbed time supports no ratio by itself; several processes or heats may still decide.
    withheld = c.is_disturbed and c.verdict == "cannot tell"
    processes = sorted({len(c.a.rounds), len(c.b.rounds)})
    return {
        "case": c.a.problem_title,
        "precision": c.a.record["precision"],
        "library": ", ".join(dict.fromkeys((c.a.library_title, c.b.library_title))),
        "first": c.a.estimate.time_s if c.a.estimate else None,
        "second": c.b.estimate.time_s if c.b.estimate else None,
        **ratio_cells(SECOND_OVER_FIRST, None if withheld else c.ratio, None if withheld else c.interval),
        "processes": " and ".join(map(str, processes)),
        "verdict": c.verdict,
        "to decide": _to_decide(c),
        "rounds to decide": c.rounds_to_decide,
        "seconds to decide": c.seconds_to_decide,
        "notes": f"{' and '.join(sides)} disturbed" if sides else "",
    }


def _to_decide(c: ComparedCase) -> str | None:
    """`12 min, 9 rounds`, or the way of measuring that would decide; None if the case is decided."""
    if c.advice == ROUNDS and c.seconds_to_decide is not None:
        return f"{units.minutes(c.seconds_to_decide)}, {c.rounds_to_decide} rounds"
    return c.advice


def sentences(comparison: Comparison) -> list[str]:
    """The verdict in a few lines."""
    counts = [f"{comparison.count(v)} {v}" for v in ORDER if comparison.count(v)]
    lines = [f"{len(comparison.cases)} cases compared: {', '.join(counts) or 'none'}"]
    lines += [f"not compared: {text}" for text in comparison.left_out[:MOST_NAMED]]
    if len(comparison.left_out) > MOST_NAMED:
        lines.append(f"not compared: {len(comparison.left_out) - MOST_NAMED} more")
    if comparison.unmeasured:
        lines.append(f"{comparison.unmeasured} cases have no time on either side")
    margin = next((units.percent(c.margin, 1) for c in comparison.cases), None)
    if margin is not None:
        lines.append(
            f"verdicts faster, slower: the ratio differs by more than {margin}, at a false discovery rate of 5 %; "
            f"same: the 95 % confidence interval (low to high) lies within ±{margin}."
        )
    if disturbed := sum(c.is_disturbed for c in comparison.cases):
        lines.append(
            f"{disturbed} of {len(comparison.cases)} cases have a disturbed time and are marked; "
            "an undecided one of them has no ratio. Run again on a quiet machine."
        )
    loads = [c.other_load for c in comparison.cases if c.other_load]
    if loads:
        first, second = (sum(side) / len(loads) for side in zip(*loads, strict=True))
        lines.append(
            f"{len(loads)} cases cannot be decided: other programs used {first:.1f} CPUs during the first side and "
            f"{second:.1f} during the second; measure again on an idle machine."
        )
    lines += _slower_with_more_threads(comparison)
    if any(c.difference is None for c in comparison.cases):
        lines.append("One process per side: significance unknown; measure without --quick, or with --rounds 5.")
    return lines + _advice(comparison)


def _slower_with_more_threads(comparison: Comparison) -> list[str]:
    """Cases that more threads slow down: their undisturbed samples are no sign that nothing is wrong."""
    slower = []
    for c in comparison.cases:
        a, b = c.a.record["threads"], c.b.record["threads"]
        if (a < b and c.verdict == "slower") or (a > b and c.verdict == "faster"):
            slower.append((max(c.ratio, 1 / c.ratio), c.case, min(a, b), max(a, b)))
    if not slower:
        return []
    ratio, case, fewer, more = max(slower)
    verb = "case is" if len(slower) == 1 else "cases are"
    return [
        f"slower with more threads: {len(slower)} {verb} slower with {more} threads than with {fewer}; the largest "
        f"slowdown is {units.significant(ratio)}×: {case}."
    ]


def _advice(comparison: Comparison) -> list[str]:
    """What would decide the cases that are not decided."""
    by_advice: dict[str, list[ComparedCase]] = {}
    for c in comparison.cases:
        if c.advice and not c.other_load:
            by_advice.setdefault(c.advice, []).append(c)
    lines = []
    if rounds := by_advice.get(ROUNDS):
        total = units.minutes(sum(c.seconds_to_decide or 0.0 for c in rounds))
        lines.append(
            "to decide: time of measuring both sides of the case again with so many rounds (--rounds), which would "
            f"probably decide it; {total} for all {len(rounds)} such cases."
        )
    limit = units.minutes(LONGEST_S)
    if in_turn := by_advice.get(IN_TURN):
        lines.append(
            f"in turn: for {_cases(in_turn)}, more rounds would take over {limit} or not help. Measure both sides in "
            "turn, which cancels the drift of the machine: run --ab or run --against."
        )
    if quiet := by_advice.get(QUIET_MACHINE):
        lines.append(
            f"quiet machine: for {_cases(quiet)}, even sides in turn would take over {limit}. Stop other programs, or "
            "pin threads (--set pin=cores)."
        )
    return lines


def _cases(cases: Sequence[ComparedCase]) -> str:
    return f"{len(cases)} case{'s' if len(cases) > 1 else ''}"


def parts(comparison: Comparison, names: tuple[str, str]) -> list[Part]:
    """Everything, for people."""
    mean = [headline(comparison, names)] if comparison.cases else []
    return [[*mean, *heading(comparison, names)], means(comparison), cases(comparison), sentences(comparison)]


def gate_markdown(comparison: Comparison, names: tuple[str, str], lines: Sequence[str]) -> str:
    """A summary for a pull request; `lines` are those of the gate, its verdict first."""
    below = markdown_of([[*lines[1:], *heading(comparison, names)], cases(comparison)])
    return f"**{escape_markdown(lines[0])}**\n\n{below}"


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Everything, for programs."""
    return {
        "interleaved": comparison.interleaved,
        "differs": comparison.differences,
        "means": means(comparison).rows,
        "cases": [{**_row(c), "case": c.case, "q": c.q} for c in ordered(comparison)],
        "not_compared": comparison.left_out,
    }
