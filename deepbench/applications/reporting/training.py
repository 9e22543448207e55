"""Tables of applications that were trained: quality, samples to the target, samples per second, and their product."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from deepbench.applications.judge.convergence import Spread
from deepbench.applications.judge.references import reference_of
from deepbench.applications.judge.trained import CHOSEN, SETTINGS, Trained
from deepbench.applications.judge.training_pairs import TrainingPair
from deepbench.applications.training.application import quality_text
from deepbench.core import units
from deepbench.reporting.table import Cell, Column, Table, number

# What tells setups of one application apart.
SHOWN = ("rung", *SETTINGS)

# Means over the seeds, which have intervals.
MEANS = ("time to target", "samples to target", "samples/s")

PARTS = ("load", "initialise", "compile", "train", "evaluate", "checkpoint")

ABOUT = (
    "Quality: the mean over the seeds at the end. Time to target: samples to target divided by samples/s; excludes "
    "loading, initialisation, compilation and evaluation. ±: half-width of the 95 % confidence interval over the seeds."
)


def differing(found: Sequence[Trained]) -> list[str]:
    """The settings in which setups of the same application differ."""
    first = {trained.setup["application"]: trained for trained in reversed(found)}
    return [
        name
        for name in SHOWN
        if any(trained.setting(name) != first[trained.setup["application"]].setting(name) for trained in found)
    ]


def common(found: Sequence[Trained]) -> str:
    """What all setups share: `rung mini, torch on cpu, f32, 1 rank of 2 threads`."""
    if not found:
        return "no runs"
    one = _settings(found[0])
    same = [name for name in SHOWN if all(t.setting(name) == one[name] for t in found) and name != "batch"]
    words = {"rung": "rung {}", "ranks": "ranks {}", "threads": "threads {}"}
    texts = [words.get(name, "{}").format(one[name]) for name in same if (name, one[name]) != ("ranks", 1)]
    starts = (start for trained in found for run in trained.runs for start in run.starts)
    return ", ".join([*texts, *dict.fromkeys(device for start in starts if (device := start.get("device")))])


def table(found: Sequence[Trained]) -> Table:
    """One row per setup. Values of `samples to target`, `samples/s` and `time to target` are means over the seeds."""
    shown = differing(found)
    columns = [
        Column("application", whole=True),
        *(Column(name, align="right" if name in ("ranks", "threads", "batch") else "left") for name in shown),
        Column("quality", align="right", of=lambda row: row["quality shown"]),
        Column("target", align="right", narrow=1, of=lambda row: row["target shown"]),
        Column("reached", align="right", narrow=2, of=lambda row: f"{row['reached']} of {row['runs']}"),
        _mean("time to target", units.seconds, is_rate=True),
        _mean("samples to target", units.short_count, narrow=3),
        _mean("samples/s", units.short_count, is_rate=True),
    ]
    notes = [*_notes(found), *_efficiency(found), ABOUT]
    more = ["runs", "disturbed", *(f"{name} ±" for name in MEANS)]
    return Table(columns, [_row(trained) for trained in found], notes=notes, more_for_programs=more)


def parts_table(found: Sequence[Trained]) -> Table:
    """Where the time of a whole run goes, as a mean over the seeds; without the processes that ended early."""
    shown = differing(found)
    rows: list[dict[str, Cell]] = []
    for trained in found:
        if trained.whole:
            row: dict[str, Cell] = {"application": trained.setup["application"], **_settings(trained)}
            score = trained.olympic_s
            parts = trained.parts_s
            # Nothing is known of compiling where the first step also does what others do not, such as playing games.
            row |= {name: parts.get(name) or None for name in PARTS}
            row |= {"whole run": sum(parts.values()), "2018": score}
            rows.append(row)
    columns = [
        Column("application", whole=True),
        *(Column(name, narrow=3) for name in shown),
        *(number(name, units.seconds, narrow={"checkpoint": 3, "compile": 2}.get(name, 0)) for name in PARTS),
        number("whole run", units.seconds),
        number("2018", units.seconds, "score of 2018", narrow=1),
    ]
    notes = [
        "Score of 2018: the mean time to the evaluation that reached the target, without the fastest and the slowest "
        "seed."
    ]
    has_scores = any(row["2018"] is not None for row in rows)
    why = "The score of 2018 needs three seeds or more, all of which reach the target."
    return Table(columns, rows, notes=notes if has_scores else [why])


def _settings(trained: Trained) -> dict[str, Cell]:
    return {name: trained.setting(name) for name in SHOWN}


def _mean(name: str, show: Callable[[float], str], narrow: int = 0, is_rate: bool = False) -> Column:
    """A mean over the seeds with half its interval. What depends on a rate has a mark where that was disturbed."""

    def text(row: Mapping[str, Cell]) -> Cell:
        value, half = row[name], row[f"{name} ±"]
        if not isinstance(value, float):
            return None
        mark = " D" if is_rate and row.get("disturbed") else ""
        return show(value) + (f" {units.plus_minus(half)}" if isinstance(half, float) else "") + mark

    return Column(name, align="right", of=text, narrow=narrow)


def _row(trained: Trained) -> dict[str, Cell]:
    setup = trained.setup
    last = trained.quality
    row: dict[str, Cell] = {
        "application": setup["application"],
        **_settings(trained),
        "metric": setup["metric"],
        "quality": last.mean if last else None,
        "quality shown": quality_text(last.mean if last else None, setup["is_share"]),
        "target": setup["target"],
        "target shown": quality_text(setup["target"], setup["is_share"]),
        "mean reaches target": trained.is_certain,
        "reached": trained.reached,
        "runs": len(trained.runs),
        "disturbed": trained.is_disturbed,
    }
    means: dict[str, Spread | None] = {
        "samples to target": trained.samples_to_target,
        "samples/s": trained.samples_per_second,
        "time to target": trained.train_s,
    }
    for name, mean in means.items():
        row |= {name: None, f"{name} ±": None} if mean is None else {name: mean.value, f"{name} ±": mean.half_width}
    return row


def title(trained: Trained, shown: Sequence[str]) -> str:
    """`image, batch 64`: an application with the settings that tell its setups apart."""
    words = [f"{name} {trained.setting(name)}" for name in shown]
    return ", ".join([trained.setup["application"], *words])


def _notes(found: Sequence[Trained]) -> list[str]:
    shown = differing(found)
    notes = []
    for trained in found:
        name = title(trained, shown)
        for run in trained.runs:
            if run.status != "ok":
                reason = f": {run.reason}" if run.reason else ""
                notes.append(f"{name}, seed {run.setup['seed']}: {run.status}{reason}.")
        if trained.is_bound and trained.samples_to_target is not None:
            notes.append(
                f"{name}: the first evaluation of a run reached the target, so the samples and the time to target are "
                "upper bounds without an interval."
            )
        if why := withheld(trained):
            notes.append(f"{name}: the time is withheld, because {why}.")
        if any(run.status in CHOSEN for run in trained.runs):
            notes.append(f"{name}: the quality is withheld: a mean without the failed runs would be biased.")
        if trained.is_disturbed:
            share = units.percent(trained.disturbed_share)
            notes.append(
                f"D  {name}: disturbed: other programs took CPUs from a run in {share} of its training; run again on a "
                "quiet machine."
            )
        reference = reference_of(trained.setup)
        for run in trained.runs:
            if reference is not None and (text := reference.outlier(run)):
                notes.append(f"{name}, seed {run.setup['seed']}: outlier: it {text}.")
        if reference is not None and (judgement := reference.judge(trained)) not in (None, "as expected"):
            notes.append(f"{name}: {judgement} than the same seeds of the reference, with 99 % certainty.")
        if trained.reached == len(trained.runs) and trained.is_certain is False:
            notes.append(f"{name}: it is not certain (95 %) that the mean quality at the end reaches the target.")
    return notes


def withheld(trained: Trained) -> str | None:
    """Why there is no time to the target; None where there is one."""
    if trained.train_s is not None:
        return None
    if len(trained.whole) == len(trained.runs):
        return "not every seed reached the target"
    others = dict.fromkeys(run.status.replace("_", " ") for run in trained.runs if run.status != "ok")
    return f"not every run ended as ok ({', '.join(others)})"


def _efficiency(found: Sequence[Trained]) -> list[str]:
    """How well several ranks use their cores or devices: their rate over that of one rank times the ranks."""
    shown = [name for name in differing(found) if name != "ranks"]
    of_one = {title(other, shown): other.samples_per_second for other in found if other.setup["ranks"] == 1}
    notes = []
    for trained in found:
        several, alone = trained.samples_per_second, of_one.get(title(trained, shown))
        if trained.setup["ranks"] > 1 and several is not None and alone is not None:
            ratio = several.times(alone.inverse)
            efficiency = ratio.value / trained.setup["ranks"]
            half = f" {units.plus_minus(ratio.half_width)}" if ratio.half_width is not None else ""
            notes.append(
                f"{title(trained, shown)}: {trained.setup['ranks']} ranks train {ratio.value:.2f} times as fast as one"
                f"{half}; scaling efficiency {units.percent(efficiency)}."
            )
    return notes


def pairs_table(pairs: Sequence[TrainingPair]) -> Table:
    """One row per application of two files. Ratios are those of the second file over the first."""
    both = [trained for pair in pairs for trained in (pair.first, pair.second)]
    shown = differing(both)
    rows: list[dict[str, Cell]] = []
    notes = []
    for pair in pairs:
        row: dict[str, Cell] = {"application": pair.first.setup["application"], "verdict": pair.verdict}
        for name in shown:
            values = dict.fromkeys(str(side.setting(name)) for side in (pair.first, pair.second))
            row[name] = " → ".join(values)
        for name, ratio in {"time to target": pair.time, "samples to target": pair.samples, "rate": pair.rate}.items():
            row |= {name: ratio.value if ratio else None, f"{name} ±": ratio.half_width if ratio else None}
        for name, side in (("first", pair.first), ("second", pair.second)):
            mean = side.train_s
            row[f"{name} quality"] = side.quality.mean if side.quality else None
            row[name] = mean.value if mean else None
        rows.append(row)
        if pair.quality_differs:
            ends = [side.quality.mean if side.quality else None for side in (pair.first, pair.second)]
            texts = [quality_text(end, pair.first.setup["is_share"]) for end in ends]
            title_text = title(pair.first, [])
            metric = pair.first.setup["metric"]
            notes.append(f"{title_text}: the {metric} at the end differs with 95 % certainty: {' → '.join(texts)}.")
        if pair.other_load is not None:
            loads = [f"{load:.1f}" for load in pair.other_load]
            notes.append(
                f"{pair.first.setup['application']}: other programs took {loads[0]} CPUs from the first side and "
                f"{loads[1]} from the second, which may explain a difference."
            )
        if pair.verdict == "failed":
            of = f"{pair.second.reached} of {len(pair.second.runs)}"
            notes.append(f"{pair.first.setup['application']}: in the second file {of} runs reached the target.")
    columns = [
        Column("application", whole=True),
        *(Column(name, narrow=1) for name in shown),
        Column("verdict"),
        _mean("time to target", lambda v: f"× {units.significant(v)}"),
        number("first", units.seconds, narrow=2),
        number("second", units.seconds, narrow=2),
        _mean("rate", lambda v: f"× {units.significant(v)}"),
        _mean("samples to target", lambda v: f"× {units.significant(v)}", narrow=3),
    ]
    about = [
        "×: the second file over the first, with the 95 % interval; rate is samples/s. same: within the margin. The "
        "verdicts of all rows together have a false alarm in 5 % of comparisons."
    ]
    if pairs and not any(pair.drift for pair in pairs):
        about.append(
            "The intervals leave out how much a machine changes from one session to the next, which deepbench selftest "
            "measures."
        )
    more = [f"{name} ±" for name in ("time to target", "rate", "samples to target")]
    return Table(columns, rows, notes=[*notes, *about], more_for_programs=more)
