"""Tables of applications that were trained: quality, samples to the target, samples per second, and their product."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from deepbench.core import units
from deepbench.judge.convergence import Spread
from deepbench.judge.trained import Trained
from deepbench.report.table import Cell, Column, Table, number
from deepbench.results.record import TrainingSetup


def quality_text(setup: TrainingSetup, value: float | None) -> str:
    """A value of the metric for people: `89.1 %`, or `58.2`."""
    if value is None:
        return "–"
    return f"{100 * value:.1f} %" if setup["is_share"] else units.significant(value)


def table(found: Sequence[Trained]) -> Table:
    """One row per setup. Values of `samples to target`, `samples/s` and `time to target` are means over the seeds."""
    columns = [
        Column("application", whole=True),
        Column("rung", narrow=4),
        Column("framework", narrow=3),
        Column("device", narrow=6),
        Column("precision", narrow=5),
        number("threads", narrow=7),
        number("batch", narrow=8),
        Column("quality", align="right", of=lambda row: row["quality shown"]),
        Column("target", align="right", narrow=2, of=lambda row: row["target shown"]),
        Column("reached", align="right", of=lambda row: f"{row['reached']} of {row['runs']}"),
        _mean("samples to target", _count),
        _mean("samples/s", _count),
        _mean("time to target", units.seconds),
    ]
    return Table(columns, [_row(trained) for trained in found], notes=_notes(found))


def _mean(name: str, show: Callable[[float], str]) -> Column:
    """A mean over the seeds with half its interval."""

    def text(row: Mapping[str, Cell]) -> Cell:
        value, half = row[name], row[f"{name} ±"]
        if not isinstance(value, float):
            return None
        return show(value) + (f" {units.plus_minus(half)}" if isinstance(half, float) else "")

    return Column(name, align="right", of=text)


def _row(trained: Trained) -> dict[str, Cell]:
    setup = trained.setup
    last = trained.curve[-1].mean if trained.curve else None
    row: dict[str, Cell] = {
        "application": setup["application"],
        "rung": setup["rung"],
        "framework": setup["framework"],
        "device": setup["device"],
        "precision": setup["precision"],
        "threads": setup["threads"],
        "batch": setup["batch"],
        "metric": setup["metric"],
        "quality": last,
        "quality shown": quality_text(setup, last),
        "target": setup["target"],
        "target shown": quality_text(setup, setup["target"]),
        "reached": trained.reached,
        "runs": len(trained.runs),
    }
    means: dict[str, Spread | None] = {
        "samples to target": trained.samples_to_target,
        "samples/s": trained.samples_per_second,
        "time to target": trained.train_s,
    }
    for name, mean in means.items():
        row |= {name: None, f"{name} ±": None} if mean is None else {name: mean.value, f"{name} ±": mean.half_width}
    return row


def _count(value: float) -> str:
    return units.scaled(value, ((1e6, "M"), (1e3, "k"), (1.0, ""))).strip()


def _notes(found: Sequence[Trained]) -> list[str]:
    notes = []
    for trained in found:
        name = f"{trained.setup['application']}, {trained.setup['rung']}"
        for run in trained.runs:
            if run.status != "ok":
                reason = f": {run.end['reason']}" if run.end and run.end["reason"] else ""
                notes.append(f"{name}, seed {run.setup['seed']}: {run.status}{reason}.")
        if trained.whole and trained.reached < len(trained.runs):
            notes.append(f"{name}: the time is withheld, because not every seed reached the target.")
        parts = trained.parts_s
        if parts:
            shown = ", ".join(f"{part} {units.seconds(s)}" for part, s in parts.items() if s >= 0.0005)
            notes.append(f"{name}: a whole run takes {units.seconds(sum(parts.values()))}: {shown}.")
        if (score := trained.olympic_s) is not None:
            text = f"{units.seconds(score)} without the fastest and the slowest seed, as scored in 2018"
            notes.append(f"{name}: the mean to the target is {text}.")
    notes.append(
        "Quality: the mean over the seeds at the end. Time to target: samples to target over samples per second, "
        "without loading, compiling and evaluating."
    )
    return notes
