"""Tables of all-reduce: the fastest library of each size next to published times, and predictions for larger groups."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from deepbench.core import units
from deepbench.judge import scaling
from deepbench.judge.groups import measured, models, published_errors, published_times
from deepbench.reporting.notes import MORE_RANKS, disturbed_sentences
from deepbench.reporting.table import Cell, Column, Table, number
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
                "bus B/s": None if s.is_disturbed else s.bus_bytes_per_s,
                "original B/s": None if s.is_disturbed else s.original_bytes_per_s,
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


def _bus_bytes_per_s(ranks: int, count: int, time_s: float) -> float:
    """As nccl-tests counts an all-reduce of so many bytes."""
    return 2 * (ranks - 1) / ranks * count / time_s
