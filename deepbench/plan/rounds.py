"""Which case is measured next, and in which round. Pure."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence

from deepbench.core.case import Case
from deepbench.plan.cases import Planned
from deepbench.plan.cost import PROCESS_S
from deepbench.plan.modes import Rounds
from deepbench.results import summary
from deepbench.results.record import MEASURED, Record
from deepbench.results.work import by_case


def queue(
    planned: Sequence[Planned], records: Sequence[Record], rounds: Rounds, order_seed: int
) -> list[tuple[Case, int]]:
    """The cases of the next round that are not measured yet, in the round's random order.

    A function of the plan and the records alone: to resume is to call it on what the file has.
    """
    groups = by_case(records)
    wanted = [
        (p.case, number) for p in planned if (number := next_round(groups.get(p.case.text, []), rounds)) is not None
    ]
    if not wanted:
        return []
    first = min(number for _, number in wanted)
    order = [p.case.text for p in planned]
    random.Random(f"{order_seed}/{first}").shuffle(order)
    position = {text: i for i, text in enumerate(order)}
    batch = [(case, number) for case, number in wanted if number == first]
    return sorted(batch, key=lambda item: position[item[0].text])


def next_within_budget(
    planned: Sequence[Planned],
    records: Sequence[Record],
    estimate: Callable[[Case], float],
    left_s: float,
    order_seed: int,
    widths: dict[tuple[str, int], float],
) -> tuple[Case, int] | None:
    """The case to measure next when the time is limited, with its round; None when nothing fits any more.

    First each case once, so that something is known of all: of every op, precision and library one in turn, the
    shorter ones first. Then the case whose time is least sure. A case is begun only if it should end in time, by what
    it took before, or by its estimate and how estimates have held so far. `widths` is where this function remembers
    what it has worked out.
    """
    groups = by_case(records)
    costs = _costs(planned, groups, estimate)
    fitting = [p.case for p in planned if costs[p.case.text] <= left_s]
    fresh = [case for case in fitting if case.text not in groups]
    if fresh:
        kinds = [(p.case.op, p.case.precision.name, p.case.backend) for p in planned if p.case.text in groups]
        seen = {kind: kinds.count(kind) for kind in kinds}
        return min(fresh, key=lambda c: (seen.get((c.op, c.precision.name, c.backend), 0), costs[c.text])), 1
    measured = [c for c in fitting if all(r["status"] in MEASURED for r in groups[c.text])]
    if not measured:
        return None
    chance = random.Random(f"{order_seed}/{len(records)}")

    def unsure(case: Case) -> tuple[float, float]:
        key = case.text, len(groups[case.text])
        if key not in widths:
            found, within_one = summary.estimate(groups[case.text])
            width = found.half_width if found is not None and not within_one else None
            widths[key] = math.inf if width is None else width
        return widths[key], chance.random()

    widest = max(measured, key=unsure)
    return widest, len(groups[widest.text]) + 1


def _costs(
    planned: Sequence[Planned], groups: Mapping[str, Sequence[Record]], estimate: Callable[[Case], float]
) -> dict[str, float]:
    """Seconds that the next round of each case should take."""
    estimates = {p.case.text: estimate(p.case) for p in planned}
    took = {
        text: max(process["duration_s"] for process in processes if process) + PROCESS_S
        for text, records in groups.items()
        if all(processes := [r["process"] for r in records])
    }
    held = [took[text] / estimates[text] for text in took if estimates.get(text)]
    pace = statistics.median(held) if held else 1.0
    return {text: took.get(text, pace * e) for text, e in estimates.items()}


def next_round(records: Sequence[Record], rounds: Rounds) -> int | None:
    """The number of the round that this case needs next, None when it is finished."""
    done = len(records)
    if any(r["status"] not in MEASURED for r in records):
        return None
    if done < rounds.least:
        return done + 1
    if done >= rounds.most or sum(p["duration_s"] for r in records if (p := r["process"])) > rounds.most_s:
        return None
    estimate, _ = summary.estimate(records)
    if estimate and estimate.half_width is not None and estimate.half_width <= rounds.target:
        return None
    return done + 1
