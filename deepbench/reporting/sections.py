"""The main table: one section per operation with the columns that suit it, then what the flags mean, then a summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import TYPE_CHECKING

from deepbench.core import units
from deepbench.judge.limits import UNKNOWN, Limits
from deepbench.reporting import answers
from deepbench.reporting.cases import (
    ANSWER_ERROR,
    ANSWER_ERRORS,
    COLD,
    INTERVAL,
    INTERVAL_OF_ONE,
    SUSTAINED,
    UNDER_LOAD,
    LibraryRanking,
    differing_places,
    place_cells,
    place_columns,
    rankings,
    reasons,
    status_text,
    time_cell,
    under_load,
)
from deepbench.reporting.notes import DISTURBED, ONE_PROCESS, notes_of
from deepbench.reporting.table import (
    LEAST_PROBLEM,
    Cell,
    Column,
    Note,
    Strong,
    Table,
    number,
    plain_text,
    print_lines,
    time_text,
)
from deepbench.results.record import MEASURED
from deepbench.results.summary import Baseline, FewerThreads, Summary, baselines, cold_times, faster_with_fewer_threads

if TYPE_CHECKING:
    from rich.console import Console

# If half of the problems compute less than this for each byte of minimum traffic, or all of them less than the second
# number, bytes per second say more than FLOP per second. Cores compute 10 to 100 FLOP in the time in which they read a
# byte from memory; normalizations in 16 bits need up to 3.
LEAST_MEDIAN_INTENSITY, LEAST_INTENSITY = 1.0, 4.0

FAILED = Note("failed", "failed", "a library gave no result: the reason is below.", "X")
DISTURBED_ROW = Note(
    "disturbed",
    "disturbed",
    "disturbed by other programs: times with ≤ are upper bounds. Only where a library is bold is it the fastest for "
    "certain. Run again.",
    "D",
)
UNCERTAIN = "≈  the difference is within the uncertainty, so the order is unknown."
LIMIT = "% of limit: share of the limit that explains the time; unexplained: no limit accounts for half of it."
LIMIT_MORE = "deepbench roofline prints the limits."
NO_LIMIT = "limited by unknown: the nearest limit was measured too low, so there is no share; show --full says why."


@dataclass(frozen=True, repr=False)
class Sections:
    """The tables of all operations, with what a reader needs to know below."""

    tables: Sequence[Table]
    explained: Sequence[tuple[str, str]]
    """Columns, and what they, or flags and marks in them, mean."""
    reasons: Sequence[str]
    """Why cases have no time."""
    summary: Sequence[str]
    """Sentences that come last, next to the prompt; the most important first."""

    @property
    def rows(self) -> list[Mapping[str, Cell]]:
        """The rows of all tables."""
        return [row for table in self.tables for row in table.rows]

    @property
    def legend(self) -> list[str]:
        """What the flags, marks and columns of these tables mean."""
        return list(dict.fromkeys(line for _, line in self.explained))

    def print(self, console: Console) -> None:
        """Print the tables, then what they need to be understood, the reasons and the summary."""
        left_out: dict[str, None] = {}
        shown = set()
        for table in self.tables:
            missing = table.print_rows(console)
            left_out |= dict.fromkeys(missing)
            shown |= {column.heading for column in table.columns} - set(missing)
            console.print()
        below = list(dict.fromkeys(line for heading, line in self.explained if heading in shown))
        if left_out:
            below.append(f"Not shown at this width: {', '.join(left_out)}. A wider terminal or --csv has them.")
        summary = answers.shortened(self.summary, console.width) if console.is_terminal else self.summary
        print_lines([*below, *self.reasons, "", *summary], console)

    def __str__(self) -> str:
        return plain_text(self.print)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For a notebook."""
        lines = "".join(f"<p>{escape(line)}</p>" for line in (*self.legend, *self.reasons, *self.summary))
        return "".join(table._repr_html_() for table in self.tables) + lines


def sections(summaries: Sequence[Summary], limits: Limits) -> Sections:
    """The fastest library of each problem, by operation."""
    groups: dict[str, list[LibraryRanking]] = {}
    for ranking in rankings(summaries):
        first = (ranking.ranked or ranking.unranked)[0]
        groups.setdefault(first.record["op"], []).append(ranking)
    compared, fewer, cold = baselines(summaries), faster_with_fewer_threads(summaries), cold_times(summaries)
    tables, notes = [], []
    for op, found in groups.items():
        table, used = _section(op, found, limits, compared, fewer, cold)
        tables.append(table)
        notes += used
    why = reasons(summaries)
    return Sections(tables, _explained(summaries, tables, notes), why, answers.of_run(summaries, limits))


