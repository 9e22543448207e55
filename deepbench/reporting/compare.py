"""A comparison of two files for people and programs: what differs, the means, each case, the verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median_high
from typing import Any

from deepbench.core import units
from deepbench.core.errors import shorten
from deepbench.judge.compare import IMPORTED, IN_TURN, LONGEST_S, QUIET_MACHINE, ROUNDS, ComparedCase, Comparison
from deepbench.judge.gate import CANNOT_TELL, REGRESSION, GateVerdict
from deepbench.judge.reasons import Reason, library_title
from deepbench.judge.together import KindOfCases, moved_together
from deepbench.reporting.cases import time_cell
from deepbench.reporting.notes import DISTURBED
from deepbench.reporting.table import Cell, Column, Part, Table, escape_markdown, markdown_of, number, time_text

UNDECIDED = "cannot tell"
"""The verdict of undecided cases in JSON, CSV and Python."""

# Decided cases come first.
DECIDED = ("slower", "faster")
ORDER = (*DECIDED, UNDECIDED, "same")

# With more cases, a terminal lists the decided ones only. Machines differ in almost every case, so that of more than
# this many decided cases only the largest changes of each verdict are listed.
MOST_LISTED, MOST_OF_MACHINES, LARGEST_OF_MACHINES = 10, 100, 20

# Of the reasons that a case shares with others of its library, the heading has all, and its row so many.
MOST_SHARED = 2

# Groups of cases that moved together: so many of each verdict in the answer, and above the table.
MOST_GROUPS, MOST_GROUPS_ABOVE = 2, 10

# The line about the slowest case stays within two lines of a terminal of 80 columns.
LONGEST_ANSWER = 160

# Cases without a ratio are named up to this number; the others are counted.
MOST_NAMED = 5


def ratio_columns(name: str, title: str) -> list[Column]:
    """A ratio of times in words, with its 95 % confidence interval; programs get numbers. `name` has the direction."""
    words = units.faster_or_slower
    return [
        *(number(name, words, title), number("±", units.plus_minus)),
        *(replace(number(end, words, narrow=5), of=partial(_end, end)) for end in ("low", "high")),
    ]


def _end(end: str, row: Mapping[str, Cell]) -> Cell:
    """An end of the interval for people: the smaller factor comes first, which is the higher ratio if all is faster."""
    low, high = row.get("low"), row.get("high")
    if not isinstance(low, float) or not isinstance(high, float):
        return None
    return dict(zip(("low", "high"), units.by_factor(low, high), strict=True))[end]


def ratio_cells(name: str, ratio: float | None, interval: tuple[float, float] | None) -> dict[str, Cell]:
    """The values of these columns."""
    low, high = interval or (None, None)
    half_width = (high - low) / 2 / ratio if ratio and low is not None and high is not None else None
    return {name: ratio, "±": half_width, "low": low, "high": high}


SECOND_OVER_FIRST = "second_over_first"
"""The name of the ratio of two files in exports."""

RATIO = ratio_columns(SECOND_OVER_FIRST, "vs first")


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
        in_turn = " (run --ab and --against alternate between the sides)"
        can_repeat = not all(c.imported for c in comparison.cases)
        lines.append(f"Measured separately; drift may affect the ratios{in_turn * can_repeat}")
    lines += [f"differs: {text}" for text in comparison.differences]
    if not comparison.differences and not comparison.interleaved:
        lines.append("no recorded difference between the two sides")
    return [*lines, *_together(moved_together(comparison), MOST_GROUPS_ABOVE)]


def _group_row(g: KindOfCases) -> dict[str, Cell]:
    kind: dict[str, Cell] = {"op": g.op, "direction": g.direction, "precision": g.precision, "library": g.library}
    return {
        **kind,
        "cases": len(g.cases),
        "decided": g.decided,
        **ratio_cells(SECOND_OVER_FIRST, g.ratio, g.interval),
        "p": g.p,
        "verdict": g.verdict,
    }


def _together(groups: Sequence[KindOfCases], most: int) -> list[str]:
    """One line per group of cases that moved together, `most` of each verdict; the others are counted."""
    lines = []
    for verdict in DECIDED:
        of_verdict = [g for g in groups if g.verdict == verdict]
        for g in of_verdict[:most]:
            ratios = (g.ratio, *g.interval) if verdict == "slower" else (g.ratio, *reversed(g.interval))
            factor, low, high = (units.significant(r if verdict == "slower" else 1 / r) for r in ratios)
            kind = f"{g.op} {g.direction} {g.precision} {g.library}"
            alone = f"{g.decided or 'none'} of which {'is' if g.decided == 1 else 'are'} decided alone"
            lines.append(
                f"Probably {verdict} together: {len(g.cases)} cases of {kind}, {factor}× ({low} to {high}×), {alone}."
            )
        if (more := len(of_verdict) - most) > 0:
            lines.append(f"Probably {verdict} together: {more} more group{'s' * (more > 1)} of cases.")
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
        *(Column("case"), Column("precision", title="type", narrow=1), Column("library", narrow=1)),
        *(number("first", time_text, narrow=2), number("second", time_text, narrow=3)),
        *(replace(column, narrow=narrow) for column, narrow in zip(RATIO, (0, 4, 6, 6), strict=True)),
        *(Column("processes", narrow=5), Column("verdict", verdict_word, whole=True), Column("to decide", narrow=2)),
        *(Column("reason", narrow=1, least=24), Column("notes", style="yellow", narrow=4)),
    ]
    rows = [_row(c, comparison) for c in ordered(comparison)]
    notes = [DISTURBED.footnote] * any(c.is_disturbed for c in comparison.cases)
    notes += ratio_note(comparison)
    notes += [REASON] * any(row["reason"] for row in rows)
    table = Table(columns, rows, notes)
    return table if any(row["notes"] for row in rows) else replace(table, columns=columns[:-1])


def ratio_note(comparison: Comparison) -> list[str]:
    """Why a ratio is not the quotient of the two times in its row; empty where it is."""
    if all(c.difference is None for c in comparison.cases):
        return []
    if all(c.has_device_clock and not c.paired for c in comparison.cases):
        return []  # means and medians of the same processes
    compared = "compares the faster halves of the processes of both sides"
    if any(c.paired and c.a.record["heat"] for c in comparison.cases):
        compared = "is the mean ratio of the heats in which both sides met"
    elif any(c.paired for c in comparison.cases):
        compared = "compares the sides pair by pair, or the faster halves of their processes"
    return [f"The ratio {compared}; the times are the lower quartiles of all processes, so their quotient may differ."]


REASON = "reason: what was recorded on both sides and differs; it may explain the ratio, but does not prove it."


def listed(comparison: Comparison, full: bool) -> Table:
    """The rows of a terminal: all of them where they are few or with `full`, else the decided ones.

    Of many decided cases on different machines, only the largest changes.
    """
    table = cases(comparison)
    if not full and len(table.rows) > MOST_LISTED:
        by_verdict = [[row for row in table.rows if row["verdict"] == verdict] for verdict in DECIDED]
        if sum(map(len, by_verdict)) > MOST_OF_MACHINES and any(r.what == "CPU" for r in comparison.reasons.of_all):
            by_verdict = [rows[:LARGEST_OF_MACHINES] for rows in by_verdict]
        table = replace(table, rows=[row for rows in by_verdict for row in rows])
    return table.without_empty_columns()


def _unlisted(comparison: Comparison, table: Table) -> list[str]:
    """How many cases of each verdict are not in the table."""
    rest = Counter(c.verdict for c in comparison.cases) - Counter(str(row["verdict"]) for row in table.rows)
    counts = [f"{rest[verdict]} {verdict_word(verdict)}" for verdict in ORDER if rest[verdict]]
    return [f"Not listed: {', '.join(counts)}; --full lists all cases."] if counts else []


def verdict_word(verdict: str) -> str:
    """A verdict as people read it."""
    return "undecided" if verdict == UNDECIDED else verdict


def ordered(comparison: Comparison) -> list[ComparedCase]:
    """Decided cases first, the largest change on top."""
    return sorted(comparison.cases, key=lambda c: (ORDER.index(c.verdict), -abs(c.ratio - 1)))


def _row(c: ComparedCase, comparison: Comparison) -> dict[str, Cell]:
    sides = [name for name, s in (("first", c.a), ("second", c.b)) if s.is_disturbed]
    # A disturbed time supports no ratio by itself; several processes or heats may still decide.
    withheld = bool(c.withheld) or (c.is_disturbed and c.verdict == UNDECIDED)
    notes = [f"{' and '.join(sides)} disturbed"] * bool(sides) + [c.too_few_heats or c.slow_processes or ""]
    processes = sorted({len(c.a.rounds), len(c.b.rounds)})
    return {
        "case": c.a.problem_title,
        "precision": c.a.record["precision"],
        "library": ", ".join(dict.fromkeys((c.a.library_title, c.b.library_title))),
        "first": time_cell(c.a) if c.a.estimate else None,
        "second": time_cell(c.b) if c.b.estimate else None,
        **ratio_cells(SECOND_OVER_FIRST, None if withheld else c.ratio, None if withheld else c.interval),
        "processes": " and ".join(map(str, processes)),
        "verdict": c.verdict,
        "to decide": _to_decide(c),
        "rounds to decide": c.rounds_to_decide,
        "seconds to decide": c.seconds_to_decide,
        "reason": _reason(c, comparison),
        "heats": c.met.count or None,
        "heats that count": len(c.met.log_ratios) if c.met.count else None,
        "notes": "; ".join(filter(None, notes)),
    }


def _to_decide(c: ComparedCase) -> str | None:
    """`12 min, 9 rounds`, or the way of measuring that would decide; None if the case is decided."""
    if c.advice == ROUNDS and c.seconds_to_decide is not None:
        return f"{units.minutes(c.seconds_to_decide)}, {c.rounds_to_decide} rounds"
    return c.advice


def _reason(c: ComparedCase, comparison: Comparison) -> str | None:
    """What is particular to the case and differs; for a decided case, what it shares with its library if nothing is.

    What all cases share, such as the machine, is said once above the table.
    """
    if particular := comparison.reasons.of_case.get(c.case):
        return _text(particular)
    shared = comparison.reasons.of_library.get(library_title(c.a, c.b), []) if c.verdict in DECIDED else []
    more = f"; {len(shared) - MOST_SHARED} more, see above" if len(shared) > MOST_SHARED else ""
    return f"{_text(shared[:MOST_SHARED])}{more}" if shared else None


def _text(reasons: Sequence[Reason]) -> str:
    return "; ".join(r.text for r in reasons)


def answer(comparison: Comparison) -> list[str]:
    """What changed, in a few lines: how many cases are slower, which one most, and why; and the others."""
    slower, faster, undecided, same = map(comparison.of, ORDER)
    return _answer(comparison, slower, faster, undecided, f"Same: {len(same)}")


def answer_of_gate(comparison: Comparison, outcome: GateVerdict) -> list[str]:
    """The same by the verdicts of the gate, whose margin is larger."""
    slower, undecided = ([c.compared for c in outcome.of(v) if c.compared] for v in (REGRESSION, CANNOT_TELL))
    others = [c.compared for c in outcome.cases if c.verdict not in (REGRESSION, CANNOT_TELL) and c.compared]
    faster = [c for c in others if c.verdict == "faster"]
    return _answer(comparison, slower, faster, undecided, f"Not slower: {len(others) - len(faster)}")


def _answer(
    comparison: Comparison,
    slower: Sequence[ComparedCase],
    faster: Sequence[ComparedCase],
    undecided: Sequence[ComparedCase],
    same: str,
) -> list[str]:
    lines = [
        f"Slower: {_most(slower, comparison) if slower else f'none of {_cases(comparison.cases)}'}.",
        f"Faster: {_most(faster, None) if faster else 'none'}.",
    ]
    decided = [*slower, *faster]
    lines += _together(moved_together(comparison), MOST_GROUPS)
    if unexplained := sum(not comparison.reasons_of(c) for c in decided):
        which = f"{unexplained} of them" if unexplained < len(decided) else "them" if len(decided) > 1 else "it"
        lines.append(f"No recorded difference explains {which}.")
    to_decide = f". To decide: {', '.join(needs)}" if (needs := _needs(undecided)) else ""
    lines.append(f"{same}. Undecided: {len(undecided)}{to_decide}.")
    if count := len(comparison.left_out):
        only = f"; for {len(comparison.broken)} of them only the first side has a time" if comparison.broken else ""
        lines.append(f"Not compared: {count} case{'' if count == 1 else 's'}{only}.")
    return lines


def _most(changed: Sequence[ComparedCase], comparison: Comparison | None) -> str:
    """How many, and the largest change; with the comparison, also of how many, which case that is, and why."""
    c = max(changed, key=lambda c: abs(math.log(c.ratio)))
    factor = f"{units.significant(max(c.ratio, 1 / c.ratio))}×"
    if comparison is None:
        return f"{_cases(changed)}, most {factor}"
    head = f"{len(changed)} of {_cases(comparison.cases)}, most {factor}"
    case = f"{c.a.record['op']} {c.a.problem_title} {c.a.record['precision']}, {library_title(c.a, c.b)}"
    reason = f"; {found}" if (found := _reason(c, comparison) or _text(comparison.reasons_of(c))) else ""
    return f"{head} ({shorten(case + reason, LONGEST_ANSWER - len(head))})"


def _needs(undecided: Sequence[ComparedCase]) -> list[str]:
    """What would decide so many cases."""
    by_need: dict[str, list[ComparedCase]] = {}
    for c in undecided:
        need = "one process" if c.is_one_process else "load" if c.other_load else c.advice
        if need:
            by_need.setdefault(need, []).append(c)
    total = units.minutes(sum(c.seconds_to_decide or 0.0 for c in by_need.get(ROUNDS, [])))
    texts = {
        "one process": "several processes (--rounds 5)",
        "load": "an idle machine",
        ROUNDS: f"more rounds ({total}; {_rounds_command(by_need.get(ROUNDS, []))})",
        IN_TURN: "both sides in turn (run --against)",
        QUIET_MACHINE: "a quiet machine",
        IMPORTED: "a measurement by DeepBench on both sides"
        + ("" if any(c.is_simulated for c in by_need.get(IMPORTED, [])) else ", or by pyperf with more processes"),
    }
    return [f"{len(by_need[need])} need {text}" for need, text in texts.items() if need in by_need]


def _rounds_command(cases: Sequence[ComparedCase]) -> str:
    """`run --rounds 9`; where cases need different numbers, the command that decides half of them."""
    rounds = sorted(c.rounds_to_decide or 0 for c in cases) or [0]
    enough = median_high(rounds)
    return f"run --rounds {enough}{' decides half of them' if enough < rounds[-1] else ''}"


def sentences(comparison: Comparison) -> list[str]:
    """How to read the table, what was not compared, and what would decide the rest."""
    lines = [f"not compared: {text}" for text in comparison.left_out[:MOST_NAMED]]
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
    lines += [f"no verdict for {count}: {why}." for why, count in _withheld(comparison).items()]
    lines += _about_groups(comparison)
    lines += _slower_with_more_threads(comparison)
    if any(c.is_one_process for c in comparison.cases):
        lines.append("One process per side: significance unknown; measure without --quick, or with --rounds 5.")
    return lines + _advice(comparison)


def _withheld(comparison: Comparison) -> dict[str, str]:
    """Why cases have no verdict, and how many: `3 cases`."""
    counts = Counter(why for c in comparison.cases if (why := c.withheld or _varies(c)))
    return {why: f"{count} case{'s' * (count > 1)}" for why, count in counts.items()}


def _varies(c: ComparedCase) -> str | None:
    """Why a case that would else be the same is undecided."""
    return c.slow_processes if c.verdict == UNDECIDED and not c.other_load else None


def _about_groups(comparison: Comparison) -> list[str]:
    """How sure it is that groups moved together."""
    if not moved_together(comparison):
        return []
    margin = units.percent(comparison.cases[0].margin, 1)
    line = (
        f"together: the mean ratio of the cases of one operation, direction, precision and library is beyond {margin}, "
        "at a false discovery rate of 5 % over such groups. It says nothing about a single case."
    )
    if not comparison.interleaved and not comparison.between_sessions:
        line += (
            " How much the machine changes between sessions is unknown (deepbench selftest measures it); such a change "
            "moves cases together, too."
        )
    return [line]


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
    if imported := by_advice.get(IMPORTED):
        programs = " and ".join(sorted({c.imported or "" for c in imported}))
        lines.append(
            f"imported: the times of {_cases(imported)} were simulated ({programs}). They have no interval, so nothing "
            "is decided; deepbench rank compares the networks."
            if any(c.is_simulated for c in imported)
            else f"imported: {_cases(imported)} came from {programs}, and an imported file has one process per case, "
            "unless pyperf wrote it. Measure both sides with DeepBench (deepbench run), or with more processes of "
            "pyperf."
        )
    return lines


def _cases(cases: Sequence[ComparedCase]) -> str:
    return f"{len(cases)} case{'' if len(cases) == 1 else 's'}"


def parts(comparison: Comparison, names: tuple[str, str], table: Table) -> list[Part]:
    """Everything, for people, with this table of the cases; the answer comes last."""
    mean = [headline(comparison, names)] if comparison.cases else []
    below = [*_unlisted(comparison, table), *sentences(comparison)]
    return [[*mean, *heading(comparison, names)], means(comparison), table, below, answer(comparison)]


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
        "moved_together": [_group_row(g) for g in moved_together(comparison)],
        "cases": [{**_row(c, comparison), "case": c.case, "q": c.q} for c in ordered(comparison)],
        "not_compared": comparison.left_out,
    }
