"""What a published result file must have, and what a file lacks of it.

A file in the folder `results/` stands for a machine: others compare theirs with it. So it is a complete run: every
planned case, every precision of its libraries, enough rounds for an order, the date, and the conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any

from deepbench.core import units
from deepbench.core.backend import Backend, known_backend
from deepbench.results.file import ResultFile, damage_text
from deepbench.results.summary import Summary

# Fewer processes give an interval that says little, and no order of libraries.
LEAST_ROUNDS = 3

# The operation that every precision exists for.
COMMON_OP, COMMON_DIRECTION = "gemm", "forward"

# Without these, nobody can tell what was measured.
FACTS = ("cpu", "cores_allowed", "memory_bytes", "caches", "system", "kernel", "python", "load_1min")

# Programs that were waiting for a core when the run began, per core: above it, they slowed the run.
MOST_LOAD = 0.5

# Above this share of disturbed times, a file says more about other programs than about the machine.
MOST_DISTURBED = 0.1

# With wider intervals than this in more than half of the cases, a file decides little.
WIDEST_MEDIAN = 0.1

# Names that a sentence lists; the others are counted.
MOST_NAMED = 3

# What a file has that lacks nothing.
COMPLETE = (
    f"every planned case, every precision of its libraries, at least {LEAST_ROUNDS} rounds, few disturbed times, "
    "intervals that decide, date and conditions"
)


def lacks_of(file: ResultFile, summaries: Sequence[Summary]) -> list[str]:
    """What a file lacks to be published, one sentence each; nothing if it is complete. `summaries` are of this file."""
    ranked = [s for s in summaries if s.is_ranked]
    return [
        *_lacks_of_plan(file),
        *_lacks_of_precisions(file),
        *_lacks_of_rounds(ranked),
        *_lacks_of_quiet(ranked),
        *_lacks_of_certainty(ranked),
        *_lacks_of_conditions(file),
    ]


def _lacks_of_plan(file: ResultFile) -> list[str]:
    if file.header["plan"]["mode"] == "imported":
        return ["it was measured by another program: results are those of deepbench run"]
    done = {r["case"] for r in file.records if r["status"] != "interrupted"}
    missing = [text for text in file.order if text not in done]
    lacks = (
        [f"{len(missing):,} of {len(file.order):,} planned cases are not measured: {named(missing)}"] if missing else []
    )
    lacks += [f"damaged: {damage_text(file.damaged)}"] if file.damaged else []
    return lacks + ["the last line is incomplete"] * file.truncated


def _lacks_of_precisions(file: ResultFile) -> list[str]:
    """A precision counts as measured if a library was asked for it: the answer may be that this CPU lacks it."""
    found = [known_backend(name) for name, answer in file.header["libraries"].items() if "library" in answer]
    opened = [backend for backend in found if backend is not None]
    wanted = {precision: b.title for b in opened if _sets_precisions(b) for precision in _precisions(b)}
    measured = {r["precision"] for r in file.records}
    missing = {precision: title for precision, title in wanted.items() if precision not in measured}
    return [f"no case in {precision}, which {title} has" for precision, title in missing.items()]


def _sets_precisions(backend: Backend) -> bool:
    return backend.device == "cpu" and backend.computes and backend.default and not backend.is_group


def _precisions(backend: Backend) -> list[str]:
    marks = [m for m in backend.marks() if m.op == COMMON_OP and COMMON_DIRECTION in m.directions]
    return [precision for mark in marks for precision in mark.precisions]


def _lacks_of_rounds(ranked: Sequence[Summary]) -> list[str]:
    few = [s.record["case"] for s in ranked if len(s.rounds) < LEAST_ROUNDS]
    return [f"{len(few):,} cases have fewer than {LEAST_ROUNDS} rounds: {named(few)}"] if few else []


def _lacks_of_quiet(ranked: Sequence[Summary]) -> list[str]:
    disturbed = [s.record["case"] for s in ranked if s.is_disturbed]
    if len(disturbed) <= MOST_DISTURBED * len(ranked):
        return []
    return [f"other programs disturbed {len(disturbed):,} of {len(ranked):,} times: {named(disturbed)}"]


def intervals_text(summaries: Iterable[Summary]) -> str | None:
    """How wide the 95 % intervals of undisturbed times are; None if there are none."""
    widths = half_widths(summaries)
    if not widths:
        return None
    most = widths[-(len(widths) // 10) - 1]
    return (
        f"95 % intervals: half of them within {units.plus_minus(median(widths))}, nine of ten within "
        f"{units.plus_minus(most)}, the widest {units.plus_minus(widths[-1])}"
    )


def half_widths(summaries: Iterable[Summary]) -> list[float]:
    """Half the width of each interval over its time, in ascending order."""
    estimates = [s.estimate for s in summaries if s.is_ranked and not s.is_disturbed and s.estimate]
    return sorted(
        (e.high_s - e.low_s) / 2 / e.time_s for e in estimates if e.low_s is not None and e.high_s is not None
    )


def _lacks_of_certainty(ranked: Sequence[Summary]) -> list[str]:
    widths = half_widths(ranked)
    if not widths or median(widths) <= WIDEST_MEDIAN:
        return []
    return [f"half of the 95 % intervals are wider than {units.plus_minus(median(widths))}; measure more rounds"]


def _lacks_of_conditions(file: ResultFile) -> list[str]:
    machine: Mapping[str, Any] = file.header["machine"]
    lacks = [f"the machine's {name} is unknown" for name in unknown_facts(machine)]
    try:
        datetime.fromisoformat(file.header["started"])
    except ValueError:
        lacks.append("the date is unknown")
    if chosen := file.chosen_variables:
        lacks.append(f"environment variables changed what libraries choose by themselves: {', '.join(chosen)}")
    load = load_per_core(machine)
    if load is not None and load > MOST_LOAD:
        cores = machine["cores_allowed"]
        lacks.append(f"other programs were running when it began: a load of {load * cores:.2f} on {cores} cores")
    return lacks


def unknown_facts(machine: Mapping[str, Any]) -> list[str]:
    """The names of the facts that a file lacks of its machine."""
    return [name for name in FACTS if machine.get(name) is None]


def load_per_core(machine: Mapping[str, Any]) -> float | None:
    """Programs that waited for a core when the run began, over the number of cores; None if unknown."""
    load, cores = machine.get("load_1min"), machine.get("cores_allowed")
    return load / cores if isinstance(load, int | float) and isinstance(cores, int) and cores > 0 else None


def named(texts: list[str]) -> str:
    """The first of many texts, and how many more there are."""
    more = f" and {len(texts) - MOST_NAMED:,} more" if len(texts) > MOST_NAMED else ""
    return f"{'; '.join(texts[:MOST_NAMED])}{more}"
