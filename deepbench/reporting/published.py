"""Published results for people: the machines, and how they compare with the results of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from deepbench.core import units
from deepbench.judge.published import Match, best_matches, differences, geometric_mean, match, sheet_rate
from deepbench.reporting.cases import differing_places, place_cells, place_columns, time_cell
from deepbench.reporting.compare import ratio_cells, ratio_columns, ratio_line
from deepbench.reporting.notes import disturbed_sentences
from deepbench.reporting.table import LEAST_PROBLEM, Cell, Column, Part, Table, flop_rates, number, time_text
from deepbench.results import published
from deepbench.results.summary import Summary

PUBLISHED_OVER_OURS = "published_over_ours"
"""The name of the ratio of a published time and ours in exports."""

RATIO = ratio_columns(PUBLISHED_OVER_OURS, "vs ours")

INTERVAL = [replace(column, narrow=max(1, column.narrow)) for column in RATIO[1:]]
"""Its interval, which a narrow terminal can spare: of our times only, since published ones have none."""

# What a terminal without room for every operation shows first.
MAIN_OPS = ("gemm", "conv", "recurrent")

SHEET_RATE = "{} in the sheet"
"""The heading of the rate that a sheet states, where it does not follow from the time."""


def machines(gpus: Sequence[Mapping[str, Cell]] = (), remedy: str = "") -> Table:
    """One row per machine; `gpus` are the rows of those with tables, and the remedy says how to get them."""
    rows: list[Mapping[str, Cell]] = []
    for name in published.machines():
        books, found = published.workbooks(name), published.overviews()[name]
        rows.append(
            {
                "machine": name,
                "year": published.year_of(name),
                "suites": ", ".join(book["suite"].removeprefix("deepbench/") for book in books),
                "results": found.numbers,
                "precisions": ", ".join(found.precisions),
                "ops": ", ".join(found.ops),
                "software": "; ".join(dict.fromkeys(book["software"] for book in books)),
                "source": "Baidu's DeepBench",
            }
        )
    tables = sum(int(str(row["results"])) for row in gpus)
    notes = [
        f"{sum(int(str(row['results'])) for row in rows)} numbers from "
        f"{sum(len(published.workbooks(name)) for name in published.machines())} workbooks that Baidu's DeepBench "
        "published from 2016 to 2019.",
        f"{tables} kernel times of GPUs from NVIDIA's package aiconfigurator-core: docs/gpu-tables.md."
        if gpus
        else f"Twelve million kernel times of ten newer GPUs: {remedy}.",
        "To list one machine: deepbench published show V100. To compare a file with it: deepbench compare FILE V100.",
    ]
    columns = [
        *(Column("machine"), number("year"), Column("suites", narrow=1), number("results")),
        *(Column("precisions", narrow=2), Column("ops", title="operations", narrow=3), Column("software", narrow=5)),
        Column("source", narrow=4),
    ]
    return Table(columns, [*gpus, *rows], notes)


def matched(matches: Sequence[Match]) -> Table:
    """One row per case of the file that the machine has too."""
    differing = differing_places([m.ours for m in matches])
    rows: list[dict[str, Cell]] = []
    for m in matches:
        disturbed = m.ours.is_disturbed
        ratio, interval = (None, None) if disturbed else (m.ratio, m.interval)
        notes = [m.theirs.record["notes"].get("remark"), "no ratio: our time is disturbed" if disturbed else None]
        rows.append(
            {
                "op": m.ours.record["op"],
                "problem": m.ours.problem_title,
                "precision": ", ".join(dict.fromkeys(s.record["precision"] for s in (m.ours, m.theirs))),
                **place_cells(m.ours, differing),
                "library": m.ours.library_title,
                "ours": time_cell(m.ours),
                "flop_per_s": None if disturbed else m.ours.flop_per_s,
                "theirs": m.theirs.time_s,
                "their_flop_per_s": m.theirs.flop_per_s,
                "sheet_flop_per_s": sheet_rate(m.theirs),
                **ratio_cells(PUBLISHED_OVER_OURS, ratio, interval),
                "notes": ", ".join(filter(None, notes)) or None,
            }
        )
    unit = units.flop_unit(rate for m in matches for rate in (m.ours.flop_per_s, m.theirs.flop_per_s))
    columns = [
        *(
            Column("op", title="operation"),
            Column("problem", least=LEAST_PROBLEM),
            Column("precision", title="type"),
        ),
        *(*place_columns(differing), Column("library"), number("ours", time_text, "time")),
        *(flop_rates("flop_per_s", unit, narrow=5), number("theirs", units.seconds, "published")),
        flop_rates("their_flop_per_s", unit, "published {}", narrow=5),
        *(flop_rates("sheet_flop_per_s", unit, SHEET_RATE, narrow=6), RATIO[0], *INTERVAL, Column("notes", narrow=4)),
    ]
    return Table(columns, rows).without_empty_columns()


def means(matches: Sequence[Match]) -> Table:
    """Geometric means of the ratio, by operation and precision."""
    groups = {("all", "all"): best_matches(matches)}
    for m in matches:
        groups.setdefault((m.ours.record["op"], m.ours.record["precision"]), []).append(m)
    rows: list[dict[str, Cell]] = [
        {
            "op": op,
            "precision": precision,
            "cases": len(group),
            "disturbed": sum(m.ours.is_disturbed for m in group),
            PUBLISHED_OVER_OURS: geometric_mean(group) if _counts(group) else None,
        }
        for (op, precision), group in groups.items()
    ]
    columns = [Column("op", title="geometric mean"), Column("precision", title="type"), number("cases")]
    disturbed = [number("disturbed")] if any(row["disturbed"] for row in rows) else []
    notes = [
        "disturbed: cases whose time of ours is disturbed; they do not count, and where most are, there is no mean."
    ] * len(disturbed)
    return Table([*columns, *disturbed, RATIO[0]], rows, notes)


def _counts(group: Sequence[Match]) -> bool:
    """Whether at least half of the cases have a time that counts."""
    return 2 * sum(not m.ours.is_disturbed for m in group) >= len(group)


def headline(matches: Sequence[Match], file: str, machine: str) -> str:
    """The mean over all problems, or why there is none."""
    best = best_matches(matches)
    counted = [m for m in best if not m.ours.is_disturbed]
    ratio = geometric_mean(counted)
    if ratio is None or not _counts(best):
        return f"{len(best) - len(counted)} of {len(best)} times of {file} are disturbed; no overall ratio"
    left_out = f"; {len(best) - len(counted)} with a disturbed time left out" if len(counted) < len(best) else ""
    sentence = units.speed_sentence(machine, ratio, file)
    return f"{sentence} (geometric mean over {len(counted)} common problems{left_out})"


def among_all(summaries: Sequence[Summary]) -> Table:
    """One row per published machine: how fast it is relative to the results of a file, the slowest first."""
    rows: list[dict[str, Cell]] = []
    ops = list(dict.fromkeys(s.record["op"] for s in summaries))
    for machine in published.machines():
        matches = best_matches(match(summaries, machine))
        if not matches:
            continue
        counted = [m for m in matches if not m.ours.is_disturbed]
        row: dict[str, Cell] = {"machine": machine, "year": published.year_of(machine), "cases": len(counted)}
        row[PUBLISHED_OVER_OURS] = geometric_mean(counted)
        for op in ops:
            row[f"{op}_{PUBLISHED_OVER_OURS}"] = geometric_mean([m for m in counted if m.theirs.record["op"] == op])
        rows.append(row)
    rows.sort(key=lambda row: -float(row[PUBLISHED_OVER_OURS] or 0.0))
    words = units.faster_or_slower
    columns = [Column("machine"), number("year"), number("cases"), number(PUBLISHED_OVER_OURS, words, "all cases")]
    # Text, so that the words wrap where the terminal is narrow.
    ops.sort(key=lambda op: MAIN_OPS.index(op) if op in MAIN_OPS else len(MAIN_OPS))
    columns += [Column(f"{op}_{PUBLISHED_OVER_OURS}", words, title=op, narrow=i) for i, op in enumerate(ops, 1)]
    notes = [
        "faster, slower: the published machine compared with this file, geometric mean over the cases that both have. "
        "Machines published different cases, so do not rank them by this table.",
        *disturbed_sentences(summaries),
        *["Cases whose time is disturbed do not count here."] * any(s.is_ranked and s.is_disturbed for s in summaries),
        "Published times are unchecked means of back-to-back calls from 2016 to 2019; deepbench compare FILE MACHINE "
        "lists what else differs.",
    ]
    return Table(columns, rows, notes).without_empty_columns()


def parts(matches: Sequence[Match], machine: str, file: str) -> list[Part]:
    """The results of a file and of a published machine, for people: what differs, means, cases."""
    differing = [f"differs: {text}" for text in differences(matches, machine)]
    return [
        [headline(matches, file, machine), ratio_line(file, machine), *differing],
        means(matches),
        matched(matches),
    ]


def to_json(matches: Sequence[Match], machine: str) -> dict[str, Any]:
    """Everything, for programs."""
    rows = matched(matches).rows
    return {
        "machine": machine,
        "differs": differences(matches, machine),
        "means": means(matches).rows,
        "cases": [{**row, "case": m.ours.record["case"]} for row, m in zip(rows, matches, strict=True)],
    }
