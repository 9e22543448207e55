"""Tables of published kernels, and of our results next to them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from deepbench.core import units
from deepbench.core.words import count
from deepbench.gpus.families.family import PRECISIONS
from deepbench.gpus.index import Contents
from deepbench.gpus.published import Chosen, Near, unusual
from deepbench.gpus.sheet import sheet
from deepbench.gpus.table import MARKS
from deepbench.gpus.times import HOW
from deepbench.reporting.cases import time_cell
from deepbench.reporting.table import Cell, Column, Part, Table, number, time_text

UNCHECKED = (
    "Published times are unchecked, have no interval, and are of unknown input data and clocks (docs/gpu-tables.md)."
)
MOST_SHOWN = 40

RATES = ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"))
BANDWIDTHS = ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"))


def rows(chosen: Chosen, most: int) -> Table:
    """One row per kernel and framework."""
    import numpy as np

    own = chosen.rows.only(np.array(chosen.order[:most]))
    family, page = own.family, own.sheet
    all_marks = chosen.rows.marks
    work = family.work(own.kernels)
    peaks = [page.peak_of(PRECISIONS[int(code)]) for code in work.precision]
    names = [name for name in family.keys if name not in family.categories]
    shown: list[dict[str, Cell]] = []
    for i in range(len(own)):
        kernel = {name: int(values[i]) for name, values in own.kernels.items()}
        seconds = float(own.seconds[i])
        rate = float(work.flop[i]) / seconds
        mark = int(all_marks[chosen.order[i]])
        shown.append(
            {
                **{name: kernel[name] for name in names},
                "type": family.precision_name(kernel) or _category(kernel),
                "source": own.sources[int(own.source[i])].text,
                "time_s": seconds,
                "flop_per_s": rate or None,
                "bytes_per_s": float(work.bytes[i]) / seconds,
                "of_peak": rate / peaks[i] if rate else None,
                "case": family.case(kernel),
                "mark": MARKS.get(mark),
            }
        )
    columns = [
        *(number(name, title=name.replace("_", " "), narrow=2 if name == "window" else 0) for name in names),
        Column("type"),
        Column("source", narrow=1),
        number("time_s", units.seconds, "time"),
        number("flop_per_s", lambda rate: units.scaled(rate, RATES), "rate", 3),
        number("of_peak", units.percent, "of peak", 4),
        number("bytes_per_s", lambda rate: units.scaled(rate, BANDWIDTHS), "bytes", 5),
        Column("mark", title="not trusted"),
    ]
    total = len(chosen.order)
    marked = int((all_marks[np.array(chosen.order)] > 0).sum())
    notes = [
        f"{total} of {chosen.total} rows of {family.title} ({family.name})"
        + (f"; the first {most} are shown: add --where, --framework or --rows." if total > most else "."),
        f"{count(marked, 'row')} of them not trusted." if marked else "",
        UNCHECKED,
    ]
    return Table(columns, shown, [n for n in notes if n], ("case",)).without_empty_columns()


def _category(kernel: dict[str, int]) -> str | None:
    from deepbench.gpus.families.collectives import OPS

    return OPS[kernel["op"]] if "op" in kernel else None


def overview(machine: str, found: Contents) -> list[Part]:
    """What a GPU has, where no operation is named."""
    import numpy as np

    from deepbench.gpus.families import families
    from deepbench.gpus.table import table

    shown: list[dict[str, Cell]] = []
    for name, total in found.families.items():
        own = table(machine, name)
        marks = np.bincount(own.marks, minlength=len(MARKS) + 1)
        shown.append(
            {
                "op": name,
                "title": families()[name].title,
                "results": total,
                "used": len(own),
                "sources": ", ".join(source.text for source in own.sources),
                "marked": int(marks[1:].sum()),
            }
        )
    columns = [
        Column("op", title="operation", whole=True),
        Column("title", title="what", narrow=1),
        number("results", title="rows"),
        number("used"),
        number("marked", title="not trusted"),
        Column("sources", title="frameworks used", narrow=2),
    ]
    page = sheet(machine)
    peak = ", ".join(f"{name} {units.scaled(rate, RATES)}" for name, rate in page.peak.items())
    head = [
        f"{page.title}: {peak}; memory {units.data_bytes(page.memory_bytes)} at "
        f"{units.scaled(page.bytes_per_s, BANDWIDTHS)}" + (f"; {page.power_w:.0f} W" if page.power_w else ""),
    ]
    other = ", ".join(f"{name} ({rows})" for name, rows in found.other.items())
    notes = [
        "used: of the version of each framework with the most rows.",
        "not trusted: above the peak, faster than the memory, alone among their neighbours, or times of the host; add "
        "--op to see them.",
        *([f"Tables that are like no operation of ours: {other}."] if other else []),
        UNCHECKED,
    ]
    return [head, Table(columns, shown, notes)]


def near_parts(found: Sequence[Near], machine: str, file: str, own: str) -> list[Part]:
    """Our results next to published ones: a sentence per operation, and a row per case; `own` is our machine."""
    flags = unusual(found)
    lines = [
        f"{file} ({own}) and {sheet(machine).title}: {count(len(found), 'kernel')} in common, {sum(flags)} unusual, "
        f"{sum(n.is_within for n in found)} within the range of the frameworks"
    ]
    for kind in dict.fromkeys((n.family, str(n.ours.record["precision"])) for n in found):
        ratios = [n.ratio for n in found if (n.family, n.ours.record["precision"]) == kind and not n.ours.is_disturbed]
        if ratios:
            lines.append(
                f"{kind[0]} {kind[1]}: {median(ratios):.2f} times the published time (median of {len(ratios)})"
            )
    shown: list[dict[str, Cell]] = []
    for n, flag in zip(found, flags, strict=True):
        disturbed = n.ours.is_disturbed
        low, high = n.interval
        shown.append(
            {
                "op": n.ours.record["op"],
                "problem": n.ours.problem_title,
                "precision": n.ours.record["precision"],
                "library": n.ours.library_title,
                "ours": time_cell(n.ours),
                "theirs_s": n.theirs_s,
                "theirs_low_s": low,
                "theirs_high_s": high,
                "ours_over_published": None if disturbed else n.ratio,
                "frameworks": len(n.by_framework),
                "how": n.how,
                "notes": ", ".join(filter(None, ["unusual" if flag and not disturbed else None, n.remark])) or None,
                "case": n.ours.record["case"],
            }
        )
    columns = [
        Column("op", title="operation"),
        Column("problem", least=20),
        Column("precision", title="type"),
        Column("library", narrow=3),
        number("ours", time_text, "time"),
        number("theirs_s", units.seconds, "published"),
        number("theirs_low_s", units.seconds, "from", 2),
        number("theirs_high_s", units.seconds, "to", 2),
        number("ours_over_published", lambda r: f"{r:.3g}×", "time over published"),
        Column("how", narrow=1),
        Column("notes"),
    ]
    notes = [
        "published: the median of the frameworks; from, to: the fastest and the slowest of them, with the error of the "
        "model where no row has the kernel.",
        "unusual: outside of this range, and more than 1.5 times faster or slower than the median ratio of its "
        "operation and type.",
        f"how: {HOW[0]} by a row; {HOW[1]} between rows, or by the model within the sizes of the table.",
        UNCHECKED,
    ]
    return [lines, Table(columns, shown, notes, ("case", "frameworks")).without_empty_columns()]


def near_values(found: Sequence[Near], machine: str) -> dict[str, Any]:
    """Everything, for programs."""
    flags = unusual(found)
    return {
        "machine": machine,
        "cases": [
            {
                "case": n.ours.record["case"],
                "time_s": None if n.ours.is_disturbed else n.ours.time_s,
                "published_s": n.theirs_s,
                "by_framework": dict(n.by_framework),
                "published_low_s": n.interval[0],
                "published_high_s": n.interval[1],
                "how": n.how,
                "ours_over_published": None if n.ours.is_disturbed else n.ratio,
                "unusual": flag and not n.ours.is_disturbed,
                "remark": n.remark,
            }
            for n, flag in zip(found, flags, strict=True)
        ],
    }
