"""Tables of all-reduce: the fastest library of each size next to published times, and predictions for larger groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

from deepbench.core import stats, units
from deepbench.judge import scaling
from deepbench.reporting.notes import MORE_RANKS, disturbed_sentences
from deepbench.reporting.table import Cell, Column, Table, number
from deepbench.results import published
from deepbench.results.summary import Summary

# The only published CPU; the fastest of the other machines share a column.
CPU_MACHINE = "Intel Xeon Phi 7250"

DEFAULT_RANKS = (16, 64, 256, 1024, 8192)

OVERSUBSCRIBED = "Some groups had more ranks than cores, so times and predictions include waiting for a core."


def by_ranks(summaries: Sequence[Summary]) -> Table:
    """One row per size, number of ranks, precision and place: the fastest library, and the published times."""
    fastest: dict[tuple[int, int, str, str], Summary] = {}
    for s in measured(summaries):
        r = s.record
        key = int(r["problem"]["n"]), int(r["problem"]["ranks"]), r["precision"], r["settings"].get("place", "out")
        if key not in fastest or s.time_s < fastest[key].time_s:
            fastest[key] = s
    rows: list[dict[str, Cell]] = []
    known = published_times()
    for (n, ranks, precision, place), s in sorted(fastest.items()):
        same = {m: times[n, ranks] for m, times in known.items() if precision == "f32" and (n, ranks) in times}
        gpus = sorted((time_s, machine) for machine, time_s in same.items() if machine != CPU_MACHINE)
        rows.append(
            {
                "floats": n,
                "ranks": ranks,
                "precision": precision,
                "place": place,
                "fastest": s.library_title,
                "time": s.time_s,
                "± 95 %": s.estimate.half_width if s.estimate else None,
                "bus B/s": s.bus_bytes_per_s,
                "original B/s": s.original_bytes_per_s,
                "deterministic": s.group.get("deterministic") if s.group else None,
                "Xeon Phi 2017": same.get(CPU_MACHINE),
                "best GPU 2017": gpus[0][0] if gpus else None,
                "which": gpus[0][1].removeprefix("NVIDIA ") if gpus else None,
                "notes": "disturbed" if s.is_disturbed else None,
            }
        )
    columns = [
        *(
            number("floats", title="elements"),
            number("ranks"),
            Column("precision", title="type"),
            Column("place", narrow=4),
        ),
        Column("fastest"),
        *(number("time", units.seconds), number("± 95 %", units.plus_minus, "±")),
        *(
            number("bus B/s", units.bytes_per_s, "bus GB/s"),
            number("original B/s", units.bytes_per_s, "original GB/s", narrow=6),
        ),
        *(Column("deterministic", narrow=5), number("Xeon Phi 2017", units.seconds, narrow=1)),
        *(number("best GPU 2017", units.seconds, narrow=2), Column("which", title="GPU", narrow=3)),
        *[Column("notes", style="yellow")] * any(s.is_disturbed for s in fastest.values()),
    ]
    notes = [
        *disturbed_sentences(list(fastest.values())),
        "fastest: the shortest time over libraries, algorithms and thread levels; deepbench show --full prints all.",
        "bus GB/s: bus bandwidth as nccl-tests defines it. original GB/s: ranks × bytes over the time, as the original "
        "DeepBench published it.",
        "2017: published times; each of those ranks had a machine or a GPU of its own.",
        *[MORE_RANKS.footnote] * any(s.group and s.group["oversubscribed"] for s in fastest.values()),
    ]
    return Table(columns, rows, notes)


@dataclass(frozen=True)
class Model:
    """What was fitted to the all-reduces of a library and algorithm."""

    library: str
    precision: str
    place: str
    points: Sequence[scaling.Point]
    """Those that no other program disturbed."""
    bound: int | None
    """As `scaling.fit_by_size` returns it, and the fits."""
    fits: Sequence[scaling.Fit]
    notes: Sequence[str]
    """What was left out, and why there is no fit."""

    def time_s(self, ranks: int, count: int) -> float:
        """Predicted seconds for `count` bytes over `ranks` ranks."""
        return scaling.predicted_s(self.bound, self.fits, ranks, count)

    def fit_of(self, count: int) -> scaling.Fit:
        """The fit for messages of so many bytes."""
        return self.fits[-1 if self.bound is None or count >= self.bound else 0]

    @property
    def most_ranks(self) -> int:
        """The largest group of the fit."""
        return max(p.ranks for p in self.points)


def models(summaries: Sequence[Summary]) -> list[Model]:
    """A model for each library and algorithm with an all-reduce that has a time; some have no fit."""
    groups: dict[tuple[str, str, str], list[Summary]] = {}
    for s in measured(summaries):
        key = s.library_title, s.record["precision"], s.record["settings"].get("place", "out")
        groups.setdefault(key, []).append(s)
    return [_model(*key, group) for key, group in groups.items()]


def _model(library: str, precision: str, place: str, group: Sequence[Summary]) -> Model:
    points = [
        scaling.Point(int(s.record["problem"]["ranks"]), s.record["traffic_bytes"], s.time_s)
        for s in group
        if not s.is_disturbed
    ]
    bound, fits, notes = None, list[scaling.Fit](), list[str]()
    if disturbed := len(group) - len(points):
        notes.append(f"{library}, {precision}: {disturbed} disturbed times are left out of the model.")
    if len({p.ranks for p in points}) < 2:
        notes.append(f"{library}, {precision}: measured with one number of ranks; a model needs two or more.")
    else:
        bound, fits = scaling.fit_by_size(points)
        if not fits:
            notes.append(f"{library}, {precision}: measured with too few sizes for a model.")
    return Model(library, precision, place, points, bound, fits, notes)


def scaled(summaries: Sequence[Summary], ranks: Sequence[int] = DEFAULT_RANKS) -> Table:
    """A model fitted to each library and algorithm, and its predictions for other numbers of ranks."""
    found = models(summaries)
    rows: list[dict[str, Cell]] = []
    notes: list[str] = [] if found else ["no all-reduce has a time"]
    for model in found:
        notes += model.notes
        if not model.fits:
            continue
        notes += [
            f"{model.library}, {model.precision}, place={model.place}{_range(model.bound, i, len(model.fits))}: "
            f"{describe(fit)}."
            for i, fit in enumerate(model.fits)
        ]
        for count in sorted({p.bytes for p in model.points}):
            fewest = min(p.ranks for p in model.points if p.bytes == count)
            base = _bus_bytes_per_s(fewest, count, model.time_s(fewest, count))
            row: dict[str, Cell] = {
                "library": model.library,
                "precision": model.precision,
                "bytes": count,
                "model": model.fit_of(count).model,
            }
            for r in ranks:
                time_s = model.time_s(r, count)
                row |= {f"{r} ranks": time_s, f"{r} keep": _bus_bytes_per_s(r, count, time_s) / base}
            rows.append(row)
    columns = [Column("library"), Column("precision", title="type"), number("bytes"), Column("model", narrow=2)]
    for r in ranks:
        columns += [number(f"{r} ranks", units.seconds), number(f"{r} keep", units.percent, "efficiency", narrow=1)]
    notes += [
        "All times in this table are predictions of a model, not measurements.",
        "efficiency: predicted bus bandwidth over that of the smallest measured group.",
        check_on_published(),
    ]
    used = measured(summaries)
    most = max((int(s.record["problem"]["ranks"]) for s in used), default=0)
    if far := [r for r in ranks if r > scaling.FAR * most]:
        names = ", ".join(map(str, far))
        notes.append(f"Uncertain: {names} ranks are more than {scaling.FAR} times the measured number.")
    if any(s.group and s.group["oversubscribed"] for s in used):
        notes.append(OVERSUBSCRIBED)
    return Table(columns, rows, notes)


@cache
def published_times() -> dict[str, dict[tuple[int, int], float]]:
    """By machine: the published seconds of each all-reduce by its number of elements and ranks."""
    return {
        machine: {(int(s.record["problem"]["n"]), int(s.record["problem"]["ranks"])): s.time_s for s in summaries}
        for machine, summaries in published.all_reduces().items()
    }


@cache
def published_errors() -> dict[int, list[float]]:
    """The errors of such models on published times: fitted to 2 to 8 ranks, predicting 16 and 32."""
    errors: dict[int, list[float]] = {16: [], 32: []}
    for times in published_times().values():
        points = [scaling.Point(r, 4 * n, t) for (n, r), t in times.items()]
        bound, fits = scaling.fit_by_size([p for p in points if p.ranks <= 8])
        for point in points:
            if point.ranks in errors and fits:
                predicted = scaling.predicted_s(bound, fits, point.ranks, point.bytes)
                errors[point.ranks].append(predicted / point.time_s - 1)
    return errors


def range_of_errors() -> tuple[float, float]:
    """Between which 95 % of the published times lie, over what a model of smaller groups predicts for them."""
    ratios = [1 / (1 + error) for values in published_errors().values() for error in values]
    return stats.quantile(ratios, 0.025), stats.quantile(ratios, 0.975)


def check_on_published() -> str:
    """How far such models are from published times, as a sentence."""
    parts = [
        f"{units.percent(median(map(abs, values)))} for {ranks} ranks (signed: {units.percent(median(values))})"
        for ranks, values in published_errors().items()
    ]
    return f"On the six published machines, models fitted to 2 to 8 ranks have a median error of {' and '.join(parts)}."


def describe(fit: scaling.Fit) -> str:
    """A fit in words."""
    rate = f", {units.significant(fit.bytes_per_s / 1e9)} GB/s" if fit.bytes_per_s else ""
    worst = units.percent(max(map(abs, fit.errors)))
    error = f"median error {units.percent(fit.error)}, largest {worst}, on {len(fit.errors)} points"
    return f"model {fit.model}, {units.seconds(fit.constants[0])} per message{rate}; {error}"


def _range(bound: int | None, i: int, count: int) -> str:
    if bound is None or count == 1:
        return ""
    return f", {'from' if i else 'below'} {units.data_bytes(bound)}"


def measured(summaries: Sequence[Summary]) -> list[Summary]:
    """The all-reduces with a time. A file from elsewhere may have some without a size or ranks: they are left out."""
    ranked = [s for s in summaries if s.record["op"] == "all_reduce" and s.hidden is None and s.is_ranked]
    return [s for s in ranked if _size(s, "n") >= 1 and _size(s, "ranks") >= 2 and s.record["traffic_bytes"] >= 1]


def _size(s: Summary, name: str) -> int:
    value = s.record["problem"].get(name)
    return value if isinstance(value, int) else 0


def _bus_bytes_per_s(ranks: int, count: int, time_s: float) -> float:
    """As nccl-tests counts an all-reduce of so many bytes."""
    return 2 * (ranks - 1) / ranks * count / time_s
