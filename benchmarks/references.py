"""Write the reference curves of applications from result files: of ten seeds or more, of larger rungs of any number.

    deepbench train all --seeds 10 -o seeds.jsonl
    python benchmarks/references.py seeds.jsonl

It replaces the references of the same rungs and batches in deepbench/applications/tasks/references.json.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

from deepbench.applications.judge.trained import Run, runs_of, trained
from deepbench.applications.training.application import applications
from deepbench.core import units
from deepbench.results.file import read_results

PATH = Path(__file__).parents[1] / "deepbench" / "applications" / "tasks" / "references.json"

PAGE = Path(__file__).parents[1] / "docs" / "applications.md"

# What is between these marks is written here.
BEGIN, END = "<!-- references -->", "<!-- end of references -->"

# What the trivial models of `trivial_models.py` reach, by rung.
TRIVIAL = {
    "detection": {"mini": 0.09, "small": 0.09, "full": 0.09},
    "go": {"mini": 0.054, "small": 0.020, "full": 0.0},
    "image": {"mini": 0.850, "small": 0.850, "full": 0.850},
    "recommendation": {"mini": 0.306, "small": 0.306, "full": 0.306},
    "sentiment": {"mini": 0.442, "small": 0.442, "full": 0.442, "full-lstm": 0.442, "full-imdb": 0.5},
    "speech": {"mini": 0.907, "small": 0.912, "full": 0.912},
    "translation": {"mini": 244.8, "small": 281.3, "full": 310.2, "full-transformer": 311.3},
}

SEEDS = 10

# Other rungs take so long that one seed is all there may be. It ships as a curve, and judges nothing.
LEAST_SEEDS = {"mini": SEEDS}


def main(files: list[str]) -> None:
    known = {_key(r): r for r in json.loads(PATH.read_text())} if PATH.exists() else {}
    for file in files:
        for one in trained(runs_of(read_results(Path(file)))):
            name = f"{one.setup['application']}, {one.setup['rung']}"
            if (one.setup["framework"], one.setup["precision"], one.setup["ranks"]) != ("torch", "f32", 1):
                print(f"{name}: only one rank of PyTorch in f32 is a reference; left out")
                continue
            if len(one.whole) < (least := LEAST_SEEDS.get(one.setup["rung"], 1)):
                print(f"{name}: {len(one.whole)} seeds, wanted {least}; left out")
                continue
            every = {run.setup["seed"]: run.samples_to_target for run in one.whole}
            reached = {str(seed): round(samples) for seed, samples in sorted(every.items()) if samples is not None}
            curve = []
            for at in zip(*(run.points for run in one.whole), strict=True):
                values = [point.quality for point in at]
                deviation = float(f"{statistics.stdev(values):.5g}") if len(values) > 1 else None
                curve.append([at[0].samples, float(f"{statistics.fmean(values):.5g}"), deviation])
            found = {
                "application": one.setup["application"],
                "rung": one.setup["rung"],
                "batch": one.setup["batch"],
                "target": one.setup["target"],
                "settings": one.setup["settings"],
                "runs": len(one.whole),
                "samples_to_target": reached,
                "run_s": round(statistics.fmean(map(undisturbed_s, one.whole)), 1),
                "curve": curve,
            }
            if (before := known.get(_key(found))) is not None and before["settings"] == found["settings"]:
                found["run_s"] = min(before["run_s"], found["run_s"])  # other programs only make a run longer
            known[_key(found)] = found
            print(f"{name}: {len(reached)} of {len(one.whole)} seeds reached {one.setup['target']}")
    lines = ",\n".join(json.dumps(known[key]) for key in sorted(known))
    PATH.write_text(f"[\n{lines}\n]\n")
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables(known.values())}\n\n{END}{rest.split(END)[1]}")


def undisturbed_s(run: Run) -> float:
    """Seconds of a whole run, if all of it were as fast as the faster half of its parts between evaluations."""
    train = sorted(point.train_s / point.trained for point in run.points)
    evaluate = sorted(point.evaluate_s for point in run.points)
    half = (len(run.points) + 1) // 2
    start = run.starts[-1]
    seconds = start["load_s"] + start["initialise_s"] + run.setup["samples"] * statistics.fmean(train[:half])
    return seconds + len(run.points) * statistics.fmean(evaluate[:half])


def tables(found: Iterable[dict]) -> str:
    """What the documentation says about the references, as Markdown: their targets, and every seed."""
    ordered = sorted(found, key=_key)
    return f"{_targets(ordered)}\n\nSamples to the target of each seed, in thousands:\n\n{_seeds(ordered)}"


def _seeds(found: Iterable[dict]) -> str:
    seeds = list(map(str, range(SEEDS)))
    lines = [f"| seed | {' | '.join(seeds)} |", f"|---|{'---:|' * len(seeds)}"]
    for r in (r for r in found if r["runs"] >= SEEDS):
        values = (r["samples_to_target"].get(seed) for seed in seeds)
        cells = ("–" if value is None else units.significant(value / 1000) for value in values)
        lines.append(f"| `{r['application']}`, {r['rung']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _targets(found: Iterable[dict]) -> str:
    lines = [
        "| application | trivial model | target | better by | reached by | samples to target | at the end |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for r in found:
        application = applications()[r["application"]]
        rung, is_share = application.rungs[r["rung"]], application.metric.is_share

        def show(value: float, is_share: bool = is_share) -> str:
            return f"{100 * value:.1f} %" if is_share else f"{value:.1f}"

        _, mean, deviation = r["curve"][-1]
        samples = sorted(r["samples_to_target"].values())
        between = f"{statistics.median(samples):,.0f}" if samples else "–"
        if len(samples) > 1:
            between += f" ({samples[0]:,.0f}–{samples[-1]:,.0f})"
        spread = "" if deviation is None else f", sd {100 * deviation if is_share else deviation:.1f}"
        end = f"{show(mean)}{spread}"
        name, reached = f"`{r['application']}`, {r['rung']}", f"{len(samples)} of {r['runs']}"
        trivial = TRIVIAL[r["application"]][r["rung"]]
        gain = f"{100 * abs(rung.target - trivial):.1f} points" if is_share else f"÷ {trivial / rung.target:.1f}"
        cells = [name, show(trivial), show(rung.target), gain, reached, between, end]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _key(reference: dict) -> tuple:
    return reference["application"], reference["rung"], reference["batch"]


if __name__ == "__main__":
    main(sys.argv[1:])
