"""Tables of models that answer queries: latency, rates and the quality of the answers; and batches against latency."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, cast

from deepbench.applications.judge.serving import (
    BOUND_FACTOR,
    CONFIDENCE,
    LEAST_BOUND_S,
    REPEATS_TOLERANCE,
    SHARES,
    Served,
    batch_rate,
    least_saturated,
)
from deepbench.applications.training.application import quality_text
from deepbench.core import units
from deepbench.reporting.table import Cell, Column, Table, number

BAR_WIDTH = 20

DEFAULT_BOUND = f"{BOUND_FACTOR:g} times the median latency of one sample, at least {units.seconds(LEAST_BOUND_S)}"

# What LoadGen calls the numbers of its summary that correspond to ours.
LOADGEN = {
    "single": "* Early stopping 90.0th percentile estimate",
    "multi": "* Early stopping 99.0th percentile estimate",
    "offline": "Samples per second",
    "server": "99.00 percentile latency (ns)",
}


def table(found: Sequence[Served]) -> Table:
    """One row per scenario of a model. Numbers of a scenario that is not `ok` are withheld."""
    columns = [
        Column("application", whole=True),
        Column("rung", narrow=4),
        Column("framework", narrow=8),
        Column("device", narrow=6),
        Column("precision", narrow=5),
        number("threads", narrow=7),
        Column("scenario", whole=True),
        number("batch", narrow=1),
        number("latency_s", units.seconds, "latency"),
        Column("samples_per_s", align="right", title="samples/s", of=_rate_text),
        Column("grade", align="right", title="quality", of=lambda row: row["grade shown"]),
        number("equal", units.percent, "equal answers", narrow=3),
        Column("status", of=lambda row: f"{row['status']}, disturbed" if row["disturbed"] else row["status"]),
    ]
    rows = [_row(served) for served in found if served.line["scenario"] != "batches" or not served.is_ok]
    return Table(
        columns,
        rows,
        notes=_notes(found),
        more_for_programs=("rate_low", "rate_high", "bound_s", "disturbed", "reason"),
    )


def _row(served: Served) -> dict[str, Cell]:
    setup, line = served.setup, served.line
    answers, search = line.get("answers"), line.get("search")
    mean = served.samples_per_second
    is_share = line["start"]["is_share"] if "start" in line else False
    grade = answers["grade"] if answers and served.is_ok else None
    return {
        **{name: cast(Any, setup)[name] for name in ("application", "rung", "framework")},
        **{name: cast(Any, line)[name] for name in ("device", "precision", "threads", "scenario")},
        "batch": line.get("batch"),
        "latency_s": served.latency_s,
        "samples_per_s": mean.value if mean else served.kept_rate,
        "rate_low": mean.low if mean else served.kept_rate,
        "rate_high": mean.high if mean else served.missed_rate,
        "grade": grade,
        "grade shown": quality_text(grade, is_share),
        "equal": answers["equal"] / answers["answers"] if answers and served.is_ok else None,
        "bound_s": search["bound_s"] if search else None,
        "disturbed": served.is_disturbed,
        "status": line["status"],
        "reason": line["reason"] or served.lacks,
    }


def _rate_text(row: Mapping[str, Cell]) -> Cell:
    rate, low, high = row["samples_per_s"], row["rate_low"], row["rate_high"]
    if not isinstance(rate, float):
        return None
    if row["scenario"] == "server":
        return (
            f"{units.short_count(rate)} to {units.short_count(high)}"
            if isinstance(high, float)
            else units.short_count(rate)
        )
    if isinstance(low, float) and isinstance(high, float):
        return f"{units.short_count(rate)} {units.plus_minus((high - low) / 2 / rate)}"
    return units.short_count(rate)


def _notes(found: Sequence[Served]) -> list[str]:
    notes = list[str]()
    for served in found:
        line = served.line
        name = f"{served.setup['application']}, {line['scenario']}"
        if not served.is_ok:
            notes.append(f"{name}: {line['status']}: {line['reason']}.")
        elif served.lacks:
            notes.append(f"{name}: no number: {served.lacks}.")
        if (search := line.get("search")) and served.is_ok:
            why = "from --latency-ms" if search["is_chosen"] else DEFAULT_BOUND
            notes.append(f"{name}: the latency bound is {units.seconds(search['bound_s'])}, {why}.")
        if served.is_ok and (ratio := served.repeats_ratio) is not None and ratio > 1 + REPEATS_TOLERANCE:
            notes.append(
                f"{name}: a repeated sample is answered in {units.percent(1 / ratio)} of the time of a new one; "
                "something caches answers or inputs."
            )
        if served.is_ok and served.is_disturbed:
            notes.append(
                f"{name}: other programs used {line['other_cpus']:.1f} of {line['cpus']} CPUs; run it again on a quiet "
                "machine."
            )
        if served.is_ok and (loadgen := line.get("loadgen")):
            notes.append(f"{name}: LoadGen says {_loadgen_text(served, loadgen)}.")
    shares = ", ".join(f"{name} {100 * SHARES[name]:.0f}th" for name in ("single", "multi", "server"))
    notes.append(
        f"Latency: an upper bound of a percentile ({shares}) with {100 * CONFIDENCE:.0f} % confidence. Rates of the "
        "server: the highest that kept the bound, to the lowest that did not."
    )
    return notes


def _loadgen_text(served: Served, summary: Mapping[str, str]) -> str:
    """Its number for the scenario, and whether the run keeps its rules, which want longer runs."""
    value, verdict = summary.get(LOADGEN[served.line["scenario"]], ""), summary.get("Result is", "nothing")
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        return f"{verdict}, without a number"
    return (
        f"{units.short_count(found) if served.line['scenario'] == 'offline' else units.seconds(found / 1e9)}, {verdict}"
    )


def batch_lines(found: Sequence[Served]) -> list[str]:
    """Batches against latency, as bars of samples per second; empty where no batches were timed."""
    lines = list[str]()
    for served in found:
        batches = served.line.get("batches")
        if not batches or not served.is_ok:
            continue
        highest = max(map(batch_rate, batches))
        lines += ["", f"{served.setup['application']}, {served.setup['rung']}"]
        lines.append(f"{'batch':>7}  {'latency':>8}  {'samples/s':>9}")
        for batch in batches:
            latency, rate = units.seconds(statistics.median(batch["latency_s"])), batch_rate(batch)
            bar = units.bar(rate / highest, BAR_WIDTH).rstrip()
            lines.append(f"{batch['batch']:>7}  {latency:>8}  {units.short_count(rate):>9}  {bar}")
        lines.append(f"Batches of {least_saturated(batches)} reach 90 % of the highest rate. Latencies are medians.")
    return lines
