"""Which library is the fastest, and the table with one row per library; `sections.py` has one row per problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from deepbench.core import units
from deepbench.judge import heats
from deepbench.judge.heats import Ratio
from deepbench.judge.limits import Limits, NearestLimit
from deepbench.reporting.notes import GROUP_BANDWIDTH, ONE_PROCESS, TIE, disturbed_sentences, note_texts, notes_of
from deepbench.reporting.table import (
    LEAST_PROBLEM,
    AtMost,
    Cell,
    Column,
    Note,
    Strong,
    Table,
    flop_rates,
    footnotes,
    number,
    time_text,
)
from deepbench.results.record import MEASURED
from deepbench.results.summary import Summary, baselines, cold_times, faster_with_fewer_threads
from deepbench.results.work import Work

INTERVAL = "±: 95 % confidence interval across processes."
INTERVAL_OF_ONE = "±: 95 % confidence interval."
UNDISTURBED = Note("undisturbed", "", "undisturbed: share of the samples that no other program disturbed.")
OTHERS = Note("others", "", "vs fastest: with the 95 % interval of the ratio, where both met in heats.")
LIMIT = Note(
    "limit",
    "",
    "limited by: the limit that explains the time (compute, a level of memory, latency, parallelism, conversion) and "
    "its share; unexplained: no limit accounts for half of the time; unknown: the nearest limit was measured too low. "
    "deepbench roofline prints the limits.",
)


@dataclass(frozen=True)
class LibraryRanking:
    """The libraries that did the same work."""

    ranked: list[Summary]
    """Those with a time that counts, the fastest first."""
    unranked: list[Summary]

    @cached_property
    def ratios(self) -> list[Ratio | None]:
        """For each ranked library: its time over that of the first one; None where both never met in a heat."""
        return [heats.ratio(self.ranked[0], s) for s in self.ranked]

    @property
    def is_decided(self) -> bool:
        """Whether other programs leave no doubt which library is the first.

        A disturbed time is an upper bound: it may be that of the fastest library, unless others are faster.
        """
        first, *rest = self.ranked
        if not first.is_disturbed:
            return not any(s.is_disturbed for s in rest)
        return all(not s.is_disturbed and _lowest_s(s) > first.time_s for s in rest)

    @property
    def ties(self) -> list[Summary]:
        """Libraries whose order after the first one is uncertain, by their ratio or else by their times."""
        rest = [*zip(self.ranked, self.ratios, strict=True)][1:]
        return [
            s
            for s, ratio in rest
            if not (_is_certain(ratio, s, self.ranked[0]) if ratio else _is_slower(s, self.ranked[0]))
        ]


def _lowest_s(s: Summary) -> float:
    """The lower end of its interval, or its time if there is none."""
    return s.estimate.low_s if s.estimate and s.estimate.low_s is not None else s.time_s


def time_cell(s: Summary) -> float:
    """Its time, or its upper bound."""
    return AtMost(s.time_s) if s.is_disturbed else s.time_s


def _is_certain(ratio: Ratio, s: Summary, first: Summary) -> bool:
    """Whether a ratio from heats shows an order; not where the times of all samples show the opposite one."""
    is_opposite = s.time_s < first.time_s and heats.is_order(s.time_s / first.time_s)
    return ratio.is_certain and not is_opposite


def _is_slower(s: Summary, first: Summary) -> bool:
    """Whether the intervals of two times are apart, and so far if one process alone measured one of them."""
    low_s = s.estimate.low_s if s.estimate else None
    high_s = first.estimate.high_s if first.estimate else None
    overlap = low_s is not None and high_s is not None and low_s <= high_s
    is_single = s.single_process or first.single_process
    return not overlap and (not is_single or heats.is_order(s.time_s / first.time_s))


def differing_places(summaries: Sequence[Summary]) -> list[str]:
    """What says where cases ran, as far as they differ in it: `device`, `threads`."""
    places = [_place(s) for s in summaries]
    return [name for name in ("device", "threads") if len({place[name] for place in places}) > 1]


def place_cells(s: Summary, names: Iterable[str]) -> dict[str, Cell]:
    """The cells of these columns."""
    place = _place(s)
    return {name: place[name] for name in names}


def _place(s: Summary) -> dict[str, Cell]:
    return {"device": s.record["device"], "threads": s.record["threads"]}


def place_columns(names: Iterable[str]) -> list[Column]:
    """The columns of what `differing_places` found."""
    return [number(name) if name == "threads" else Column(name) for name in names]


def rankings(summaries: Iterable[Summary]) -> list[LibraryRanking]:
    """Group by the work and rank each group by time."""
    groups: dict[Work, list[Summary]] = {}
    for s in summaries:
        groups.setdefault(s.work, []).append(s)
    return [LibraryRanking(_ordered(g), [s for s in g if not s.is_ranked]) for g in groups.values()]


def _ordered(group: Sequence[Summary]) -> list[Summary]:
    """The ranked ones, the fastest first: by their ratios where all met in heats, else by their times."""
    ranked = sorted((s for s in group if s.is_ranked), key=lambda s: s.time_s)
    if any(s.is_disturbed for s in ranked):
        return ranked
    ratios = [heats.ratio(ranked[0], s) for s in ranked[1:]]
    if None in ratios:
        return ranked
    values = {id(s): ratio.value for s, ratio in zip(ranked[1:], ratios, strict=True) if ratio}
    return sorted(ranked, key=lambda s: values.get(id(s), 1.0))


def _compared(first: Summary, s: Summary, ratio: Ratio | None, tie: bool) -> str:
    """A slower library next to the fastest one: `1.37× slower ±0.4 %`.

    A disturbed time gives no ratio. Heats do not help, because libraries whose threads wait
    for each other suffer far more from other programs.
    """
    if first.is_disturbed or s.is_disturbed:
        return "no ratio: disturbed" if s.is_disturbed else "no ratio: fastest is disturbed"
    words = units.faster_or_slower(ratio.value if ratio else s.time_s / first.time_s)
    half = ratio.half_width if ratio else None
    return f"{'≈' * tie}{words}{f' {units.plus_minus(half)}' if half is not None else ''}"


def library_table(summaries: Sequence[Summary], limits: Limits, repeat: bool = False) -> Table:
    """One row per library. Without `repeat`, only the first row of a problem names it."""
    compared, notes = baselines(summaries), _notes_of_marks(summaries)
    fewer, cold = faster_with_fewer_threads(summaries), cold_times(summaries)
    differing = differing_places(summaries)
    rows: list[dict[str, Cell]] = []
    for ranking in rankings(summaries):
        ratios = [*ranking.ratios, *[None] * len(ranking.unranked)]
        for i, (s, ratio) in enumerate(zip([*ranking.ranked, *ranking.unranked], ratios, strict=True)):
            text = s.record["case"]
            case_notes = notes_of(s, compared.get(text), fewer.get(text)) if s.estimate else []
            if s in ranking.ties:
                case_notes.insert(0, TIE)
            if not s.is_ranked:
                case_notes.insert(0, Note(s.status, f"{s.status}: {s.record['reason'] or ''}"))
            fastest = i == 0 and s.is_ranked and ranking.is_decided
            rows.append(
                {
                    "problem": s.problem_title if i == 0 or repeat else "",
                    "precision": s.record["precision"] if i == 0 or repeat else "",
                    **(place_cells(s, differing) if i == 0 or repeat else dict.fromkeys(differing, "")),
                    "": "▶" if fastest else "",
                    "library": Strong(s.library_title) if fastest else s.library_title,
                    **_numbers(s, limits),
                    **under_load(s, cold),
                    "quantization_error": s.quantization_error,
                    "than": _compared(ranking.ranked[0], s, ratio, s in ranking.ties) if i and s.is_ranked else "",
                    "notes": note_texts(case_notes),
                }
            )
            notes += case_notes + [OTHERS] * (i > 0 and s.is_ranked)
    unit = units.flop_unit(s.flop_per_s for s in summaries)
    columns = [
        *(Column("problem", least=LEAST_PROBLEM), Column("precision", title="type"), *place_columns(differing)),
        *([] if repeat else [Column("")]),
        *(Column("library"), number("time", time_text), number("±"), *UNDER_LOAD, ANSWER_ERRORS),
        flop_rates("flop_per_s", unit, narrow=3),
        number("bytes_per_s", units.bytes_per_s, "GB/s", narrow=4),
        *(Column("than", title="vs fastest", narrow=1), Column("limited_by", title="limited by", narrow=2)),
        *(number("undisturbed", units.percent, narrow=5), Column("notes", style="yellow")),
    ]
    below = [*disturbed_sentences(summaries), *footnotes(notes), *reasons(summaries)]
    return Table(columns, rows, below).without_empty_columns()


def ranking_table(summaries: Sequence[Summary]) -> Table:
    """One row per problem and library with a time, the fastest library of each problem first."""
    rows: list[dict[str, Cell]] = []
    for ranking in rankings(summaries):
        for s in ranking.ranked:
            assert s.estimate is not None, "ranked cases have a time"
            names: dict[str, Cell] = {"problem": s.problem_title, "precision": s.record["precision"]}
            times: dict[str, Cell] = {"time": time_cell(s), "low": s.estimate.low_s, "high": s.estimate.high_s}
            names |= {"threads": s.record["threads"], "library": s.library_title}
            compared = not (s.is_disturbed or ranking.ranked[0].is_disturbed)
            ratio = s.time_s / ranking.ranked[0].time_s if compared else None
            disturbed = "disturbed" if s.is_disturbed else None
            error = {"quantization_error": s.quantization_error}
            rows.append({**names, **times, **error, "time_over_fastest": ratio, "notes": disturbed})
    columns = [
        *(
            Column("problem", least=LEAST_PROBLEM),
            Column("precision", title="type"),
            number("threads", narrow=3),
            Column("library"),
        ),
        *(number(name, time_text, narrow=0 if name == "time" else 2) for name in ("time", "low", "high")),
        ANSWER_ERRORS,
        number("time_over_fastest", units.faster_or_slower, "vs fastest"),
        Column("notes", style="yellow"),
    ]
    notes = [*disturbed_sentences(summaries), "low, high: 95 % confidence interval of the time."]
    return Table(columns, rows, notes).without_empty_columns()


def _numbers(s: Summary, limits: Limits) -> dict[str, Cell]:
    e = s.estimate
    if e is None:
        return {}
    nearest = limits.nearest(s)
    return {
        "time": time_cell(s) if s.is_ranked else e.time_s,
        "±": units.plus_minus(e.half_width) + ONE_PROCESS.text * s.single_process if e.half_width is not None else None,
        # Of an upper bound of the time, rates and shares would be lower bounds.
        "flop_per_s": None if s.is_disturbed else s.flop_per_s,
        "bytes_per_s": None if s.is_disturbed else s.bus_bytes_per_s if s.is_group else s.bytes_per_s,
        "limited_by": _limit(nearest) if nearest and not s.is_disturbed else None,
        "undisturbed": None if s.imported else e.undisturbed_fraction,  # other programs record no evidence
    }


ANSWER_ERRORS = number("quantization_error", units.precise_percent, "answer error")

# Times next to that of hot caches and a short load.
UNDER_LOAD = (number("cold", time_text), number("sustained", time_text))
ANSWER_ERROR = Note(
    "quantization_error",
    "",
    "answer error: how far the result is from that of the weights before quantization (docs/formulas.md).",
)
SUSTAINED = Note("sustained", "", "sustained: time per call after seconds of load, when power has lowered the clock.")
COLD = Note("cold", "", "cold: the same with buffers that take turns, so that nothing is in the caches.")


def under_load(s: Summary, cold: Mapping[str, Summary]) -> dict[str, Cell]:
    """The times of a case with cold caches, and after seconds of load, where they were measured."""
    other = cold.get(s.record["case"])
    return {"cold": other.time_s if other else None, "sustained": s.sustained_s}


def _limit(nearest: NearestLimit) -> str:
    """The limit with a bar, if there is a share of it."""
    return str(nearest) if nearest.share is None else f"{units.bar(nearest.share)} {nearest}"


def status_text(s: Summary) -> str:
    """The library and what became of it: `MKL crashed`, `null 10 ns unchecked`."""
    name = s.record["library_title"] if s.status == "unavailable" else s.library_title
    if s.status == "unchecked" and s.estimate:
        return f"{name} {units.seconds(s.estimate.time_s)} unchecked"
    return f"{name} {s.status.replace('_', ' ')}"


def _notes_of_marks(summaries: Sequence[Summary]) -> list[Note]:
    """The notes on columns and on marks in numbers, as far as they occur."""
    with_interval = [s for s in summaries if s.estimate and s.estimate.half_width is not None]
    interval = INTERVAL if any(not s.single_process for s in with_interval) else INTERVAL_OF_ONE
    return [
        *[Note("interval", "", interval)] * bool(with_interval),
        *[LIMIT] * any(not s.is_group and s.status == "ok" for s in summaries),
        *[ANSWER_ERROR] * any(s.quantization_error is not None for s in summaries),
        *[SUSTAINED] * any(s.sustained_s for s in summaries),
        *[COLD] * bool(cold_times(summaries)),
        *[UNDISTURBED] * any(s.is_ranked and not s.imported for s in summaries),
        *[ONE_PROCESS] * any(s.single_process for s in summaries),
        *[GROUP_BANDWIDTH] * any(s.bus_bytes_per_s for s in summaries),
    ]


def reasons(summaries: Sequence[Summary]) -> list[str]:
    """Why cases have no time, one line per reason."""
    texts = Counter(f"{status_text(s)}: {s.record['reason'] or ''}" for s in summaries if s.status not in MEASURED)
    return [text if count == 1 else f"{text} ({count} cases)" for text, count in texts.items()]
