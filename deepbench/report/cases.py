"""The tables of cases: one row per problem with its fastest library, or one row per library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from deepbench.core import units
from deepbench.core.backend import all_backends
from deepbench.core.case import known_settings
from deepbench.core.errors import BadInput
from deepbench.core.op import find_op
from deepbench.core.problem import make_problem
from deepbench.judge.limits import Limits, device_of
from deepbench.report.notes import GROUP_BANDWIDTH, ONE_PROCESS, TIE, note_texts, notes_of
from deepbench.report.table import Cell, Column, Note, Strong, Table, footnotes, number
from deepbench.results.record import MEASURED
from deepbench.results.summary import Summary, baselines

INTERVAL = "±: 95 % confidence interval across processes."
PEAK = (
    "% of peak: the limit that applies (compute, a level of memory, latency) and the share of it that is reached; "
    "deepbench roofline prints the limits."
)


@dataclass(frozen=True)
class Ranking:
    """The libraries that did the same work."""

    ranked: list[Summary]
    """Those with a time that counts, the fastest first."""
    unranked: list[Summary]

    @property
    def ties(self) -> list[Summary]:
        """Libraries whose interval overlaps that of the fastest: their order is uncertain."""
        best = self.ranked[0].estimate if self.ranked else None
        if best is None or best.high_s is None:
            return []
        return [
            s
            for s in self.ranked[1:]
            if s.estimate and s.estimate.low_s is not None and s.estimate.low_s <= best.high_s
        ]


def rankings(summaries: Iterable[Summary]) -> list[Ranking]:
    """Group by the work and rank each group by time."""
    groups: dict[str, list[Summary]] = {}
    for s in summaries:
        groups.setdefault(work_text(s), []).append(s)
    return [
        Ranking(
            sorted((s for s in group if s.is_ranked), key=lambda s: s.estimate.time_s if s.estimate else 0.0),
            [s for s in group if not s.is_ranked],
        )
        for group in groups.values()
    ]


def fastest_table(summaries: Sequence[Summary], limits: Limits) -> Table:
    """One row per problem: the fastest library, and the others in one cell."""
    compared, notes = baselines(summaries), _notes_of_marks(summaries)
    rows: list[dict[str, Cell]] = []
    for ranking in rankings(summaries):
        first = (ranking.ranked or ranking.unranked)[0]
        row: dict[str, Cell] = {"problem": title(first), "precision": first.record["precision"], "notes": ""}
        others = [_ratio(s, first, s in ranking.ties) for s in ranking.ranked[1:]]
        others += dict.fromkeys(map(_status, ranking.unranked))
        if ranking.ranked:
            own = notes_of(first, compared.get(first.record["case"]))
            row |= {**_numbers(first, limits), "fastest": Strong(rival_title(first)), "notes": note_texts(own)}
            notes += [*own, *[TIE] * bool(ranking.ties)]
        rows.append({**row, "others": ", ".join(others)})
    groups = {by_group(s) for s in summaries}
    columns = [
        *(Column("problem"), Column("precision"), Column("fastest")),
        *(number("time", units.seconds), number("±")),
        *([number("TFLOP/s", units.flop_per_s)] if False in groups else []),
        *([number("bus GB/s", units.bytes_per_s)] if True in groups else []),
        *(Column("% of peak"), number("undisturbed", units.percent), Column("others"), Column("notes", style="yellow")),
    ]
    return Table(columns, rows, [*footnotes(notes), *_reasons(summaries)])


def library_table(summaries: Sequence[Summary], limits: Limits, repeat: bool = True) -> Table:
    """One row per library. Without `repeat`, only the first row of a problem names it."""
    compared, notes = baselines(summaries), _notes_of_marks(summaries)
    rows: list[dict[str, Cell]] = []
    for ranking in rankings(summaries):
        for i, s in enumerate([*ranking.ranked, *ranking.unranked]):
            own = notes_of(s, compared.get(s.record["case"])) if s.estimate else []
            if s in ranking.ties:
                own.insert(0, TIE)
            if not s.is_ranked:
                own.insert(0, Note(s.status, f"{s.status}: {s.record['reason'] or ''}"))
            fastest = i == 0 and s.is_ranked
            rows.append(
                {
                    "problem": title(s) if i == 0 or repeat else "",
                    "precision": s.record["precision"] if i == 0 or repeat else "",
                    "": "▶" if fastest else "",
                    "library": Strong(rival_title(s)) if fastest else rival_title(s),
                    **_numbers(s, limits),
                    "notes": note_texts(own),
                }
            )
            notes += own
    columns = [
        *(Column("problem"), Column("precision"), *([] if repeat else [Column("")]), Column("library")),
        *(
            number("time", units.seconds),
            number("±"),
            number("TFLOP/s", units.flop_per_s),
            number("GB/s", units.bytes_per_s),
        ),
        *(Column("% of peak"), number("undisturbed", units.percent), Column("notes", style="yellow")),
    ]
    return Table(columns, rows, [*footnotes(notes), *_reasons(summaries)])


def _numbers(s: Summary, limits: Limits) -> dict[str, Cell]:
    e = s.estimate
    if e is None:
        return {}
    standing = limits.standing(s)
    return {
        "time": e.time_s,
        "±": units.plus_minus(e.half_width) + ONE_PROCESS.text * s.single_process,
        "TFLOP/s": s.flop_per_s,
        "GB/s": s.bus_bytes_per_s if by_group(s) else s.bytes_per_s,
        "bus GB/s": s.bus_bytes_per_s,
        "% of peak": f"{units.bar(standing.share)} {standing.bound} {units.percent(standing.share)}"
        if standing
        else None,
        "undisturbed": None if s.imported else e.clean_fraction,  # other programs record no evidence
    }


def _ratio(s: Summary, best: Summary, tie: bool) -> str:
    assert s.estimate is not None, "ranked cases have a time"
    assert best.estimate is not None, "ranked cases have a time"
    return f"{rival_title(s)} {'≈' if tie else ''}{units.significant(s.estimate.time_s / best.estimate.time_s)}×"


def _status(s: Summary) -> str:
    name = library_title(s.record["backend"]) if s.status == "unavailable" else rival_title(s)
    if s.status == "unchecked" and s.estimate:
        return f"{name} {units.seconds(s.estimate.time_s)} unchecked"
    return f"{name} {s.status.replace('_', ' ')}"


def _notes_of_marks(summaries: Sequence[Summary]) -> list[Note]:
    """The notes on columns and on marks in numbers, as far as they occur."""
    notes = []
    if any(s.estimate and s.estimate.half_width is not None for s in summaries):
        notes.append(Note("interval", "", INTERVAL))
    if any(not by_group(s) and s.status == "ok" for s in summaries):
        notes.append(Note("peak", "", PEAK))
    if any(s.single_process for s in summaries):
        notes.append(ONE_PROCESS)
    if any(s.bus_bytes_per_s for s in summaries):
        notes.append(GROUP_BANDWIDTH)
    return notes


def _reasons(summaries: Sequence[Summary]) -> list[str]:
    """Why cases have no time, one line per reason."""
    texts = Counter(f"{_status(s)}: {s.record['reason'] or ''}" for s in summaries if s.status not in MEASURED)
    return [text if count == 1 else f"{text} ({count} cases)" for text, count in texts.items()]


# ---- names of problems and libraries ----


def work_text(s: Summary) -> str:
    """What two cases must share to be rivals: everything but the library, and the ways it goes about the same work."""
    r = s.record
    settings = {n: v for n, v in r["settings"].items() if n not in _ways(s)}
    parts = [r["op"], r["problem"], r["direction"], r["precision"], device_of(r), r["threads"], settings]
    return repr(parts)


def by_group(s: Summary) -> bool:
    """Whether one process a rank takes part."""
    try:
        return find_op(s.record["op"]).group
    except BadInput:
        return s.group is not None


def _ways(s: Summary) -> tuple[str, ...]:
    try:
        return find_op(s.record["op"]).variants
    except BadInput:
        return ()


def rival_title(s: Summary) -> str:
    """The library, and which way it went where that is not its own choice: `MPICH ring`."""
    chosen = [word.partition("=")[2] for word in settings_words(s) if word.partition("=")[0] in _ways(s)]
    return " ".join([library_title(s.record["backend"]), *chosen])


def title(s: Summary) -> str:
    """The problem as its op writes it; a file from elsewhere may have an op that is not here."""
    record = s.record
    try:
        op = find_op(record["op"])
        text = op.title(make_problem(op, record["problem"]))
    except BadInput:
        text = " ".join(f"{k}={v}" for k, v in record["problem"].items())
    extra = [] if record["direction"] == "forward" else [record["direction"]]
    return " ".join([text, *extra, *settings_words(s, ways=False)])


@cache
def _defaults(op: str) -> dict[str, str]:
    try:
        return {n: v[0] for n, v in known_settings(op).items()}
    except BadInput:
        return {}


def settings_words(s: Summary, ways: bool = True) -> list[str]:
    """Settings that are not at their default, as a case's text has them; without those that are only ways to do it."""
    defaults, left_out = _defaults(s.record["op"]), () if ways else _ways(s)
    return [f"{n}={v}" for n, v in s.record["settings"].items() if defaults.get(n) != v and n not in left_out]


def library_title(name: str) -> str:
    """The library as its makers spell it, or the word in the file."""
    known = all_backends()
    return known[name].title if name in known else name


def is_framework(name: str) -> bool:
    """Whether this backend calls libraries of others."""
    known = all_backends()
    return name in known and known[name].framework
