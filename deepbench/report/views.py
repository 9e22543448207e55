"""The table by application and the table by backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

from deepbench.core import units
from deepbench.report.cases import rankings
from deepbench.report.table import Cell, Column, Table, number
from deepbench.results.summary import Summary


def by_application(
    summaries: Sequence[Summary], other: Sequence[Summary] | None = None, price_per_h: float | None = None
) -> Table:
    """The total time of each application's kernels, every row of a suite at its fastest library.

    A row that a suite lists twice counts twice. Gradients that training does not need do not count. With `other`, the
    table has the geometric mean of this file's times over the other's, over the rows that both have.
    """
    times = _kernel_times(summaries)
    # The number of threads is part of what is compared: the other machine may have more cores.
    other_times = _fastest((replace(k, threads=0), t) for k, t in _kernel_times(other or ()).items())
    kinds: dict[tuple[str, str, str, int], dict[_Kernel, float | None]] = {}
    totals: dict[tuple[str, str, int], float] = {}
    for kernel, time_s in times.items():
        kind = (kernel.suite, kernel.application, kernel.precision, kernel.threads)
        kinds.setdefault(kind, {})[kernel] = time_s
        whole_suite = (kernel.suite, kernel.precision, kernel.threads)
        totals[whole_suite] = totals.get(whole_suite, 0.0) + (time_s or 0.0)
    rows: list[dict[str, Cell]] = []
    for (suite, application, precision, threads), kernels in kinds.items():
        measured = {k: t for k, t in kernels.items() if t is not None}
        total, total_of_suite = sum(measured.values()), totals[suite, precision, threads]
        ratios = [t / o for k, t in measured.items() if (o := other_times.get(replace(k, threads=0))) is not None]
        row: dict[str, Cell] = {
            "suite": suite,
            "application": application,
            "precision": precision,
            "threads": threads,
            "kernels": len(kernels),
            "measured": len(measured),
            "time": total if measured else None,
            "share": total / total_of_suite if measured and total_of_suite else None,
            "of which": _shares_by_op(measured),
        }
        if price_per_h is not None:
            row["cost of a million"] = 1e6 * total / 3600 * price_per_h if measured else None
        if other is not None:
            row |= {"in both": len(ratios), "× other": geometric_mean(ratios) if ratios else None}
        rows.append(row)
    rows.sort(key=lambda row: (str(row["suite"]), str(row["precision"]), row["threads"], -float(row["time"] or 0.0)))
    columns = [
        *(Column("suite"), Column("application"), Column("precision")),
        *(number("threads"), number("kernels"), number("measured")),
        *(number("time", units.seconds), number("share", units.percent), Column("of which", title="by operation")),
    ]
    notes = [
        f"kernels: rows of the suite for this application, each with the fastest library of {_choices(summaries)}.",
        "time: sum over the kernels, one call each; not the time of a whole network.",
    ]
    if price_per_h is not None:
        columns.append(number("cost of a million", units.significant, "cost per million"))
        notes.append(f"cost per million: a million passes over the kernels at a price of {price_per_h:g} per hour.")
    if other is not None:
        columns += [number("in both", title="kernels in both"), number("× other", units.significant)]
        notes.append("× other: this file's time over the other's, geometric mean over kernels; below 1, it is faster.")
    return Table(columns, rows, notes)


def _shares_by_op(times: Mapping[_Kernel, float]) -> str | None:
    total = sum(times.values())
    by_op: dict[str, float] = {}
    for kernel, time_s in times.items():
        by_op[kernel.op] = by_op.get(kernel.op, 0.0) + time_s
    largest_first = sorted(by_op.items(), key=lambda item: -item[1])
    return ", ".join(f"{op} {units.percent(t / total)}" for op, t in largest_first) if total else None


def _choices(summaries: Sequence[Summary]) -> str:
    """The libraries and settings that the fastest was chosen from."""
    cases = [s for s in summaries if s.is_ranked and s.record["sources"] and not s.is_group]
    libraries = dict.fromkeys(s.record["library_title"] for s in cases)
    words = dict.fromkeys(word for s in cases for word in s.settings_words())
    return ", ".join(libraries) + (f", with and without {', '.join(words)}" if words else "")


@dataclass(frozen=True)
class _Kernel:
    """A row of a suite in one direction, precision and number of threads."""

    application: str
    precision: str
    threads: int
    suite: str
    row: int
    op: str
    direction: str


def _kernel_times(summaries: Sequence[Summary]) -> dict[_Kernel, float | None]:
    """The fastest time of each kernel over libraries and settings; None if no library has a time."""
    return _gradients_once(
        _fastest(
            (
                _Kernel(
                    source["application"],
                    s.record["precision"],
                    s.record["threads"],
                    source["suite"],
                    source["row"],
                    s.record["op"],
                    s.record["direction"],
                ),
                s.time_s if s.is_ranked else None,
            )
            for s in summaries
            if not s.is_group  # how often a model calls it depends on the number of machines
            for source in s.record["sources"]
            if source["application"] and source.get("needed", True)
        )
    )


def _fastest(times: Iterable[tuple[_Kernel, float | None]]) -> dict[_Kernel, float | None]:
    fastest: dict[_Kernel, float | None] = {}
    for kernel, time_s in times:
        known = fastest.get(kernel)
        fastest[kernel] = time_s if known is None else known if time_s is None else min(known, time_s)
    return fastest


GRADIENTS = ("backward_data", "backward_weights")


def _gradients_once(times: dict[_Kernel, float | None]) -> dict[_Kernel, float | None]:
    """Keep the faster of both gradients in one call and the two separate calls: a pass needs them once."""
    counted = dict(times)
    for kernel, both_s in times.items():
        parts = [replace(kernel, direction=d) for d in GRADIENTS]
        if kernel.direction == "backward" and all(part in times for part in parts):
            known = [t for part in parts if (t := times[part]) is not None]
            separate_s = sum(known) if len(known) == len(parts) else None
            for dropped in [kernel] if both_s is None or (separate_s is not None and separate_s < both_s) else parts:
                del counted[dropped]
    return counted


def by_backend(summaries: Sequence[Summary]) -> Table:
    """One row per problem with the time of every library, and what a framework adds to the fastest library."""
    is_framework = {s.library_title: s.record["framework"] for s in summaries if s.is_ranked}
    names = sorted(is_framework, key=lambda name: is_framework[name])  # libraries first
    frameworks = [name for name in names if is_framework[name]]
    rows: list[dict[str, Cell]] = []
    ratios: dict[str, list[float]] = {name: [] for name in names}
    wins: Counter[str] = Counter()
    for ranking in rankings(summaries):
        if not ranking.ranked:
            continue
        first = ranking.ranked[0]
        times = {s.library_title: s.time_s for s in reversed(ranking.ranked)}
        best_s = min((t for name, t in times.items() if not is_framework[name]), default=None)
        wins[first.library_title] += 1
        row: dict[str, Cell] = {"problem": first.problem_title, "precision": first.record["precision"]}
        row |= {name: times.get(name) for name in names}
        for name in frameworks:
            row[f"{name} adds"] = times[name] - best_s if best_s is not None and name in times else None
        if best_s is not None:
            for name, time_s in times.items():
                ratios[name].append(time_s / best_s)
        rows.append(row)
    columns = [
        *(Column("problem"), Column("precision"), *(number(name, units.seconds) for name in names)),
        *(number(f"{name} adds", lambda s: "−+"[s >= 0] + units.seconds(abs(s))) for name in frameworks),
    ]
    notes = []
    for name in names:
        mean = units.significant(geometric_mean(ratios[name])) if ratios[name] else None
        ratio = f", {mean}× the time of the fastest library (geometric mean)" if mean else ""
        notes.append(f"{name}: fastest in {wins[name]} of {len(ratios[name])} problems{ratio}.")
    if frameworks:
        notes.append("adds: the framework's time minus that of the fastest library; negative: the framework is faster.")
    return Table(columns, rows, notes)
