"""Each case over time for people and programs: a table per machine, the changes in sentences, and the counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from deepbench.core import units
from deepbench.core.errors import shorten
from deepbench.core.json_lines import printable
from deepbench.core.words import count
from deepbench.judge.history import CaseHistory, ChangePoint, History, MachineHistory, TimedRun
from deepbench.judge.reasons import Reason
from deepbench.reporting.output import Report, json_text
from deepbench.reporting.table import Cell, Column, Part, Table, markdown_of, number, print_parts

# With more cases or machines, those that changed are listed, and at most so many of them.
MOST_CASES, MOST_CHANGED, MOST_MACHINES = 20, 50, 10

# Changes in sentences, and what may explain each of them.
MOST_SENTENCES, MOST_REASONS = 20, 6

# Recorded changes that the text of a chart lists; its marks have more of them.
MOST_RECORDED = 4

# A small picture of the times of a case.
BLOCKS, TREND = "▁▂▃▄▅▆▇█", 8


def date_of(run: TimedRun) -> str:
    """The day on which a run began, in UTC."""
    return run.began.date().isoformat()


def moment_of(run: TimedRun) -> str:
    """The minute in which a run began, in UTC."""
    return f"{run.began:%Y-%m-%d %H:%M}"


def labels(machine: MachineHistory) -> list[str]:
    """A short text for each case, which differs from those of all others."""
    found = [_label(case) for case in machine.cases]
    for more in (_threads, _device, lambda case: case.identity.case):
        often = Counter(found)
        found = [
            f"{text}, {more(c)}" if often[text] > 1 else text for text, c in zip(found, machine.cases, strict=True)
        ]
    return [printable(text) for text in found]


def _label(case: CaseHistory) -> str:
    imported = f" (times of {case.identity.imported})" if case.identity.imported else ""
    return f"{case.op} {case.problem} {case.precision}, {case.library}{imported}"


def _threads(case: CaseHistory) -> str:
    return count(case.threads, "thread")


def _device(case: CaseHistory) -> str:
    return case.identity.card or "no GPU"


# ---- the table


def trend(case: CaseHistory) -> str | None:
    """Up to eight blocks that rise with the undisturbed times; None without two of them."""
    logs = [math.log(t.time_s) for t in case.deciding]
    if len(logs) < 2:
        return None
    width = min(TREND, len(logs))
    parts = [logs[len(logs) * i // width : len(logs) * (i + 1) // width] for i in range(width)]
    means = [fmean(part) for part in parts]
    low, high = min(means), max(means)
    # Noise below the margin stays a flat line.
    scale = max(high - low, 2 * math.log1p(0.02))
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int((m - low) / scale * len(BLOCKS)))] for m in means)


def change_text(change: ChangePoint) -> str:
    """`2026-03-02 10.2 % slower`."""
    return f"{date_of(change.after)} {units.faster_or_slower(change.ratio)}"


def _files_text(case: CaseHistory) -> str:
    disturbed = len(case.times) - len(case.deciding)
    return f"{len(case.times)} ({disturbed} D)" if disturbed else str(len(case.times))


COLUMNS = [
    Column("label", title="case", least=20),
    Column("files", align="right", whole=True),
    Column("trend", whole=True, narrow=1),
    number("first_s", units.seconds, "first"),
    number("last_s", units.seconds, "last"),
    Column("change", least=8),
    Column("change points", least=10),
]

ENDS_NOTE = "first, last: the median of the first and of the last five undisturbed times, or of half of them."
DISTURBED_NOTE = "D: times that other programs disturbed. They are upper bounds, and decide nothing."


def table(machine: MachineHistory, cases: Sequence[tuple[str, CaseHistory]], searched: bool) -> Table:
    """One row per case."""
    rows: list[Mapping[str, Cell]] = [
        {
            "label": label,
            "files": _files_text(case),
            "trend": trend(case),
            "first_s": case.first_s,
            "last_s": case.last_s,
            "change": None if case.change is None else units.faster_or_slower(case.change),
            "change points": ", ".join(map(change_text, case.changes)) or None,
        }
        for label, case in cases
    ]
    columns = COLUMNS if searched else COLUMNS[:-2]
    notes = [ENDS_NOTE]
    notes += [DISTURBED_NOTE] if any("D" in str(row["files"]) for row in rows) else []
    return Table(columns, rows, notes)


def listed(machine: MachineHistory, full: bool) -> tuple[list[tuple[str, CaseHistory]], int]:
    """The cases of a machine that are listed, those that changed first, and how many are not."""
    named = list(zip(labels(machine), machine.cases, strict=True))
    order = {id(case): place for place, case in enumerate(machine.changed)}
    named.sort(key=lambda pair: order.get(id(pair[1]), len(order)))
    if full or len(named) <= MOST_CASES:
        return named, 0
    shown = [pair for pair in named if pair[1].changes][:MOST_CHANGED] or named[:MOST_CASES]
    return shown, len(named) - len(shown)


# ---- in sentences


def changes_of(machine: MachineHistory) -> Iterator[tuple[ChangePoint, list[tuple[str, ChangePoint]]]]:
    """The changes of a machine, the latest first: those at the same runs with the same reasons are together."""
    groups: dict[Any, list[tuple[str, ChangePoint]]] = {}
    for label, case in zip(labels(machine), machine.cases, strict=True):
        for change in case.changes:
            texts = None if change.reasons is None else tuple(r.text for r in change.reasons)
            groups.setdefault((change.before, change.after, texts), []).append((label, change))
    ordered = sorted(groups.values(), key=lambda g: (g[0][1].after.began, len(g)), reverse=True)
    for group in ordered:
        group.sort(key=lambda pair: -abs(math.log(pair[1].ratio)))
        yield group[0][1], group


def change_sentence(change: ChangePoint, group: Sequence[tuple[str, ChangePoint]], cases: int) -> str:
    """When it was, how many cases changed and how, and what else changed with them."""
    parts = []
    for verdict in ("slower", "faster"):
        of_verdict = [(label, c) for label, c in group if (c.ratio > 1) == (verdict == "slower")]
        if of_verdict:
            label, largest = of_verdict[0]
            words = units.faster_or_slower(largest.ratio).rpartition(" ")[0]
            who = f"{label} is {words} {verdict}"
            if len(of_verdict) > 1:
                who = f"{len(of_verdict)} of {count(cases, 'case')} are {verdict}, most {words} ({label})"
            parts.append(who)
    return f"From {moment_of(change.after)}: {'; '.join(parts)}; {with_it(change)}."


def with_it(change: ChangePoint) -> str:
    """What was recorded and changed at the same point."""
    if change.reasons is None:
        return "what else changed was not looked up"
    if not change.reasons:
        return "nothing recorded differs"
    return f"with it: {reasons_text(change.reasons)}"


def reasons_text(reasons: Sequence[Reason]) -> str:
    """The first of them, and how many more there are: `oneDNN 3.1 → 3.2, kernel: 6.1 → 6.2`."""
    texts = [shorten(reason.text, 120) for reason in reasons]
    more = f" and {len(texts) - MOST_REASONS} more" if len(texts) > MOST_REASONS else ""
    return f"{', '.join(texts[:MOST_REASONS])}{more}"


def recorded_sentence(case: CaseHistory) -> str | None:
    """What the marks ◆ of a chart stand for; None where it has none. What a change point says is not repeated."""
    recorded = case.recorded_changes
    if not recorded:
        return None
    told = {change.after for change in case.changes if change.reasons}
    others = [(change.run, reasons_text(change.reasons)) for change in recorded if change.run not in told]
    listed = [f"{date_of(run)}: {text}" for run, text in others[-MOST_RECORDED:]]
    more = [f"{len(others) - len(listed)} earlier"] if len(others) > len(listed) else []
    what = f" ({'; '.join([*more, *listed])})" if listed else ""
    return f"◆ The machine or the library changed{what}."


def summary(machine: MachineHistory, searched: bool) -> str:
    """`50 cases over 30 days, 3 changed`."""
    days = (machine.runs[-1].began.date() - machine.runs[0].began.date()).days + 1
    changed = f", {len(machine.changed)} changed" if searched else "; change points were not searched"
    return f"{count(len(machine.cases), 'case')} over {count(days, 'day')}{changed}"


def change_sentences(machine: MachineHistory) -> list[str]:
    """All changes of a machine, the latest first."""
    return [printable(change_sentence(change, group, len(machine.cases))) for change, group in changes_of(machine)]


def heading(machine: MachineHistory) -> str:
    """The machine, how many files it has, and from when to when."""
    first, last = machine.runs[0], machine.runs[-1]
    return printable(f"{machine.title}: {count(len(machine.runs), 'file')}, {date_of(first)} to {date_of(last)}")


def answer(found: History) -> list[str]:
    """How many cases are slower and faster than at first; or why that is not known."""
    margin = units.percent(found.margin, 1)
    if found.not_searched is not None:
        return [f"No change points: {found.not_searched}."]
    changes = [case.change for case in found.cases if case.change is not None]
    slower, faster = sum(c > 1 + found.margin for c in changes), sum(c < 1 / (1 + found.margin) for c in changes)
    back, none = len(changes) - slower - faster, len(found.cases) - len(changes)
    lines = [f"Slower than at first: {slower} of {count(len(found.cases), 'case')}. Faster: {faster}."]
    if back:
        lines.append(f"Changed, and back within {margin}: {back}.")
    lines.append(f"Without a change point: {none}. A change below {margin} does not count.")
    if found.not_explained:
        lines.append(f"At {count(found.not_explained, 'change point')}, what else changed was not looked up.")
    return lines


def parts(found: History, full: bool = False) -> list[Part]:
    """Tables and sentences of all machines, those with changes first; then the answer."""
    machines = sorted(found.machines, key=lambda m: -len(m.changed))
    shown = machines
    if not full and len(machines) > MOST_MACHINES:
        shown = [m for m in machines if m.changed][:MOST_MACHINES] or machines[:MOST_MACHINES]
    made: list[Part] = []
    for machine in shown:
        cases, left = listed(machine, full)
        made += [[heading(machine)], table(machine, cases, found.not_searched is None)]
        if left:
            made.append([f"{count(left, 'case')} more: --full lists them."])
        sentences = change_sentences(machine)
        rest = len(sentences) - MOST_SENTENCES
        made.append(sentences if full or rest <= 0 else [*sentences[:MOST_SENTENCES], f"Earlier changes: {rest}."])
    if left_machines := len(machines) - len(shown):
        made.append([f"{count(left_machines, 'machine')} more: --full lists them, and --host NAME lists one."])
    left_out = len(found.refused) + len(found.left_out)
    made.append([*answer(found), *([f"Left out: {count(left_out, 'file')}."] if left_out else [])])
    return made


# ---- for programs


def report(found: History, full: bool = False) -> Report:
    """Text for people; CSV has one row per case, and JSON also every time and change point."""
    return Report(
        lambda console: print_parts(parts(found, full), console),
        {
            "json": lambda: json_text(to_json(found)),
            "csv": lambda: for_programs(found).csv(),
            "markdown": lambda: markdown_of(parts(found, full)),
        },
    )


def case_row(machine: MachineHistory, label: str, case: CaseHistory) -> dict[str, Cell]:
    """What is known of a case in single values; times are in seconds."""
    last = case.changes[-1] if case.changes else None
    return {
        "host": machine.host,
        "machine": machine.kind,
        "case": case.identity.case,
        "title": label,
        "op": case.op,
        "direction": case.direction,
        "precision": case.precision,
        "library": case.library,
        "threads": case.threads,
        "card": case.identity.card,
        "imported_from": case.identity.imported,
        "files": len(case.times),
        "disturbed": len(case.times) - len(case.deciding),
        "without_time": case.without_time,
        "first_s": case.first_s,
        "last_s": case.last_s,
        "last_over_first": case.ratio,
        "change": case.change,
        "change_points": len(case.changes),
        "last_change": last.after.began.isoformat() if last else None,
        "last_change_ratio": last.ratio if last else None,
        "last_change_p": last.p if last else None,
        "last_change_with": "; ".join(r.text for r in last.reasons or ()) or None if last else None,
    }


def for_programs(found: History) -> Table:
    """One row per case of all machines."""
    rows = [
        case_row(machine, label, case)
        for machine in found.machines
        for label, case in zip(labels(machine), machine.cases, strict=True)
    ]
    return Table([Column(name) for name in rows[0]] if rows else [], rows)


def _run(run: TimedRun) -> dict[str, str | None]:
    return {"file": printable(str(run.path)), "host": run.of_host, "began": run.began.isoformat()}


def to_json(found: History) -> dict[str, Any]:
    """Everything, for programs: times refer to the runs of their machine by index."""
    machines = []
    for machine in found.machines:
        place = {run: i for i, run in enumerate(machine.runs)}
        cases = []
        for label, case in zip(labels(machine), machine.cases, strict=True):
            changes = [
                {
                    "before": place[c.before],
                    "after": place[c.after],
                    "before_s": c.before_s,
                    "after_s": c.after_s,
                    "ratio": c.ratio,
                    "p": c.p,
                    "with": None if c.reasons is None else [reason.text for reason in c.reasons],
                }
                for c in case.changes
            ]
            times = {
                "run": [place[t.run] for t in case.times],
                "time_s": [t.time_s for t in case.times],
                "low_s": [t.low_s for t in case.times],
                "high_s": [t.high_s for t in case.times],
                "disturbed": [t.is_disturbed for t in case.times],
            }
            row = {k: v for k, v in case_row(machine, label, case).items() if k not in ("host", "machine")}
            row = {k: v for k, v in row.items() if not k.startswith("last_change")}
            recorded = [
                {"run": place[c.run], "with": [reason.text for reason in c.reasons]} for c in case.recorded_changes
            ]
            cases.append({**row, "change_points": changes, "recorded_changes": recorded, "times": times})
        runs = list(map(_run, machine.runs))
        machines.append({"host": machine.host, "machine": machine.kind, "runs": runs, "cases": cases})
    return {
        "margin": found.margin,
        "not_searched": found.not_searched,
        "refused": found.refused,
        "left_out": found.left_out,
        "machines": machines,
    }
