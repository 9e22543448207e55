"""Published results for people: which machines there are, what each did, and ours beside theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepbench.core import units
from deepbench.core.op import find_op
from deepbench.report.compare import RATIO, show_ratio
from deepbench.report.table import Cell, Column, Table, number
from deepbench.results import published
from deepbench.results.published import Match
from deepbench.results.summary import Summary


def machines() -> Table:
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
    columns = [Column("machine"), number("year"), Column("suites"), number("results")]
    return Table([*columns, Column("precisions"), Column("ops"), Column("software")], rows, notes)


def of_machine(machine: str, op: str | None = None, precision: str | None = None) -> Table:
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
    columns = [
        *map(Column, ("suite", "op", "problem", "direction", "precision")),
        *(number("time", units.seconds), number("TFLOP/s", units.flop_per_s), number("published", units.flop_per_s)),
        *(number("GB/s published", units.bytes_per_s), Column("how"), Column("notes")),
    ]
    lines = [
        f"{s.suite}: {s.software}, {s.year}, {s.facts['source_file']}"
        for s in published.sheets()
        if s.machine == machine
    ]
    wrong = sum(r.wrong_rate for r in found)
    if wrong:
        lines.append(f"published: the sheet's own TFLOP/s where it is not that of its time ({wrong} rows).")
    lines.append("Means of calls made back to back; no answer was checked.")
    return Table(columns, rows, lines).without_empty_columns()


def beside(found: Sequence[Match]) -> Table:
    """A row a case of ours that the machine has too."""
    rows: list[dict[str, Cell]] = []
    for b in found:
        low, high = b.interval or (None, None)
        assert b.ours.estimate is not None, "only measured cases are matched"
        rows.append(
            {
                "op": b.ours.record["op"],
                "problem": b.ours.problem_title,
                "precision": f"{b.ours.record['precision']}, {b.theirs.precision}",
                "library": b.ours.library_title,
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
    columns = [
        *map(Column, ("op", "problem", "precision", "library")),
        *(number("ours", units.seconds), number("TFLOP/s", units.flop_per_s)),
        *(number("theirs", units.seconds), number("their TFLOP/s", units.flop_per_s)),
        *(number("published", units.flop_per_s), *RATIO, Column("notes")),
    ]
    return Table(columns, rows).without_empty_columns()


def means(found: Sequence[Match], machine: str) -> Table:
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
    return Table([Column("op"), Column("precision"), number("cases"), RATIO[0]], rows, [note])


def among_all(summaries: Sequence[Summary]) -> Table:
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
    columns = [Column("machine"), *(number(n) for n in ("year", "cases"))]
    columns += [number(n, show_ratio) for n in ("speed", *ops)]
    notes = [
        "speed: how many times as fast as ours, geometric mean over the cases that both have; the slowest first. Other "
        "machines have other cases, so these columns are no ranking of them.",
        "theirs: means of calls made back to back from 2016 to 2019, unchecked, on their machines and libraries of the "
        "time; deepbench compare FILE MACHINE says what differs.",
    ]
    return Table(columns, rows, notes).without_empty_columns()


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
