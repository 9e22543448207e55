"""The page about each case over time: charts with their change points, and a table of all cases."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from deepbench.core import units
from deepbench.core.json_lines import printable
from deepbench.core.words import count
from deepbench.judge.history import CaseHistory, ChangePoint, History, MachineHistory
from deepbench.reporting import history as tables
from deepbench.reporting.page import render

SCRIPTS = ("load_plotly.js", "format.js", "table.js", "charts.js", "figures.js", "history.js")

# What a page has at most: those that changed come first. A chart of a thousand files takes 30 KB.
MOST_CHARTS, MOST_POINTS, MOST_ROWS, MOST_SENTENCES = 400, 300_000, 20_000, 40

# Marks of recorded changes in a chart, at most: the latest. A library that is built every night has one per run.
MOST_MARKS = 50

# Times on the page have so many significant digits.
DIGITS = 5


def page(found: History, title: str | None = None) -> bytes:
    """The page in UTF-8. It needs no other file and no network. `BadInput` without Jinja2."""
    data = content(found)
    scripts = [*map(render.asset, SCRIPTS)]
    return render.filled(
        "history.html",
        title=printable(title) if title else "Each case over time",
        machines=[tables.heading(machine) for machine in found.machines],
        answer=[printable(line) for line in tables.answer(found)],
        changes=_changes(found),
        notes=_notes(found, data),
        style=render.asset("page.css"),
        packed=base64.b64encode(render.packed_plotly()).decode(),
        scripts=scripts,
        embed=data,
        policy=render.policy([render.plotly(), *scripts]),
    )


def _changes(found: History) -> list[dict[str, Any]]:
    """The changes of each machine in sentences, the latest first, and how many are not listed."""
    listed = []
    for at, machine in enumerate(found.machines):
        sentences = tables.change_sentences(machine)
        if sentences:
            more = max(0, len(sentences) - MOST_SENTENCES)
            about = {"machine": at, "title": printable(machine.title)}
            listed.append({**about, "lines": sentences[:MOST_SENTENCES], "more": more})
    return listed


def _notes(found: History, data: Mapping[str, Any]) -> list[str]:
    """What the page lacks."""
    notes = []
    cases = len(found.cases)
    if len(data["charts"]) < cases:
        notes.append(f"{len(data['charts'])} of {count(cases, 'case')} have a chart: those that changed come first.")
    if len(data["rows"]) < cases:
        notes.append(f"The table has {len(data['rows'])} of them.")
    if left := [*found.refused, *found.left_out]:
        notes.append(f"Left out: {count(len(left), 'file')}; the first: {left[0]}")
    return [printable(note) for note in notes]


def content(found: History) -> dict[str, Any]:
    """The data of the scripts."""
    ordered = _ordered(found)
    rows: list[dict[str, Any]] = []
    charts: list[dict[str, Any]] = []
    points = 0
    for number, (at, label, case) in enumerate(ordered[:MOST_ROWS]):
        machine = found.machines[at]
        has_chart = len(charts) < MOST_CHARTS and points + len(case.times) <= MOST_POINTS and len(case.times) > 0
        rows.append(_row(number, at, machine, label, case, len(charts) if has_chart else None))
        if has_chart:
            charts.append(_chart(number, machine, case))
            points += len(case.times)
    # The names of files and machines that captions of charts have (figures.js).
    searched = found.not_searched is None
    files = [
        {
            "name": printable(m.title),
            "about": tables.heading(m).rpartition(": ")[2],
            "identity": m.identity,
            "summary": tables.summary(m, searched),
        }
        for m in found.machines
    ]
    runs = [
        [[run.began.strftime("%Y-%m-%dT%H:%M:%SZ"), printable(run.path.name)] for run in m.runs] for m in found.machines
    ]
    return {"page": "history", "files": files, "runs": runs if charts else [], "rows": rows, "charts": charts}


def _ordered(found: History) -> list[tuple[int, str, CaseHistory]]:
    """All cases with the index of their machine: those that changed first, those that became slower on top."""
    every = [
        (at, label, case)
        for at, machine in enumerate(found.machines)
        for label, case in zip(tables.labels(machine), machine.cases, strict=True)
    ]

    def place(item: tuple[int, str, CaseHistory]) -> tuple[bool, float]:
        change = item[2].change
        return (change is None, -(change or 0.0))

    return sorted(every, key=place)


def _row(
    number: int, at: int, machine: MachineHistory, label: str, case: CaseHistory, chart: int | None
) -> dict[str, Any]:
    return {
        "id": number,
        "machine": printable(machine.title),
        "machineIndex": at,
        "title": label,
        "case": printable(case.identity.case),
        "op": printable(case.op),
        "precision": printable(case.precision),
        "library": printable(case.library),
        "threads": case.threads,
        "files": len(case.times),
        "disturbed": len(case.times) - len(case.deciding),
        "first_s": _short(case.first_s),
        "last_s": _short(case.last_s),
        "change": _short(case.change),
        "changes": len(case.changes),
        "last": tables.date_of(case.changes[-1].after) if case.changes else None,
        "chart": chart,
    }


def _chart(number: int, machine: MachineHistory, case: CaseHistory) -> dict[str, Any]:
    place = {run: i for i, run in enumerate(machine.runs)}
    return {
        "row": number,
        "run": [place[t.run] for t in case.times],
        "time_s": [_short(t.time_s) for t in case.times],
        "low_s": [_short(t.low_s) for t in case.times],
        "high_s": [_short(t.high_s) for t in case.times],
        "disturbed": [i for i, t in enumerate(case.times) if t.is_disturbed],
        "changes": [_change(change, place) for change in case.changes],
        "versions": _versions(case),
        "marks": [
            [place[change.run], printable(tables.reasons_text(change.reasons))]
            for change in case.recorded_changes[-MOST_MARKS:]
        ],
        "recorded": printable(tables.recorded_sentence(case) or ""),
    }


def _versions(case: CaseHistory) -> list[tuple[int, str | None]]:
    """The version of the library from each of these times on, where it is another one than before."""
    found: list[tuple[int, str | None]] = []
    last: str | None = None
    for i, time in enumerate(case.times):
        version = dict(time.library).get("version")
        if version != last:
            found.append((i, None if version is None else printable(version)))
            last = version
    return found


def _change(change: ChangePoint, place: Mapping[Any, int]) -> dict[str, Any]:
    return {
        "before": place[change.before],
        "after": place[change.after],
        "before_s": _short(change.before_s),
        "after_s": _short(change.after_s),
        "words": units.faster_or_slower(change.ratio),
        "with": printable(tables.with_it(change)),
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def summaries(found: History) -> dict[str, str]:
    """What pages of machines say about each of them, by its identity."""
    return {m.identity: tables.summary(m, found.not_searched is None) for m in found.machines}
