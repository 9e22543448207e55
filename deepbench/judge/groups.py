"""All-reduces of a file and of published machines: which have a time, and what is fitted to them.

The models are those of `scaling.py`. Published times say how large their errors are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from deepbench.core import stats
from deepbench.judge import scaling
from deepbench.results import published
from deepbench.results.summary import Summary


def measured(summaries: Sequence[Summary]) -> list[Summary]:
    """The all-reduces with a time. A file from elsewhere may have some without a size or ranks: they are left out."""
    ranked = [s for s in summaries if s.record["op"] == "all_reduce" and s.hidden is None and s.is_ranked]
    return [s for s in ranked if _size(s, "n") >= 1 and _size(s, "ranks") >= 2 and s.record["traffic_bytes"] >= 1]


def _size(s: Summary, name: str) -> int:
    value = s.record["problem"].get(name)
    return value if isinstance(value, int) else 0


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


# ---- published times


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
