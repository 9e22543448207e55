"""A page about trained applications: curves with their targets, time to target with its parts, and tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from deepbench.applications.judge.serving import batch_rate, served
from deepbench.applications.judge.trained import Trained, runs_of, trained
from deepbench.applications.judge.training_pairs import differences, pairs
from deepbench.applications.reporting import curves, serving, training
from deepbench.applications.training.application import quality_text
from deepbench.core import units
from deepbench.core.files import replacing
from deepbench.core.json_lines import printable
from deepbench.core.kinds import TRAINING, kind_of_header
from deepbench.judge import selftest
from deepbench.reporting.page import render
from deepbench.results.file import ResultFile

# Parts of the time to the target, with their colours.
PARTS = {
    "load": "#56B4E9",
    "initialise": "#999999",
    "compile": "#E69F00",
    "train to target": "#0072B2",
    "evaluate": "#CC79A7",
    "checkpoint": "#009E73",
}


@dataclass(frozen=True)
class DrawnSide:
    """All seeds of a setup in one of the files."""

    label: str
    trained: Trained
    color: int
    where: str
    """The label without the batch."""


def write_page(files: Sequence[ResultFile], path: Path, title: str | None) -> None:
    """Write a page about files with trained applications; the first is compared with each of the others."""
    names = [printable(file.path.name) for file in files]
    labels = names if len(set(names)) == len(names) else [printable(str(file.path)) for file in files]
    page = render.filled(
        "training.html",
        **content(list(zip(files, labels, strict=True))),
        title=printable(title or f"DeepBench: {', '.join(labels)}"),
        style=render.asset("page.css"),
        policy=render.policy([]),
        shared=None,
        download=None,
    )
    with replacing(path) as draft:
        draft.write_bytes(page)


def content(files: Sequence[tuple[ResultFile, str]]) -> dict[str, Any]:
    """What the template shows of files with their labels."""
    of_file = [(label, trained(runs_of(file)) if _is_trained(file) else []) for file, label in files]
    every = [one for _, found in of_file for one in found]
    sides = list(_sides(of_file))
    applications = list(dict.fromkeys((s.trained.setup["application"], s.trained.setup["rung"]) for s in sides))
    grouped = [[s for s in sides if _key(s.trained) == key] for key in applications]
    compared = []
    for (label, found), (file, _) in zip(of_file[1:], files[1:], strict=True):
        both, left = pairs(of_file[0][1], found, drift=selftest.between_files(files[0][0], file))
        left += differences(files[0][0], file)
        table = training.pairs_table(both)
        compared.append({"first": of_file[0][0], "second": label, "table": table._repr_html_(), "left": left})
    rows = [training.table(found) for _, found in of_file]
    return {
        "machines": [
            {
                "label": label,
                "about": printable(training.common(found)),
                "cpu": printable(str(file.header["machine"].get("cpu") or "unknown processor")),
                "system": printable(str(file.header["machine"].get("system") or "")),
                "date": file.header["started"][:10],
                "variables": [f"{name}={value}" for name, value in file.chosen_variables.items()],
                "table": table._repr_html_(),
                "parts": training.parts_table(found)._repr_html_(),
                "trained": _is_trained(file),
                "served": serving.table(answers)._repr_html_() if (answers := served(file)) else None,
            }
            for (file, label), (_, found), table in zip(files, of_file, rows, strict=True)
        ],
        "pictures": [_picture(group) for group in grouped],
        "batches": [drawn for file, label in files for drawn in _batches(file, label if len(files) > 1 else "")],
        "sweeps": [drawn for group in grouped for drawn in _sweeps(group)],
        "legend": [
            {"label": label, "color": curves.COLORS[color % len(curves.COLORS)]}
            for label, color in dict.fromkeys((s.label, s.color) for s in sides)
        ],
        "bars": _bars([side for group in grouped for side in group]),
        "parts": PARTS,
        "pairs": compared,
        "embed": {"rows": [row for table in rows for row in table.rows]},
        "runs": sum(len(one.runs) for one in every),
    }


def _is_trained(file: ResultFile) -> bool:
    return kind_of_header(file.header).name == TRAINING.name


def _key(one: Trained) -> tuple[str, str]:
    return one.setup["application"], one.setup["rung"]


def _sides(of_file: Sequence[tuple[str, Sequence[Trained]]]) -> Iterable[DrawnSide]:
    """Each setup with a label that tells it apart, and a colour for each label."""
    colors: dict[str, int] = {}
    for label, found in of_file:
        shown = [name for name in training.differing(found) if name != "rung"]
        for one in found:
            words = [label] if len(of_file) > 1 else []
            words += [f"{name} {one.setting(name)}" for name in shown]
            text = ", ".join(words) or "mean of the seeds"
            where = ", ".join(word for word in words if not word.startswith("batch "))
            yield DrawnSide(text, one, colors.setdefault(text, len(colors)), where)


def _picture(group: Sequence[DrawnSide]) -> str:
    """The curves of one application: the mean over the seeds, and the range of the seeds as a band."""
    setup = group[0].trained.setup
    drawn = []
    for side in group:
        runs = [run.points for run in side.trained.whole]
        mean = [(float(point.samples), point.mean) for point in side.trained.curve]
        at_each = ([p.quality for p in at if p.quality is not None] for at in zip(*runs, strict=False))
        band = [(min(values), max(values)) for values in islice(at_each, len(mean))]
        drawn.append(curves.Curve(side.label, mean, band if len(runs) > 1 else (), side.color))
    show: Callable[[float], str] = units.significant
    if setup["is_share"]:
        show = lambda value: f"{100 * value:.3g} %"  # noqa: E731
    target = quality_text(setup["target"], setup["is_share"])
    rules = [curves.Rule(f"target {target}", setup["target"], setup["higher_is_better"])]
    title = f"{setup['application']}, {setup['rung']}"
    return (
        curves.svg(title, curves.Axis("samples", _count), curves.Axis(setup["metric"], show), drawn, rules)
        or f"<p>{title}: no run trained to its end.</p>"
    )


def _sweeps(group: Sequence[DrawnSide]) -> Iterable[str]:
    """Samples to the target over the batch, where several batches were trained: the limit of large batches.

    One pair of pictures for each file and each setup that differs in the batch alone.
    """
    alike: dict[str, list[Trained]] = {}
    for side in group:
        alike.setdefault(side.where, []).append(side.trained)
    several = {where: found for where, found in alike.items() if len(found) > 1}
    for where, unordered in several.items():
        found = sorted(unordered, key=lambda one: one.setup["batch"])
        name, batches = found[0].setup["application"], curves.Axis("batch", _count, is_log=True)
        for title in ("samples to target", "samples/s"):
            means = [
                (float(one.setup["batch"]), mean)
                for one in found
                if (mean := one.samples_to_target if title == "samples to target" else one.samples_per_second)
            ]
            band = [(mean.low or mean.value, mean.high or mean.value) for _, mean in means]
            curve = [(batch, mean.value) for batch, mean in means]
            drawn = [curves.Curve(title, curve, band if len(band) > 1 else (), dots=True)]
            words = ", ".join(filter(None, [name, where if len(several) > 1 else ""]))
            yield curves.svg(f"{words}: {title}", batches, curves.Axis("", _count, is_log=True), drawn)


def _batches(file: ResultFile, label: str) -> Iterable[str]:
    """How long an answer takes and how many there are per second, over the batch."""
    for one in served(file):
        batches = one.line.get("batches") or []
        if not one.is_ok or len(batches) < 2:
            continue
        name = ", ".join(filter(None, [one.setup["application"], label, "disturbed" if one.is_disturbed else ""]))
        values = {
            "latency": (units.seconds, [statistics.median(b["latency_s"]) for b in batches]),
            "samples/s": (_count, [batch_rate(b) for b in batches]),
        }
        for title, (show, found) in values.items():
            points = [(float(b["batch"]), value) for b, value in zip(batches, found, strict=True)]
            axes = curves.Axis("batch", _count, is_log=True), curves.Axis("", show, is_log=True)
            yield curves.svg(f"{name}: {title}", *axes, [curves.Curve(title, points, dots=True)])


def _bars(sides: Sequence[DrawnSide]) -> list[dict[str, Any]]:
    """The time to the target with its parts; without a bar where not every seed reached the target."""
    found: list[dict[str, Any]] = []
    for side in sides:
        one, parts = side.trained, side.trained.parts_s
        time, samples = one.train_s, one.samples_to_target
        name = f"{one.setup['application']}, {one.setup['rung']}"
        if time is None or samples is None:
            text = f"withheld: {training.withheld(one)}"
            found.append({"name": name, "label": side.label, "parts": None, "text": text})
            continue
        share = min(1.0, samples.value / one.setup["samples"])
        seconds = {**{n: parts[n] for n in ("load", "initialise", "compile")}, "train to target": time.value}
        seconds["evaluate"] = statistics.fmean(run.evaluate_s_to_target for run in one.whole)
        seconds["checkpoint"] = share * parts.get("checkpoint", 0.0)
        text = units.seconds(sum(seconds.values())) + (", disturbed" if one.is_disturbed else "")
        found.append({"name": name, "label": side.label, "parts": seconds, "text": text})
    longest = max((sum(bar["parts"].values()) for bar in found if bar["parts"]), default=1.0)
    return [{**bar, "longest": longest} for bar in found]


def _count(value: float) -> str:
    size, unit = next(((s, u) for s, u in ((1e6, " M"), (1e3, " k")) if value >= s), (1.0, ""))
    return f"{value / size:.3g}{unit}"