def _explained(summaries: Sequence[Summary], tables: Sequence[Table], notes: Sequence[Note]) -> list[tuple[str, str]]:
    """What columns, marks and flags mean, as far as they occur, each with the heading of its column."""
    ranked = [s for s in summaries if s.is_ranked]
    with_interval = [s for s in ranked if s.estimate and s.estimate.half_width is not None]
    rows = [row for table in tables for row in table.rows]
    firsts = [str(row.get("best")) for row in rows]
    flags = {("flags", note.flag, note.footnote) for note in notes if note.flag}
    interval = INTERVAL if any(not s.single_process for s in with_interval) else INTERVAL_OF_ONE
    return [
        *[("±", interval)] * bool(with_interval),
        *[("±", ONE_PROCESS.footnote)] * any(s.single_process for s in ranked),
        *((n.code, n.footnote) for n in (COLD, SUSTAINED) if any(row.get(n.code) is not None for row in rows)),
        *[(ANSWER_ERRORS.heading, ANSWER_ERROR.footnote)]
        * any(row.get(ANSWER_ERRORS.name) is not None for row in rows),
        *[("% of limit", f"{LIMIT} {LIMIT_MORE}")] * any(row.get("share_of_limit") is not None for row in rows),
        *[("limited by", NO_LIMIT)] * any(row.get("limited_by") == UNKNOWN for row in rows),
        *[("best", UNCERTAIN)] * any(text.startswith("≈") for text in firsts),
        *((heading, f"{flag}  {text}") for heading, flag, text in sorted(flags, key=lambda f: f[1:])),
        *(("notes", note.footnote) for note in notes if not note.flag and note.footnote),
    ]


def _section(
    op: str,
    found: Sequence[LibraryRanking],
    limits: Limits,
    compared: Mapping[str, Baseline],
    fewer: Mapping[str, FewerThreads],
    cold: Mapping[str, Summary],
) -> tuple[Table, list[Note]]:
    """The table of one operation, and the notes that its rows use."""
    firsts = [(r.ranked or r.unranked)[0] for r in found]
    differing = differing_places(firsts)
    rate_name, value_of = rate_of([s for s in firsts if s.is_ranked])
    rows: list[dict[str, Cell]] = []
    used: list[Note] = []
    for ranking, first in zip(found, firsts, strict=True):
        text = first.record["case"]
        notes = notes_of(first, compared.get(text), fewer.get(text)) if first.estimate else []
        notes = [note for note in notes if note is not DISTURBED]
        notes += [DISTURBED_ROW] * any(s.is_disturbed for s in ranking.ranked)
        notes += [FAILED] * any(s.status not in MEASURED for s in ranking.unranked)
        row: dict[str, Cell] = {op: first.problem_title, "type": first.record["precision"]}
        row |= place_cells(first, differing)
        if ranking.ranked:
            name = f"{'≈ ' * bool(ranking.ties)}{first.title_with_version}"
            title = Strong(name) if ranking.is_decided else name
            row |= {"best": title, "time": time_cell(first), "next best": _next_best(ranking)}
            row |= under_load(first, cold) | {"quantization_error": first.quantization_error}
        else:
            texts = dict.fromkeys(map(status_text, ranking.unranked))
            row |= {"best": first.status.replace("_", " "), "next best": ", ".join(texts)}
        if ranking.ranked and not first.is_disturbed:
            nearest, half = limits.nearest(first), first.estimate.half_width if first.estimate else None
            row[rate_name] = value_of(first)
            row["±"] = units.plus_minus(half) + ONE_PROCESS.text * first.single_process if half is not None else None
            row |= {"share_of_limit": nearest.share, "limited_by": nearest.name} if nearest else {}
        row["flags"] = "".join(sorted({note.flag for note in notes}))
        row["notes"] = ", ".join(note.text for note in notes if not note.flag)
        used += notes
        rows.append(row)
    columns = [
        *(
            Column(op, least=LEAST_PROBLEM),
            Column("type"),
            *place_columns(differing),
        ),
        *(Column("best", whole=True), number("time", time_text), number("±"), *UNDER_LOAD, ANSWER_ERRORS),
        number(rate_name, units.significant),
        *(number("share_of_limit", units.percent, "% of limit", 1), Column("limited_by", title="limited by", narrow=3)),
        Column("next best", narrow=2),
        *(Column("flags", style="yellow"), Column("notes", style="yellow", narrow=4)),
    ]
    return Table(columns, rows, shares_names=True).without_empty_columns(), used


def rate_of(ranked: Sequence[Summary]) -> tuple[str, Callable[[Summary], float | None]]:
    """The rate that says most about an operation: its heading with the unit, and its value in this unit.

    Groups move data between ranks, so their rate is the bus bandwidth of nccl-tests.
    """
    if any(s.is_group for s in ranked):
        return "bus GB/s", lambda s: _in(1e9, s.bus_bytes_per_s)
    intensities = [s.record["flop"] / s.record["traffic_bytes"] for s in ranked if s.record["traffic_bytes"]]
    if not intensities or median(intensities) < LEAST_MEDIAN_INTENSITY or max(intensities) < LEAST_INTENSITY:
        return "GB/s", lambda s: _in(1e9, s.bytes_per_s)
    unit, size = units.flop_unit(s.flop_per_s for s in ranked)
    return unit, lambda s: _in(size, s.flop_per_s)


def _in(unit: float, value: float | None) -> float | None:
    return None if value is None else value / unit


def _next_best(ranking: LibraryRanking) -> str | None:
    """`OpenBLAS +8 %`: the second library and how much longer it takes; `≈` where the order is uncertain.

    A disturbed time gives no ratio.
    """
    if len(ranking.ranked) < 2:
        return None
    first, second = ranking.ranked[:2]
    if first.is_disturbed or second.is_disturbed:
        return f"{second.library_title} {time_text(time_cell(second))}"
    ratio = ranking.ratios[1].value if ranking.ratios[1] else second.time_s / first.time_s
    more = f"+{units.percent(max(0.0, ratio - 1))}" if ratio < 2 else f"{units.significant(ratio)}×"
    return f"{'≈ ' * (second in ranking.ties)}{second.library_title} {more}"
