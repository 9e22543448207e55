"""Views of all-reduce: the shortest time of each size and number of ranks beside published ones, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from deepbench.core import units
from deepbench.judge import scaling
from deepbench.report.table import rival_title
from deepbench.report.views import Cell, View
from deepbench.results import published
from deepbench.results.summary import Summary

# The published machine that is no GPU, and one column for the best of the others.
CPU_MACHINE = "Intel Xeon Phi 7250"

DEFAULT_RANKS = (16, 64, 256, 1024, 8192)


def by_ranks(summaries: Sequence[Summary]) -> View:
    """For each size, ranks and precision the fastest library and its way, bandwidths, bits, and published times."""
    best: dict[tuple[int, int, str, str], Summary] = {}
    for s in _measured(summaries):
        r = s.record
        key = int(r["problem"]["n"]), int(r["problem"]["ranks"]), r["precision"], r["settings"].get("place", "out")
        if key not in best or _time(s) < _time(best[key]):
            best[key] = s
    known = published.all_reduces()
    rows: list[dict[str, Cell]] = []
    for (n, ranks, precision, place), s in sorted(best.items()):
        then = [p for p in known if precision == "f32" and (p.values.n, p.values.ranks) == (n, ranks)]
        phi = min((p.time_s for p in then if p.machine == CPU_MACHINE), default=None)
        gpus = sorted((p.time_s, p.machine) for p in then if p.machine != CPU_MACHINE)
        rows.append(
            {
                "floats": n,
                "ranks": ranks,
                "precision": precision,
                "place": place,
                "fastest": rival_title(s),
                "time": _time(s),
                "± 95 %": s.estimate.half_width if s.estimate else None,
                "bus B/s": s.bus_bytes_per_s,
                "original B/s": s.original_bytes_per_s,
                "deterministic": s.group.get("deterministic") if s.group else None,
                "Xeon Phi 2017": phi,
                "best GPU 2017": gpus[0][0] if gpus else None,
                "which": gpus[0][1].removeprefix("NVIDIA ") if gpus else None,
            }
        )
    columns: dict[str, Callable[[Any], str]] = {
        **dict.fromkeys(("floats", "ranks"), str),
        **dict.fromkeys(("precision", "place", "fastest"), str),
        "time": units.seconds,
        "± 95 %": units.plus_minus,
        "bus B/s": _rate,
        "original B/s": _rate,
        "deterministic": str,
        "Xeon Phi 2017": units.seconds,
        "best GPU 2017": units.seconds,
        "which": str,
    }
    notes = [
        "fastest: the shortest time over libraries, algorithms and thread levels; deepbench show --full has all.",
        "bus B/s: as nccl-tests counts it; original B/s: ranks × bytes over the time, as the original published it.",
        "2017: times that the original published, each of its ranks a machine or a card of its own.",
    ]
    if any(s.group and s.group["oversubscribed"] for s in best.values()):
        notes.append("More ranks than cores in some rows: those times are of taking turns.")
    return View(columns, rows, notes)


def scaled(summaries: Sequence[Summary], ranks: Sequence[int] = DEFAULT_RANKS) -> View:
    """A model for every library and way, fitted to what was measured, and what it predicts for other group sizes."""
    points: dict[tuple[str, str, str], list[Summary]] = {}
    for s in _measured(summaries):
        key = rival_title(s), s.record["precision"], s.record["settings"].get("place", "out")
        points.setdefault(key, []).append(s)
    rows: list[dict[str, Cell]] = []
    notes: list[str] = [] if points else ["it has no all-reduce with a time"]
    for (title, precision, place), group in points.items():
        measured = [_point(s) for s in group]
        if len({p.ranks for p in measured}) < 2:
            notes.append(f"{title}, {precision}: measured with one number of ranks only; a model needs two or more.")
            continue
        bound, fits = scaling.fit_by_size(measured)
        if not fits:
            notes.append(f"{title}, {precision}: too few sizes for a model.")
            continue
        name = f"{title}, {precision}, place={place}"
        for i, made in enumerate(fits):
            notes.append(f"{name}{_range(bound, i, len(fits))}: {describe(made)}.")
        for count in sorted({p.bytes for p in measured}):
            smallest = min(p.ranks for p in measured if p.bytes == count)
            base = _bus(smallest, count, scaling.predicted_s(bound, fits, smallest, count))
            row: dict[str, Cell] = {
                "library": title,
                "precision": precision,
                "bytes": count,
                "model": fits[-1 if bound is None or count >= bound else 0].model,
            }
            for r in ranks:
                time_s = scaling.predicted_s(bound, fits, r, count)
                row |= {f"{r} ranks": time_s, f"{r} keep": _bus(r, count, time_s) / base}
            rows.append(row)
    columns: dict[str, Callable[[Any], str]] = {"library": str, "precision": str, "bytes": str, "model": str}
    for r in ranks:
        columns |= {f"{r} ranks": units.seconds, f"{r} keep": units.percent}
    notes += [
        "All times in this table are predictions of a model, not measurements.",
        "keep: scaling efficiency, what remains of the model's bus bandwidth for the smallest measured group.",
        check_on_published(),
    ]
    most = max((int(s.record["problem"]["ranks"]) for g in points.values() for s in g), default=0)
    if far := [r for r in ranks if r > scaling.FAR * most]:
        notes.append(
            f"More than {scaling.FAR} times what was measured, so far from it: {', '.join(map(str, far))} ranks."
        )
    if any(s.group and s.group["oversubscribed"] for g in points.values() for s in g):
        notes.append("Some groups had more ranks than cores: their times are of taking turns, and so are predictions.")
    return View(columns, rows, notes)


def check_on_published() -> str:
    """How far the models are off where the answer is known: fitted to 2 to 8 ranks, asked for 16 and 32."""
    errors: dict[int, list[float]] = {16: [], 32: []}
    known = published.all_reduces()
    for machine in dict.fromkeys(p.machine for p in known):
        times: dict[tuple[int, int], float] = {}
        for p in known:
            if p.machine == machine:
                size = p.values.n, p.values.ranks
                times[size] = min(p.time_s, times.get(size, p.time_s))
        points = [scaling.Point(r, 4 * n, t) for (n, r), t in times.items()]
        bound, fits = scaling.fit_by_size([p for p in points if p.ranks <= 8])
        for point in points:
            if point.ranks in errors and fits:
                predicted = scaling.predicted_s(bound, fits, point.ranks, point.bytes)
                errors[point.ranks].append(predicted / point.time_s - 1)
    said = [
        f"{units.percent(median(map(abs, found)))} for {ranks} ranks (the middle one {units.percent(median(found))})"
        for ranks, found in errors.items()
    ]
    return f"On the original's six machines, fitted to 2 to 8 ranks, these models are off by {' and '.join(said)}."


def describe(made: scaling.Fit) -> str:
    """A fit in words."""
    rate = f", {units.significant(made.bytes_per_s / 1e9)} GB/s" if made.bytes_per_s else ""
    worst = units.percent(max(map(abs, made.errors)))
    off = f"off by {units.percent(made.error)} in the median and {worst} at most, on {len(made.errors)} points"
    return f"model {made.model}, {units.seconds(made.constants[0])} a message{rate}; {off}"


def _range(bound: int | None, i: int, count: int) -> str:
    if bound is None or count == 1:
        return ""
    return f", {'from' if i else 'below'} {units.data_bytes(bound)}"


def _measured(summaries: Sequence[Summary]) -> list[Summary]:
    reduced = [s for s in summaries if s.record["op"] == "all_reduce" and s.hidden is None]
    return [s for s in reduced if s.is_ranked]


def _point(s: Summary) -> scaling.Point:
    return scaling.Point(int(s.record["problem"]["ranks"]), s.record["traffic_bytes"], _time(s))


def _time(s: Summary) -> float:
    assert s.estimate is not None, "measured cases have a time"
    return s.estimate.time_s


def _bus(ranks: int, count: int, time_s: float) -> float:
    return 2 * (ranks - 1) / ranks * count / time_s


def _rate(value: float) -> str:
    return f"{units.significant(value / 1e9)} G"
