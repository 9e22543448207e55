"""Published results for people: which machines there are, what each did, and ours beside theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deepbench.core import units
from deepbench.core.op import find_op
from deepbench.report.compare import ratio_words
from deepbench.report.table import rival_title, title
from deepbench.report.views import Cell, View
from deepbench.results import published
from deepbench.results.published import Match
from deepbench.results.summary import Summary


def machines() -> View:
    """A row a machine."""
    rows: list[dict[str, Cell]] = []
    for name in published.machines():
        own = [s for s in published.sheets() if s.machine == name]
        found = [r for r in published.results() if r.machine == name]
        rows.append(
            {
                "machine": name,
                "year": max(s.year for s in own),
                "suites": ", ".join(s.suite.removeprefix("deepbench/") for s in own),
                "results": len(found),
                "precisions": ", ".join(sorted({r.precision for r in found})),
                "ops": ", ".join(dict.fromkeys(r.op for r in found)),
                "software": "; ".join(dict.fromkeys(s.software for s in own)),
            }
        )
    notes = [
        f"{len(published.results())} numbers of {len(published.sheets())} workbooks, as Baidu's DeepBench published "
        "them from 2016 to 2019.",
        "deepbench reference show V100 lists one machine; deepbench compare FILE V100 sets yours beside it.",
    ]
    return View(
        dict.fromkeys(("machine", "year", "suites", "results", "precisions", "ops", "software"), str), rows, notes
    )


def of_machine(machine: str, op: str | None = None, precision: str | None = None) -> View:
    """A row a number, the sheet's own rate beside the one of its time where they disagree."""
    found = [
        r
        for r in published.results()
        if r.machine == machine and op in (None, r.op) and precision in (None, r.precision)
    ]
    rows: list[dict[str, Cell]] = [
        {
            "suite": f"{r.suite}:{r.row}",
            "op": r.op,
            "problem": find_op(r.op).title(r.values),
            "direction": r.direction,
            "precision": r.precision,
            "time": r.time_s,
            "TFLOP/s": r.flop_per_s,
            "published": r.published_flop_per_s if r.wrong_rate else None,
            "GB/s published": r.published_bytes_per_s,
            "how": r.how or None,
            "notes": ", ".join(filter(None, ["padded" if r.padded else "", r.note])) or None,
        }
        for r in found
    ]
    columns: dict[str, Callable[[Any], str]] = {
        **dict.fromkeys(("suite", "op", "problem", "direction", "precision"), str),
        "time": units.seconds,
        "TFLOP/s": units.flop_per_s,
        "published": units.flop_per_s,
        "GB/s published": lambda v: units.significant(v / 1e9),
        **dict.fromkeys(("how", "notes"), str),
    }
    shown = {n: show for n, show in columns.items() if any(row[n] is not None for row in rows)}
    lines = [
        f"{s.suite}: {s.software}, {s.year}, {s.facts['source_file']}"
        for s in published.sheets()
        if s.machine == machine
    ]
    wrong = sum(r.wrong_rate for r in found)
    if wrong:
        lines.append(f"published: the sheet's own TFLOP/s where it is not that of its time ({wrong} rows).")
    lines.append("Means of calls made back to back; no answer was checked.")
    return View(shown, rows, lines)


def beside(found: Sequence[Match]) -> View:
    """A row a case of ours that the machine has too."""
    rows: list[dict[str, Cell]] = []
    for b in found:
        low, high = b.interval or (None, None)
        assert b.ours.estimate is not None, "only measured cases are matched"
        rows.append(
            {
                "op": b.ours.record["op"],
                "problem": title(b.ours),
                "precision": f"{b.ours.record['precision']}, {b.theirs.precision}",
                "library": rival_title(b.ours),
                "ours": b.ours.estimate.time_s,
                "TFLOP/s": b.ours.flop_per_s,
                "theirs": b.theirs.time_s,
                "their TFLOP/s": b.theirs.flop_per_s,
                "published": b.theirs.published_flop_per_s if b.theirs.wrong_rate else None,
                "ratio": b.ratio,
                "low": low,
                "high": high,
                "notes": b.theirs.note or None,
            }
        )
    columns: dict[str, Callable[[Any], str]] = {
        **dict.fromkeys(("op", "problem", "precision", "library"), str),
        "ours": units.seconds,
        "TFLOP/s": units.flop_per_s,
        "theirs": units.seconds,
        "their TFLOP/s": units.flop_per_s,
        "published": units.flop_per_s,
        **dict.fromkeys(("ratio", "low", "high"), _ratio),
        "notes": str,
    }
    shown = {n: show for n, show in columns.items() if any(row[n] is not None for row in rows)}
    return View(shown, rows, [])


def _ratio(value: float) -> str:
    return ratio_words(value) if value < 10 else units.significant(value)


def means(found: Sequence[Match], machine: str) -> View:
    """Geometric means of the ratio, by op and precision."""
    kinds = list(dict.fromkeys((b.ours.record["op"], b.ours.record["precision"]) for b in found))
    every = published.best_matches(found)
    rows: list[dict[str, Cell]] = [
        {"op": "all", "precision": "all", "cases": len(every), "ratio": published.geometric_mean(every)}
    ]
    for op, precision in kinds:
        own = [b for b in found if (b.ours.record["op"], b.ours.record["precision"]) == (op, precision)]
        rows.append({"op": op, "precision": precision, "cases": len(own), "ratio": published.geometric_mean(own)})
    note = f"ratio: geometric mean of the time of {machine} over ours; above 1 it is slower."
    return View({"op": str, "precision": str, "cases": str, "ratio": _ratio}, rows, [note])


def among_all(summaries: Sequence[Summary]) -> View:
    """This machine among all published ones: a row a machine, the geometric mean of the ratio for each op."""
    rows: list[dict[str, Cell]] = []
    ops = list(dict.fromkeys(s.record["op"] for s in summaries))
    for machine in published.machines():
        found = published.best_matches(published.match(summaries, machine))
        if not found:
            continue
        year = max(s.year for s in published.sheets() if s.machine == machine)
        row: dict[str, Cell] = {"machine": machine, "year": year, "cases": len(found), "speed": _speed(found)}
        for op in ops:
            row[op] = _speed([b for b in found if b.theirs.op == op])
        rows.append(row)
    rows.sort(key=lambda row: float(row["speed"] or 0.0))
    shown = [op for op in ops if any(row[op] is not None for row in rows)]
    columns: dict[str, Callable[[Any], str]] = {"machine": str, "year": str, "cases": str, "speed": _ratio}
    notes = [
        "speed: how many times as fast as ours, geometric mean over the cases that both have; the slowest first. Other "
        "machines have other cases, so these columns are no ranking of them.",
        "theirs: means of calls made back to back from 2016 to 2019, unchecked, on their machines and libraries of the "
        "time; deepbench compare FILE MACHINE says what differs.",
    ]
    return View({**columns, **dict.fromkeys(shown, _ratio)}, rows, notes)


def _speed(found: Sequence[Match]) -> float | None:
    ratio = published.geometric_mean(found)
    return 1 / ratio if ratio else None


def to_json(found: Sequence[Match], machine: str) -> dict[str, Any]:
    """Everything, for programs."""
    return {
        "machine": machine,
        "differs": published.differences(found, machine),
        "means": means(found, machine).rows,
        "cases": [{**row, "case": b.ours.record["case"]} for row, b in zip(beside(found).rows, found, strict=True)],
    }
