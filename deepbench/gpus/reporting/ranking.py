"""GPUs ranked by a step of a model: sentences and a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deepbench.core import units
from deepbench.core.words import join
from deepbench.gpus.ranking import Candidate, ModelRanking
from deepbench.gpus.sheet import sheet
from deepbench.reporting.table import Cell, Column, Part, Strong, Table, number

SOURCE = (
    "Times are those of NVIDIA's aiconfigurator-core: unchecked, without intervals, of unknown input data. Intervals "
    "are the spread between frameworks, and the error of interpolation."
)

NOTES = (
    "GPUs: the fewest of 1, 2, 4 and 8 that hold the weights, and the keys and values of all sequences.",
    "energy: at most, at the power of the data sheet. memory: of each GPU.",
    "measured: share of the time from rows of the tables; between: between rows, or by the model within their sizes; "
    "modelled: outside of them, or in no table.",
    SOURCE,
)


def money(value: float) -> str:
    """In any currency."""
    return units.significant(value, 3)


def parts(found: ModelRanking) -> list[Part]:
    """What a person reads."""
    without = [c.machine for c in found.ranked if c.price_per_h is None]
    is_mixed = found.by == "time" and len(without) < len(found.ranked)
    unpriced = [f"By time, because there is no price of {join(without, 'or')}."] if is_mixed else []
    return [[heading(found), *verdict(found), *unpriced], table(found)]


def heading(found: ModelRanking) -> str:
    """Which step it is."""
    sizes = " ".join(f"{name}={value}" for name, value in found.parameters.items() if value != 1 or name == "batch")
    return f"{found.title}, one step of {found.phase}: {sizes}; {found.format.text}"


def verdict(found: ModelRanking) -> list[str]:
    """Which GPU is the best, and how certain that is."""
    ranked = found.ranked
    if not ranked:
        return ["No GPU has a time of this step and holds the model."]
    best = ranked[0]
    what = f"costs least per million {found.unit}s" if found.by == "cost" else "is the fastest"
    lines = [f"{best.sheet.title} ×{best.devices} {what}: {_value(best, found)}."]
    near = found.could_be_best
    if near:
        lines.append(f"Not certain: {join([c.machine for c in near], 'or')} could be better, as the intervals overlap.")
    elif len(ranked) > 1:
        lines.append("Certain within the intervals: no other interval reaches that of the first.")
    lines += beyond_a_node((c.machine, c.devices) for c in ranked)
    if found.by == "time" and len({c.devices for c in ranked}) > 1:
        lines.append("The numbers of GPUs differ: compare costs, with a price for each GPU.")
    return lines


def beyond_a_node(servers: Iterable[tuple[str, int]]) -> list[str]:
    """What to say about more GPUs than a node has, whose exchanges no table has."""
    found = {}
    for machine, devices in servers:
        most = sheet(machine).devices_per_node
        if most is not None and devices > most:
            found[machine] = most
    return [
        f"A node has {most} {machine}: exchanges between nodes are slower, and none is in the tables."
        for machine, most in found.items()
    ]


def _value(candidate: Candidate, found: ModelRanking) -> str:
    ends, value = candidate.ends(found.by), candidate.value(found.by)
    show = money if found.by == "cost" else units.seconds
    return f"{show(value)} ({show(ends[0])} to {show(ends[1])})" if value is not None and ends else "–"


def note(candidate: Candidate) -> str | None:
    """Why it has no rank."""
    return candidate.reason or (None if candidate.fits else "does not fit into the memory")


def table(found: ModelRanking) -> Table:
    """One row per GPU."""
    rows: list[dict[str, Cell]] = []
    ranked = found.ranked
    for candidate in found.candidates:
        interval = candidate.interval
        over = None
        if ranked and candidate.is_ranked and candidate is not ranked[0]:
            over = (candidate.value(found.by) or 0.0) / (ranked[0].value(found.by) or 1.0)
        name: Cell = candidate.machine
        rows.append(
            {
                "gpu": Strong(candidate.machine) if ranked and candidate is ranked[0] else name,
                "devices": candidate.devices,
                "time_s": candidate.time_s,
                "low_s": interval[0] if interval else None,
                "high_s": interval[1] if interval else None,
                "units_per_s": candidate.units_per_s,
                "cost": candidate.cost,
                "over_best": over,
                "joules": candidate.most_joules,
                "memory": candidate.weights_bytes + candidate.cache_bytes,
                "measured": candidate.share("measured"),
                "interpolated": candidate.share("interpolated"),
                "modelled": candidate.share("modelled"),
                "frameworks": ", ".join(candidate.steps),
                "note": note(candidate),
            }
        )
    shown = [
        Column("gpu", title="GPU", whole=True),
        number("devices", title="GPUs"),
        number("time_s", units.seconds, "step"),
        number("low_s", units.seconds, "from"),
        number("high_s", units.seconds, "to"),
        number("units_per_s", units.short_count, f"{found.unit}s/s"),
        number("cost", money, f"cost per M {found.unit}s"),
        number("over_best", lambda value: f"{value:.2f}×", "× best", 3),
        number("joules", lambda value: f"≤ {units.significant(value, 2)} J", "energy", 4),
        number("memory", units.data_bytes, "memory", 2),
        number("measured", units.percent, "measured", 5),
        number("interpolated", units.percent, "between", 5),
        number("modelled", units.percent, "modelled", 1),
        Column("frameworks", narrow=6),
        Column("note"),
    ]
    return Table(shown, rows, NOTES).without_empty_columns()


def values(found: ModelRanking) -> dict[str, Any]:
    """Everything, for programs."""
    return {
        "model": found.title,
        "suite": found.suite,
        "phase": found.phase,
        "unit": found.unit,
        "parameters": dict(found.parameters),
        "format": found.format.text,
        "by": found.by,
        "could_be_best": [c.machine for c in found.could_be_best],
        "gpus": [
            {
                **{name: value for name, value in row.items() if name != "gpu"},
                "gpu": str(row["gpu"]),
                "is_ranked": c.is_ranked,
                "by_framework": {name: step.total_s for name, step in c.steps.items()},
            }
            for row, c in zip(table(found).rows, found.candidates, strict=True)
        ],
    }
