"""The table by application and the table by backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import geometric_mean

from deepbench.core import units
from deepbench.core.op import find_op
from deepbench.plan.suites import read_suite, suite_files
from deepbench.report.cases import differing_places, place_cells, place_columns, rankings
from deepbench.report.notes import disturbed_sentences
from deepbench.report.table import LEAST_PROBLEM, Cell, Column, Table, number
from deepbench.results.summary import Summary


def by_application(
    summaries: Sequence[Summary], other: Sequence[Summary] | None = None, price_per_h: float | None = None
) -> Table:
    """The total time of each application's kernels, every row of a suite at its fastest library.

    A row that a suite lists twice counts twice. Gradients that training does not need do not count. A total of some of
    the kernels says of how many; shares and prices are of whole totals only. With `other`, the table has the geometric
    mean of this file's times over the other's, over the rows that both have with times that are trusted.
    """
    times = kernel_times(summaries)
    # The number of threads is part of what is compared: the other machine may have more cores.
    other_times = _fastest((replace(k, threads=0), t) for k, t in kernel_times(other or ()).items())
    kinds: dict[tuple[str, str, str, int], dict[Kernel, Summary | None]] = {}
    for kernel, s in times.items():
        kinds.setdefault((kernel.suite, kernel.application, kernel.precision, kernel.threads), {})[kernel] = s
    missing = _missing_kernels(kinds)
    whole = {kind for kind, kernels in kinds.items() if None not in kernels.values() and not missing[kind]}
    rows: list[dict[str, Cell]] = []
    for kind, kernels in kinds.items():
        suite, application, precision, threads = kind
        measured = {k: s for k, s in kernels.items() if s is not None}
        total = sum(s.time_s for s in measured.values())
        of_suite = [k for k in kinds if (k[0], *k[2:]) == (suite, precision, threads)]
        total_of_suite = sum(s.time_s for k in of_suite for s in kinds[k].values() if s is not None)
        row: dict[str, Cell] = {
            "suite": suite,
            "application": application,
            "precision": precision,
            "threads": threads,
            "kernels": len(kernels) + missing[kind],
            "measured": len(measured),
            "disturbed": sum(s.is_disturbed for s in measured.values()),
            "time": total if measured else None,
            "share": total / total_of_suite if whole.issuperset(of_suite) and total_of_suite else None,
            "of which": _shares_by_op(measured) if kind in whole else None,
        }
        if price_per_h is not None:
            row["cost of a million"] = 1e6 * total / 3600 * price_per_h if kind in whole else None
        if other is not None:
            pairs = [(s, o) for k, s in measured.items() if (o := other_times.get(replace(k, threads=0)))]
            ratios = [s.time_s / o.time_s for s, o in pairs if not s.is_disturbed and not o.is_disturbed]
            row |= {"compared": len(ratios), "this_over_other": geometric_mean(ratios) if ratios else None}
        rows.append({**row, "coverage": _coverage(row)})
    rows.sort(key=lambda row: (str(row["suite"]), str(row["precision"]), row["threads"], -float(row["time"] or 0.0)))
    columns = [
        *(
            Column("suite", narrow=1),
            Column("application"),
            Column("precision", title="type"),
            number("threads", narrow=2),
        ),
        *(number("time", units.seconds), Column("coverage", title="sum over")),
        *(number("share", units.percent, narrow=3), Column("of which", title="by operation", narrow=5)),
    ]
    notes = [
        *disturbed_sentences([s for s in times.values() if s is not None]),
        f"sum over: kernels with a time, of those that the suite lists for the application; each with the fastest "
        f"library of {_choices(summaries)}.",
        "time: sum over these kernels, one call each; not the time of a whole network.",
    ]
    if len(whole) < len(kinds):
        notes.append("Sums over different kernels cannot be compared. Shares are shown where every kernel has a time.")
    if price_per_h is not None:
        columns.append(number("cost of a million", units.significant, "cost per million"))
        notes.append(f"cost per million: a million passes over the kernels at a price of {price_per_h:g} per hour.")
    if other is not None:
        columns += [
            number("compared", title="kernels compared", narrow=4),
            number("this_over_other", units.faster_or_slower, "this file is"),
        ]
        notes.append(
            "this file is: compared with the other file, geometric mean over the kernels compared: those with "
            "undisturbed times in both."
        )
    return Table(columns, rows, notes, more_for_programs=("kernels", "measured", "disturbed"))


def _coverage(row: Mapping[str, Cell]) -> str:
    """`38 of 88 kernels, 3 disturbed`."""
    disturbed = f", {row['disturbed']} disturbed" if row["disturbed"] else ""
    return f"{row['measured']} of {row['kernels']} kernels{disturbed}"


_Pass = tuple[str, int, bool]
"""Operation, row of the suite, and whether it is the forward pass."""


def _missing_kernels(
    kinds: Mapping[tuple[str, str, str, int], Mapping[Kernel, Summary | None]],
) -> dict[tuple[str, str, str, int], int]:
    """How many kernels a kind lacks that its suite lists, or that the file has in another precision.

    No library may offer an operation in 8 bits, or the run was of one operation only. Then the file has no case of
    the others, and the sum would look whole.
    """
    # By suite and application: the kernels of each pass over a row. One call for both gradients may stand for two.
    passes: dict[tuple[str, str], dict[_Pass, int]] = {}
    of_kind: dict[tuple[str, str, str, int], Counter[_Pass]] = {}
    for kind, kernels in kinds.items():
        of_kind[kind] = counts = Counter((k.op, k.row, k.direction == "forward") for k in kernels)
        known = passes.setdefault(kind[:2], dict.fromkeys(_passes_of_suite(kind[0]).get(kind[1], ()), 1))
        for key, count in counts.items():
            known[key] = min(count, known.get(key, count))
    return {
        kind: sum(count for key, count in passes[kind[:2]].items() if key not in counts)
        for kind, counts in of_kind.items()
    }


@cache
def _passes_of_suite(name: str) -> dict[str, set[_Pass]]:
    """By application: what training or inference needs of a suite of this version; nothing of other suites."""
    passes: dict[str, set[_Pass]] = {}
    for entry in read_suite(name) if name in suite_files() else ():
        op, direction, source = find_op(entry.pattern.op), entry.pattern.direction, entry.source
        if source and source["application"] and source.get("needed", True) and not op.is_group:
            kernel = op.name, source["row"], (direction or "forward") == "forward"
            passes.setdefault(source["application"], set()).add(kernel)
    return passes


def _shares_by_op(fastest: Mapping[Kernel, Summary]) -> str | None:
    total = sum(s.time_s for s in fastest.values())
    by_op: dict[str, float] = {}
    for kernel, s in fastest.items():
        by_op[kernel.op] = by_op.get(kernel.op, 0.0) + s.time_s
    largest_first = sorted(by_op.items(), key=lambda item: -item[1])
    return ", ".join(f"{op} {units.percent(t / total)}" for op, t in largest_first) if total else None


def _choices(summaries: Sequence[Summary]) -> str:
    """The libraries and settings that the fastest was chosen from."""
    cases = [s for s in summaries if s.is_ranked and s.record["sources"] and not s.is_group]
    libraries = dict.fromkeys(s.record["library_title"] for s in cases)
    words = dict.fromkeys(word for s in cases for word in s.settings_words())
    return ", ".join(libraries) + (f", with and without {', '.join(words)}" if words else "")


@dataclass(frozen=True)
class Kernel:
    """A row of a suite in one direction, precision and number of threads."""

    application: str
    precision: str
    threads: int
    suite: str
    row: int
    op: str
    direction: str


def kernel_times(summaries: Sequence[Summary]) -> dict[Kernel, Summary | None]:
    """The fastest case of each kernel over libraries and settings; None if no library has a time."""
    return _gradients_once(
        _fastest(
            (
                Kernel(
                    source["application"],
                    s.record["precision"],
                    s.record["threads"],
                    source["suite"],
                    source["row"],
                    s.record["op"],
                    s.record["direction"],
                ),
                s if s.is_ranked else None,
            )
            for s in summaries
            if not s.is_group  # how often a model calls it depends on the number of machines
            for source in s.record["sources"]
            if source["application"] and source.get("needed", True)
        )
    )


def _fastest(cases: Iterable[tuple[Kernel, Summary | None]]) -> dict[Kernel, Summary | None]:
    fastest: dict[Kernel, Summary | None] = {}
    for kernel, s in cases:
        known = fastest.get(kernel)
        fastest[kernel] = s if known is None or (s is not None and s.time_s < known.time_s) else known
    return fastest


GRADIENTS = ("backward_data", "backward_weights")


def _gradients_once(fastest: dict[Kernel, Summary | None]) -> dict[Kernel, Summary | None]:
    """Keep the faster of both gradients in one call and the two separate calls: a pass needs them once."""
    counted = dict(fastest)
    for kernel, both in fastest.items():
        parts = [replace(kernel, direction=d) for d in GRADIENTS]
        if kernel.direction == "backward" and all(part in fastest for part in parts):
            known = [s for part in parts if (s := fastest[part]) is not None]
            separate_s = sum(s.time_s for s in known) if len(known) == len(parts) else None
            separate = both is None or (separate_s is not None and separate_s < both.time_s)
            for dropped in [kernel] if separate else parts:
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
    problems: Counter[str] = Counter()
    shown: list[Summary] = []
    differing = differing_places([s for s in summaries if s.is_ranked])
    for ranking in rankings(summaries):
        if not ranking.ranked:
            continue
        first = ranking.ranked[0]
        times = {s.library_title: s.time_s for s in reversed(ranking.ranked)}
        disturbed = {s.library_title for s in ranking.ranked if s.is_disturbed}
        direct = [name for name in times if not is_framework[name]]
        best = min(direct, key=lambda name: times[name], default=None)
        wins[first.library_title] += 1
        problems.update({s.library_title for s in ranking.ranked})
        row: dict[str, Cell] = {"problem": first.problem_title, "precision": first.record["precision"]}
        row |= place_cells(first, differing)
        row |= {name: times.get(name) for name in names}
        for name in frameworks:
            known = best is not None and name in times and not disturbed & {name, best}
            row[f"{name} adds"] = times[name] - times[best] if known and best is not None else None
        if best is not None and best not in disturbed:
            for name in times.keys() - disturbed:
                ratios[name].append(times[name] / times[best])
        row["notes"] = f"disturbed: {', '.join(n for n in names if n in disturbed)}" if disturbed else ""
        shown += ranking.ranked
        rows.append(row)
    marks = Column("notes", lambda text: text.removeprefix("disturbed: "), title="disturbed", style="yellow")
    columns = [
        *(Column("problem", least=LEAST_PROBLEM), Column("precision", title="type"), *place_columns(differing)),
        *(number(name, units.seconds) for name in names),
        *(number(f"{name} adds", lambda s: "−+"[s >= 0] + units.seconds(abs(s)), narrow=1) for name in frameworks),
        *([marks] if any(row["notes"] for row in rows) else []),
    ]
    notes = disturbed_sentences(shown)
    for name in names:
        mean = units.speed_sentence("it", geometric_mean(ratios[name]), "the fastest library") if ratios[name] else None
        ratio = f"; {mean} (geometric mean over {len(ratios[name])})" if mean else ""
        notes.append(f"{name}: fastest in {wins[name]} of {problems[name]} problems{ratio}.")
    if frameworks:
        notes.append("adds: the framework's time minus that of the fastest library; negative: the framework is faster.")
    return Table(columns, rows, notes)
