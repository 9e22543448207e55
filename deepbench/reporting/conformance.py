"""A conformance report in words: for a terminal, for programs, and as a page.

Texts of libraries and of files are data: they are shortened, made printable and escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deepbench.core import devices, units
from deepbench.core.errors import shorten
from deepbench.core.files import replacing
from deepbench.core.json_lines import printable
from deepbench.core.precision import PRECISIONS
from deepbench.core.version import VERSION
from deepbench.core.words import count, join
from deepbench.judge.conformance import (
    BANDWIDTH,
    BROKEN,
    Conformance,
    ConformanceCell,
    EndedCase,
    Ending,
    HighestRate,
    HostCost,
)
from deepbench.reporting.output import Report, json_text
from deepbench.reporting.page import render
from deepbench.reporting.table import Column, Part, Table, markdown_of, number, print_parts

# In the order of the sentence at the top: of one case, and of several.
VERBS: dict[Ending, tuple[str, str]] = {
    "right": ("is right", "are right"),
    "refused": ("is refused", "are refused"),
    "wrong": ("is wrong", "are wrong"),
    "untimed": ("is right but its time cannot be trusted", "are right but their time cannot be trusted"),
    "crashed": ("crashed or reported an error", "crashed or reported an error"),
    "timeout": ("hung", "hung"),
    "out_of_memory": ("is too large for the memory", "are too large for the memory"),
    "missing": ("lacks its library", "lack their library"),
    "unchecked": ("is unchecked", "are unchecked"),
    "interrupted": ("was interrupted", "were interrupted"),
    "inconsistent": ("is contradicted by its own record", "are contradicted by their own records"),
}

# In tables.
SHORT: dict[Ending, str] = {
    "right": "right",
    "refused": "refused",
    "wrong": "wrong",
    "untimed": "time not trusted",
    "crashed": "crashed",
    "timeout": "hung",
    "out_of_memory": "too large",
    "missing": "library missing",
    "unchecked": "unchecked",
    "interrupted": "interrupted",
    "inconsistent": "inconsistent",
}

CLOCKS = {
    None: "CPU",
    "slope": "slope",
    "loop": "loop",
    "awaited": "awaited",
}

CLOCK_NOTES = {
    "slope": "slope: the growth of the time from k to 3k calls with one wait at the end; an upper bound of a call",
    "loop": "loop: the growth of the time from N to 2N turns of a loop inside one program",
    "awaited": "awaited: calls of 20 ms or more, each with its wait",
}

# Texts of libraries may be of any length.
LONGEST_IN_TABLE, LONGEST_REASON, LONGEST_NAME = 70, 500, 100
# So many reasons, and cases of each, are printed; pages, Markdown and JSON have all.
MOST_REASONS, MOST_CASES_OF_REASON = 40, 3


def conclusion(found: Conformance) -> list[str]:
    """What the report says in a sentence or two."""
    numbers = {ending: len(found.of(ending)) for ending in VERBS}
    parts = [f"{n} {VERBS[ending][n != 1]}" for ending, n in numbers.items() if n]
    lines = [f"Of {count(found.planned, 'case')}, {join(parts)}." if parts else "No case was measured."]
    if left := found.planned - len(found.cases):
        lines.append(f"{count(left, 'case')} {'is' if left == 1 else 'are'} not measured yet.")
    broken = [f"{cell.op} {cell.precision}" for cell in found.cells if cell.of(*BROKEN)]
    if broken:
        most = 6
        names = dict.fromkeys(broken)
        more = f", and {len(names) - most} more" if len(names) > most else ""
        lines.append(f"What fails: {printable(', '.join([*names][:most]))}{more}.")
    return lines


def head(found: Conformance) -> list[tuple[str, str]]:
    """Labels and texts: device, what reaches it, host and date."""
    facts = found.facts
    lines = [("device", ", ".join(map(devices.title, facts["devices"])) or "none")]
    if lines[0][1] != (names := ", ".join(facts["devices"])) and names:
        lines[0] = ("device", f"{lines[0][1]} ({names})")
    itself = dict.fromkeys(_name(library["calls_itself"]) for library in facts["libraries"].values())
    if text := ", ".join(filter(None, itself)):
        lines.append(("itself", f"{text} (what it or its driver calls it)"))
    for name, library in facts["libraries"].items():
        about = [_name(library[key]) for key in ("name", "version", "build", "file")]
        text = ", ".join(dict.fromkeys(filter(None, about))) or _name(library["missing"]) or "unknown"
        lines.append((printable(name), text))
    host = [_name(facts[key]) for key in ("host", "cpu", "system")]
    lines.append(("host", ", ".join(filter(None, host)) or "unknown"))
    lines.append(("date", f"{_name(facts['started'])}, {_name(facts['tool'])}, reported by {VERSION}"))
    return [(label, printable(text)) for label, text in lines]


def _name(value: object) -> str:
    """Any value of a file as a short text; empty without one."""
    return "" if value is None else printable(shorten(" ".join(str(value).split()), LONGEST_NAME))


# ---- tables


def operations_table(found: Conformance) -> Table:
    """A row for each operation in each precision."""
    several = len({cell.backend for cell in found.cells}) > 1
    rows: list[dict[str, Any]] = []
    above: tuple[str, str] | None = None
    for cell in _in_order(found.cells):
        key = (cell.backend, cell.op)
        rows.append(
            {
                "library": printable(cell.backend) if above is None or above[0] != cell.backend else "",
                "operation": printable(cell.op) if key != above else "",
                "precision": printable(cell.precision),
                "right": f"{len(cell.of('right'))} of {len(cell.cases)}",
                "otherwise": otherwise(cell),
                "ran": _ran(cell),
            }
        )
        above = key
    columns = [
        *([Column("library", whole=True)] if several else []),
        Column("operation", whole=True),
        Column("precision", whole=True),
        number("right"),
        Column("otherwise"),
        Column("ran", title="what ran", narrow=1),
    ]
    return Table(columns, rows).without_empty_columns("otherwise")


def _in_order(cells: Sequence[ConformanceCell]) -> list[ConformanceCell]:
    """By backend and operation as they come, then by precision as these are listed everywhere."""
    precisions, places = list(PRECISIONS), dict[tuple[str, str], int]()
    for cell in cells:
        places.setdefault((cell.backend, ""), len(places))
        places.setdefault((cell.backend, cell.op), len(places))

    def place(cell: ConformanceCell) -> tuple[int, ...]:
        known = cell.precision in precisions
        number = precisions.index(cell.precision) if known else len(precisions)
        return places[cell.backend, ""], places[cell.backend, cell.op], number

    return sorted(cells, key=place)


def otherwise(cell: ConformanceCell) -> str:
    """How those cases ended that are not right."""
    found = []
    for ending in VERBS:
        cases = cell.of(ending)
        if ending == "right" or not cases:
            continue
        text = f"{len(cases)} {SHORT[ending]}"
        if ending == "wrong":
            worst = how_wrong(max(cases, key=lambda c: -1.0 if c.error is None else c.error))
            text += f" ({worst})" if worst else ""
        elif ending not in BROKEN and len({case.reason for case in cases}) == 1:  # failures are listed below
            text += f": {_shortened(cases[0].reason, LONGEST_IN_TABLE)}"
        found.append(text)
    return "; ".join(found)


def _ran(cell: ConformanceCell) -> str:
    names = [shorten(printable(name), 50) for name in cell.ran]
    return "; ".join([*names[:2], *([f"and {len(names) - 2} more"] if len(names) > 2 else [])])


def how_wrong(case: EndedCase) -> str:
    """The error of a wrong result; empty where only the reason tells."""
    return "" if case.error is None else f"error of {case.error:.3g} tolerances"


def _shortened(reason: str | None, most: int) -> str:
    return shorten(printable(" ".join((reason or "no reason given").split())), most)


@dataclass(frozen=True)
class ReasonText:
    """A reason of cases that are not right, with their texts."""

    how: str
    """How they ended, and how many."""
    reason: str
    cases: Sequence[str]
    is_failure: bool


def reasons(found: Conformance) -> list[ReasonText]:
    """Each reason once, failures first."""
    texts = [
        ReasonText(
            f"{SHORT[given.ending]}, {count(len(given.cases), 'case')}",
            _shortened(given.reason, LONGEST_REASON),
            list(map(printable, given.cases)),
            given.ending in BROKEN,
        )
        for given in found.reasons
    ]
    return sorted(texts, key=lambda text: not text.is_failure)


def _reason_lines(texts: Iterable[ReasonText], everything: bool) -> Iterator[str]:
    for text in texts:
        some = text.cases if everything else text.cases[:MOST_CASES_OF_REASON]
        more = [f"and {len(text.cases) - len(some)} more"] if len(text.cases) > len(some) else []
        yield f"{text.how}: {text.reason}"
        yield f"    {'; '.join([*some, *more])}"


def rates_table(found: Conformance) -> Table:
    """The highest rate of products in each precision, and of moving data."""
    several = len({rate.backend for rate in found.rates}) > 1
    rows = [
        {
            "what": printable(rate.what) if rate.what != BANDWIDTH else "memory",
            "rate": _rate_text(rate),
            "interval": _interval_text(rate),
            "share": share_text(rate),
            "clock": printable(CLOCKS.get(rate.clock, str(rate.clock))),
            "library": printable(rate.backend) if several else "",
            "problem": printable(rate.problem),
        }
        for rate in found.rates
    ]
    columns = [
        Column("what", title="precision", whole=True),
        number("rate", title="highest rate"),
        number("interval", title="95 % interval"),
        number("share", title="of peak"),
        Column("clock", whole=True),
        Column("library", whole=True),
        Column("problem", narrow=1),
    ]
    return Table(columns, rows, rate_notes(found)).without_empty_columns("rate", "clock")


def rate_notes(found: Conformance) -> list[str]:
    """What a reader of the rates must know."""
    notes = [CLOCK_NOTES[clock] + "." for clock in CLOCK_NOTES if any(r.clock == clock for r in found.rates)]
    if any(rate.is_impossible for rate in found.rates):
        notes.append(
            "impossible: the rate is above the peak, so the stated peak is not that of this device, the clock was "
            "wrong, or the work was not done. No conclusion rests on it."
        )
    if any(rate.peak is not None and not rate.is_stated for rate in found.rates):
        notes.append("Where no peak is stated, it is the one that the driver gives for the card.")
    if any(rate.peak is None for rate in found.rates):
        notes.append("No share without a peak: --peak bf16=989T and --bandwidth 4.8TB/s state those of the data sheet.")
    if any(rate.is_disturbed for rate in found.rates):
        notes.append("≥: other programs disturbed the measurement, so the rate is at least this.")
    return notes


def _scaled(rate: HighestRate, value: float) -> str:
    kind = "B/s" if rate.what == BANDWIDTH else "FLOP/s"
    return units.scaled(value, tuple((10.0**e, f"{p}{kind}") for p, e in (("P", 15), ("T", 12), ("G", 9), ("M", 6))))


def _rate_text(rate: HighestRate) -> str:
    return f"{'≥ ' if rate.is_disturbed else ''}{_scaled(rate, rate.per_s)}"


def _interval_text(rate: HighestRate) -> str | None:
    if rate.low is None or rate.high is None:
        return None
    low, high = _scaled(rate, rate.low), _scaled(rate, rate.high)
    (first, unit), (last, other) = low.split(), high.split()
    return f"{first} to {last}" if unit == other == _scaled(rate, rate.per_s).split()[1] else f"{low} to {high}"


def share_text(rate: HighestRate) -> str | None:
    """The share of the peak; None without a peak."""
    if rate.share is None:
        return None
    least = "≥ " if rate.is_disturbed else ""
    return f"{least}{units.percent(rate.share, 1)}{' (impossible)' if rate.is_impossible else ''}"


def host_lines(found: Conformance) -> list[str]:
    """What calls cost the host, a sentence per backend."""
    return [printable(_host_line(cost)) for cost in found.host]


def _host_line(cost: HostCost) -> str:
    parts = []
    if cost.enqueue_s is not None:
        parts.append(f"to give the device a call takes {units.seconds(cost.enqueue_s)} (median)")
    if cost.empty_s is not None:
        parts.append(f"in a row, a call that computes next to nothing takes {units.seconds(cost.empty_s)}")
    if cost.alone_s is not None:
        parts.append(f"the shortest call that is made and awaited takes {units.seconds(cost.alone_s)}")
    return f"Host, {cost.backend}, {count(cost.cases, 'case')}: {'; '.join(parts)}."


# ---- for people and programs


def parts(found: Conformance, everything: bool = False) -> list[Part]:
    """Sentences and tables; `everything`: all reasons, and all cases of each."""
    texts = reasons(found)
    shown = texts if everything else texts[:MOST_REASONS]
    left = [f"{count(len(texts) - len(shown), 'reason')} more: --page, --markdown and --json have all."]
    width = max(len(label) for label, _ in head(found))
    return [
        conclusion(found),
        [f"{label:{width}}  {text}" for label, text in head(found)],
        operations_table(found),
        [*_reason_lines(shown, everything), *(left if len(texts) > len(shown) else [])],
        rates_table(found),
        host_lines(found),
    ]


def report(found: Conformance) -> Report:
    """The report for people, as JSON with every case, as Markdown, and its operations as CSV."""
    return Report(
        lambda console: print_parts(parts(found), console),
        {
            "json": lambda: json_text(values(found)),
            "csv": operations_table(found).csv,
            "markdown": lambda: markdown_of(
                part for part in parts(found, everything=True) if not isinstance(part, Table) or part.rows
            ),
        },
    )


def values(found: Conformance) -> dict[str, Any]:
    """Everything, for programs."""
    return {
        "conclusion": " ".join(conclusion(found)),
        "broken": found.is_broken,
        "planned": found.planned,
        "counts": {ending: len(found.of(ending)) for ending in VERBS},
        "about": dict(found.facts),
        "cases": [asdict(case) for case in found.cases],
        "rates": [{**asdict(r), "share_of_peak": r.share, "is_impossible": r.is_impossible} for r in found.rates],
        "host": [asdict(cost) for cost in found.host],
    }


# ---- the page


def write_page(found: Conformance, path: Path, title: str | None = None) -> None:
    """Write the report as a page that needs no other file and no network."""
    name = printable(title) if title else f"Conformance: {head(found)[0][1]}"
    page = render.filled(
        "conformance.html",
        embed=values(found),
        title=name,
        style=render.asset("page.css"),
        policy=render.policy([]),
        is_broken=found.is_broken,
        lines=conclusion(found),
        head=head(found),
        grids=list(_grids(found)),
        rates=_plain(rates_table(found)),
        host=host_lines(found),
        reasons=reasons(found),
        operations=_plain(operations_table(found)),
    )
    with replacing(path) as draft:
        draft.write_bytes(page)


def _plain(table: Table) -> dict[str, Any]:
    """Headings and texts of a table, for the template."""
    rows = [["" if row.get(c.name) is None else str(row.get(c.name)) for c in table.columns] for row in table.rows]
    return {"headings": [c.heading for c in table.columns], "rows": rows, "notes": table.notes}


def _grids(found: Conformance) -> Iterable[Mapping[str, Any]]:
    """For each backend, operations × precisions, with the marks of what ended how."""
    for backend in dict.fromkeys(cell.backend for cell in found.cells):
        cells = _in_order([cell for cell in found.cells if cell.backend == backend])
        used = dict.fromkeys(cell.precision for cell in cells)
        precisions = [name for name in PRECISIONS if name in used] + [name for name in used if name not in PRECISIONS]
        by_place = {(cell.op, cell.precision): cell for cell in cells}
        rows = [
            (printable(op), [_mark(by_place.get((op, precision))) for precision in precisions])
            for op in dict.fromkeys(cell.op for cell in cells)
        ]
        yield {"backend": printable(backend), "precisions": [printable(p) for p in precisions], "rows": rows}


def _mark(cell: ConformanceCell | None) -> dict[str, str]:
    if cell is None:
        return {"state": "none", "text": "–"}
    right, broken = len(cell.of("right")), len(cell.of(*BROKEN))
    state = "bad" if broken else "good" if right == len(cell.cases) else "partly" if right else "refused"
    words = [f"{right}/{len(cell.cases)}"]
    told = [ending for ending in VERBS if ending not in ("right", "refused") and cell.of(ending)]
    words += [f"{len(cell.of(ending))} {SHORT[ending]}" for ending in told]
    return {"state": state, "text": ", ".join(words)}
