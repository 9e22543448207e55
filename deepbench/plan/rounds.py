"""Which case is next, in which round, and how long the rest takes. Pure but for the clock of `RoundsForecast`."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from deepbench.core.case import Case
from deepbench.plan.cases import Planned
from deepbench.plan.cost import PROCESS_S
from deepbench.plan.modes import Rounds
from deepbench.results import summary
from deepbench.results.completeness import LEAST_ROUNDS
from deepbench.results.record import MEASURED, Record
from deepbench.results.work import Work, by_case


def rivals_of(case: Case) -> Work:
    """The work that a case does: cases with equal work are rivals, and are measured in the same heat."""
    return Work.of_case(case).without("backend", *case.operation.variants)


def queue(
    planned: Sequence[Planned], records: Sequence[Record], rounds: Rounds, order_seed: int
) -> list[list[tuple[Case, int]]]:
    """The heats that the next round still lacks, in the random order of that round: cases with their round number.

    Rivals stay together: while one of them needs another round, all that were measured so far take part.
    Depends on the plan and the records alone: to resume a file is to call this with what the file has.
    """
    measured = by_case(records)
    works: dict[Work, list[Case]] = {}
    for p in planned:
        works.setdefault(rivals_of(p.case), []).append(p.case)
    heats: list[tuple[int, list[Case]]] = []
    for cases in works.values():
        done = {case: measured.get(case.text, []) for case in cases}
        needed = [n for case in cases if (n := next_round(done[case], rounds)) is not None]
        if needed:
            number = min(needed)
            partners = [
                c for c in cases if len(done[c]) == number - 1 and all(r["status"] in MEASURED for r in done[c])
            ]
            heats.append((number, partners))
    if not heats:
        return []
    first = min(number for number, _ in heats)
    batch = [[(case, number) for case in cases] for number, cases in heats if number == first]
    random.Random(f"{order_seed}/{first}").shuffle(batch)
    return batch


def next_round(records: Sequence[Record], rounds: Rounds) -> int | None:
    """The number of the round that a case needs next; None when it needs no more."""
    done = len(records)
    if any(r["status"] not in MEASURED for r in records):
        return None
    if done < rounds.least:
        return done + 1
    if done > 1 and not summary.undisturbed_rounds(records):
        return None  # other programs run all the time, so one more would not help
    if done >= rounds.most or sum(map(_duration_s, records)) > rounds.most_s:
        return None
    estimate, _ = summary.estimate(records)
    if estimate and estimate.half_width is not None and estimate.half_width <= rounds.target:
        return None
    return done + 1


def next_within_budget(
    planned: Sequence[Planned],
    records: Sequence[Record],
    estimate: Callable[[Case], float],
    left_s: float,
    order_seed: int,
    widths: dict[tuple[str, int], float],
) -> list[tuple[Case, int]]:
    """The heat to measure next when time is limited; empty when nothing fits into the time left.

    First every case is measured once: operations, precisions and libraries take turns, short cases first. Then every
    case gets LEAST_ROUNDS, as a published file needs. Then comes the case with the widest confidence interval. Its
    rivals with as many rounds take part as far as they fit. A case is started only if it should end in time, judged by
    its earlier rounds or by its estimate. `widths` caches the widths of intervals between calls.
    """
    measured = by_case(records)
    costs = _costs(planned, measured, estimate)
    fitting = [p.case for p in planned if costs[p.case.text] <= left_s]
    open_cases = [c for c in fitting if all(r["status"] in MEASURED for r in measured.get(c.text, []))]
    fresh = [case for case in fitting if case.text not in measured]
    if fresh:
        kinds = [(p.case.op, p.case.precision.name, p.case.backend) for p in planned if p.case.text in measured]
        seen = {kind: kinds.count(kind) for kind in kinds}
        chosen = min(fresh, key=lambda c: (seen.get((c.op, c.precision.name, c.backend), 0), costs[c.text]))
    elif open_cases:
        tie_break = random.Random(f"{order_seed}/{len(records)}")

        def width(case: Case) -> tuple[float, float]:
            key = case.text, len(measured[case.text])
            if key not in widths:
                estimated, single_process = summary.estimate(measured[case.text])
                few = single_process or len(measured[case.text]) < LEAST_ROUNDS
                half = estimated.half_width if estimated is not None and not few else None
                widths[key] = math.inf if half is None else half
            return widths[key], tie_break.random()

        chosen = max(open_cases, key=width)
    else:
        return []
    rounds, heat, spent_s = len(measured.get(chosen.text, [])), [chosen], costs[chosen.text]
    for case in open_cases:
        equal = case != chosen and len(measured.get(case.text, [])) == rounds and rivals_of(case) == rivals_of(chosen)
        if equal and spent_s + costs[case.text] <= left_s:
            heat.append(case)
            spent_s += costs[case.text]
    return [(case, rounds + 1) for case in heat]


def _costs(
    planned: Sequence[Planned], measured: Mapping[str, Sequence[Record]], estimate: Callable[[Case], float]
) -> dict[str, float]:
    """Seconds that the next round of each case should take."""
    estimates = {p.case.text: estimate(p.case) for p in planned}
    took = {
        text: max(map(_duration_s, records)) + PROCESS_S
        for text, records in measured.items()
        if all(r["process"] for r in records)
    }
    ratios = [took[text] / estimates[text] for text in took if estimates.get(text)]
    pace = statistics.median(ratios) if ratios else 1.0
    return {text: took.get(text, pace * seconds) for text, seconds in estimates.items()}


def _duration_s(record: Record) -> float:
    """Seconds that the process of a measured record took."""
    assert record["process"] is not None, "measured records have a process"
    return record["process"]["duration_s"]


class RoundsForecast:
    """How many measurements are done, how many there will be, and how long the rest takes."""

    # Estimates are corrected by how they held so far, once this many estimated seconds are done.
    ENOUGH_S = 5.0

    def __init__(
        self,
        planned: Sequence[Planned],
        records: Sequence[Record],
        rounds: Rounds,
        estimate: Callable[[Case], float],
        ends: float | None = None,
    ) -> None:
        """`records` are those of an earlier run; `ends` is when a budget is spent (monotonic clock)."""
        self._rounds, self._ends = rounds, ends
        self._seconds = {p.case.text: estimate(p.case) for p in planned}
        self._records: dict[str, list[Record]] = {text: [] for text in self._seconds}
        for text, earlier in by_case(records).items():
            self._records.setdefault(text, []).extend(earlier)
        self._left = {text: self._rounds_left(text) for text in self._seconds}
        self._begin, self._done_s = time.monotonic(), 0.0

    def add(self, record: Record) -> None:
        """Count one measurement."""
        text = record["case"]
        self._records[text].append(record)
        self._left[text] = self._rounds_left(text)
        self._done_s += self._seconds[text]

    def only_once(self) -> None:
        """From now on each case is measured at most once."""
        self._rounds = replace(self._rounds, least=1, most=1)
        self._left = {text: self._rounds_left(text) for text in self._seconds}

    @property
    def done(self) -> int:
        """Measurements so far, those of an earlier run included."""
        return sum(map(len, self._records.values()))

    @property
    def total(self) -> int:
        """Measurements so far, and those that are certain to come."""
        return self.done + sum(self._left.values())

    @property
    def left_s(self) -> float:
        """Seconds until the end."""
        now = time.monotonic()
        if self._ends is not None:
            return max(0.0, self._ends - now)
        pace = (now - self._begin) / self._done_s if self._done_s > self.ENOUGH_S else 1.0
        return pace * sum(self._seconds[text] * rounds for text, rounds in self._left.items())

    def _rounds_left(self, text: str) -> int:
        """The least number of rounds that the case still needs; beyond that one at a time."""
        records = self._records[text]
        needed = next_round(records, self._rounds) is not None
        return max(1, self._rounds.least - len(records)) if needed else 0
