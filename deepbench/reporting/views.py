"""The table by application and the table by backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import geometric_mean

from deepbench.core import units
from deepbench.judge import totals
from deepbench.judge.totals import Total
from deepbench.reporting.cases import differing_places, place_cells, place_columns, rankings, time_cell
from deepbench.reporting.notes import disturbed_sentences
from deepbench.reporting.table import LEAST_PROBLEM, Cell, Column, Table, number, time_text
from deepbench.results.summary import Summary


def by_application(summaries: Sequence[Summary]) -> Table:
    """The total time of each application's kernels, every row of a suite at its fastest library.

    Where a kernel has no time there is no total, and no share. Values for programs have the sum over the others.
    """
    found = totals.of_summaries(summaries)
    rows: list[dict[str, Cell]] = []
    for total in found:
        of_suite = [t for t in found if (t.suite, t.kind[2:]) == (total.suite, total.kind[2:])]
        times = [t.time_s for t in of_suite if t.time_s is not None]
        share = None
        if total.time_s is not None and len(times) == len(of_suite):
            share = total.time_s / sum(times)
        rows.append(
            {
                "suite": total.suite,
                "application": total.application,
                "precision": total.precision,
                "threads": total.threads,
                "kernels": total.kernels,
                "measured": total.measured,
                "disturbed": total.disturbed,
                "time": total.time_s,
                "±": total.half_width,
                "low": total.low_s,
                "high": total.high_s,
                "sum": total.sum_s,
                "joules": total.joules,
                "share": share,
                "of which": _shares_by_op(total),
                "coverage": total.coverage,
            }
        )
    columns = [
        *(
            Column("suite", narrow=1),
            Column("application"),
            Column("precision", title="type"),
            number("threads", narrow=2),
        ),
        *(number("time", units.seconds), number("±", units.plus_minus), Column("coverage", title="sum over")),
        *(number("share", units.percent, narrow=3), Column("of which", title="by operation", narrow=5)),
    ]
    notes = [
        *disturbed_sentences([s for s in totals.kernel_times(summaries).values() if s is not None]),
        f"sum over: kernels with a time, of those that the suite lists for the application; each with the fastest "
        f"library of {_choices(summaries)}.",
        "time: sum over these kernels, each once, or as often as a model calls it; only where all have a time. It is "
        "not the time of a whole network.",
        "±: from the sum of the lower ends of their 95 % intervals to the sum of the upper ends.",
        "To rank machines by time or cost: deepbench rank.",
    ]
    return Table(columns, rows, notes, more_for_programs=("kernels", "measured", "disturbed", "low", "high", "sum"))


def _shares_by_op(total: Total) -> str | None:
    """What each operation takes of a total, the most first."""
    if total.time_s is None:
        return None
    largest_first = sorted(total.by_op_s.items(), key=lambda item: -item[1])
    return ", ".join(f"{op} {units.percent(t / total.time_s)}" for op, t in largest_first)


def _choices(summaries: Sequence[Summary]) -> str:
    """The libraries and settings that the fastest was chosen from."""
    cases = [s for s in summaries if s.is_ranked and s.record["sources"] and not s.is_group]
    libraries = dict.fromkeys(s.record["library_title"] for s in cases)
    words = dict.fromkeys(word for s in cases for word in s.settings_words())
    return ", ".join(libraries) + (f", with and without {', '.join(words)}" if words else "")


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
        times = {s.library_title: time_cell(s) for s in reversed(ranking.ranked)}
        disturbed = {s.library_title for s in ranking.ranked if s.is_disturbed}
        direct = [name for name in times if not is_framework[name]]
        best = min(direct, key=lambda name: times[name], default=None)
        if ranking.is_decided and len(ranking.ranked) > 1:
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
        *(number(name, time_text) for name in names),
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
