"""Records of one file → what a reader wants to know of each case. The one place where numbers are worked out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from deepbench.core import stats
from deepbench.core.backend import find_backend
from deepbench.core.case import Case, parse_case, run_settings_text
from deepbench.core.errors import BadInput
from deepbench.core.op import find_op
from deepbench.results.record import MEASURED, Record


@dataclass(frozen=True)
class Summary:
    """A case over all its rounds."""

    record: Record
    """The record that decides the status: the first without a time, else the first that is not ok, else the first."""
    rounds: list[Record]
    estimate: stats.Estimate | None
    """None unless every round was measured."""
    single_process: bool
    """Whether the interval comes from inside one process, because there is only one."""

    @property
    def status(self) -> str:
        return str(self.record["status"])

    @property
    def imported(self) -> str | None:
        """The program that measured it, where that was not us."""
        found = self.record["notes"].get("imported_from")
        return found if isinstance(found, str) else None

    @property
    def is_ranked(self) -> bool:
        """Whether its time may be ranked and its rate shown: checked, or said by another program, and told so."""
        return self.estimate is not None and (
            self.status == "ok" or (self.status == "unchecked" and bool(self.imported))
        )

    @property
    def flop_per_s(self) -> float | None:
        """Rate at the estimated time, on the unpadded problem; None where no time counts or nothing is computed.

        Groups add numbers too, but that is not what they are for.
        """
        if self.estimate is None or not self.is_ranked or not self.record["flop"] or "ranks" in self.record["problem"]:
            return None
        return float(self.record["flop"] / self.estimate.time_s)

    @property
    def bytes_per_s(self) -> float | None:
        """Least traffic at the estimated time; None where something else ran in that time too."""
        if self.estimate is None or not self.is_ranked or self._overlaps:
            return None
        return float(self.record["traffic_bytes"] / self.estimate.time_s)

    @property
    def group(self) -> dict[str, Any] | None:
        """What the record says of the ranks that took part, None where one process worked alone."""
        found: dict[str, Any] | None = self.record.get("group")
        return found

    @property
    def bus_bytes_per_s(self) -> float | None:
        """Of a group: what its links carry, as nccl-tests counts it; `bytes_per_s` is its algorithm bandwidth."""
        factor = self.record["notes"].get("bus_factor")
        if self.bytes_per_s is None or not isinstance(factor, float | int) or not 0 <= factor <= 2:
            return None
        return self.bytes_per_s * factor

    @property
    def _overlaps(self) -> bool:
        return bool(self.record["settings"].get("overlap", "none") != "none")

    @property
    def hidden(self) -> float | None:
        """Of an all-reduce beside a product: the share of its time that the product hid, from 0 to 1 but for noise.

        The median over rounds, each compared with its own parts alone.
        """
        shares = []
        for r in self.rounds:
            reduce_s, gemm_s = (r["notes"].get(f"{part}_alone_s") for part in ("all_reduce", "gemm"))
            if (
                not r["measurement"]
                or not isinstance(reduce_s, float)
                or not isinstance(gemm_s, float)
                or reduce_s <= 0
            ):
                return None
            shares.append((reduce_s + gemm_s - process_number(r["measurement"]).time_s) / reduce_s)
        return median(shares) if shares else None

    @property
    def original_bytes_per_s(self) -> float | None:
        """Of a group: ranks × bytes over the time, as the original DeepBench published it."""
        count = self.record["notes"].get("original_bytes")
        if self.estimate is None or not self.is_ranked or self._overlaps or not isinstance(count, float | int):
            return None
        return count / self.estimate.time_s

    @property
    def joules_per_call(self) -> float | None:
        """The least of its rounds, of those that measured long enough to mean something."""
        told = [(r["measurement"] or {}).get("energy") or {} for r in self.rounds]
        valid = [e["joules_per_call"] for e in told if e.get("valid") is True and e.get("joules_per_call") is not None]
        return min(valid, default=None)

    @property
    def warnings(self) -> list[dict[str, str]]:
        """The warnings of all rounds, each code once."""
        return list({w["code"]: w for r in self.rounds for w in r["warnings"]}.values())


def process_number(measurement: dict[str, Any]) -> stats.ProcessMedian:
    """What the samples of one measurement come to."""
    return stats.process_median(measurement["samples_s"], _clean(measurement))


def _clean(measurement: dict[str, Any]) -> list[bool]:
    return stats.undisturbed(
        measurement["samples_s"],
        measurement["cpu_s"],
        measurement["involuntary_switches"],
        measurement["steal_s"],
        measurement["calls_per_sample"],
    )


def summarize(records: Iterable[Record], order: Iterable[str] = ()) -> list[Summary]:
    """One Summary a case: first in the given order of case texts, then as the cases first appear."""
    by_case: dict[str, list[Record]] = {text: [] for text in order}
    for record in records:
        if record["status"] != "interrupted":
            by_case.setdefault(record["case"], []).append(record)
    return [_summary(rounds) for rounds in by_case.values() if rounds]


def estimate(rounds: Sequence[Record]) -> tuple[stats.Estimate | None, bool]:
    """The time of a case from its measured rounds, and whether the interval is from inside one process."""
    measured = [r["measurement"] for r in rounds if r["status"] in MEASURED and r["measurement"]]
    if not measured:
        return None, False
    numbers = list(map(process_number, measured))
    found = stats.estimate_time([n.time_s for n in numbers], [n.undisturbed_fraction for n in numbers])
    found = replace(found, disturbed=any(n.disturbed for n in numbers))
    if len(measured) > 1:
        return found, False
    only = measured[0]
    interval = stats.median_interval(stats.samples_used(only["samples_s"], _clean(only)))
    if interval is None:
        return found, False
    return replace(found, low_s=interval[0], high_s=interval[1]), True


def _summary(rounds: list[Record]) -> Summary:
    failed = [r for r in rounds if r["status"] not in MEASURED]
    found, within = estimate(rounds) if not failed else (None, False)
    doubtful = failed or [r for r in rounds if r["status"] != "ok"]
    return Summary(doubtful[0] if doubtful else rounds[0], rounds, found, within)


@dataclass(frozen=True)
class Baseline:
    """What a case is compared with in the same run: for a sparse product the fastest dense one of its shape."""

    summary: Summary
    speed_up: float
    """Time of the baseline over time of the case."""
    break_even_density: float | None
    """Share of non-zeros at which both would take the same time, if time grew with the non-zeros."""


def baselines(summaries: Sequence[Summary]) -> dict[str, Baseline]:
    """The baseline of every measured case that has one, by the case's text."""
    ok = [s for s in summaries if s.is_ranked]
    if not any(_has_baselines(op) for op in {s.record["op"] for s in ok}):
        return {}  # without taking a hundred thousand cases apart
    parsed = {s.record["case"]: _parsed(s.record["case"]) for s in ok}
    by_work: dict[tuple[Any, ...], list[Summary]] = {}
    for s in ok:
        if case := parsed[s.record["case"]]:
            by_work.setdefault(_work(case), []).append(s)
    found: dict[str, Baseline] = {}
    for s in ok:
        case = parsed[s.record["case"]]
        if case is None:
            continue
        for text in find_op(case.op).baselines(case):
            words = f"{case.precision.name} {case.backend} threads={case.threads} {run_settings_text(case)}"
            for rival in by_work.get(_work(parse_case(f"{text} {words}")), []):
                compared = _baseline(s, rival)
                known = found.get(s.record["case"])
                if known is None or compared.speed_up < known.speed_up:
                    found[s.record["case"]] = compared
    return found


def _has_baselines(op: str) -> bool:
    try:
        return find_op(op).has_baselines
    except BadInput:
        return False


def _baseline(s: Summary, dense: Summary) -> Baseline:
    assert s.estimate is not None, "only measured cases are compared"
    assert dense.estimate is not None, "only measured cases are compared"
    speed_up = dense.estimate.time_s / s.estimate.time_s
    share = s.record["flop"] / dense.record["flop"] if dense.record["flop"] else None
    return Baseline(dense, speed_up, share * speed_up if share is not None else None)


def _parsed(text: str) -> Case | None:
    """The case, or None where a file from elsewhere names an op or a library that is not here."""
    try:
        return parse_case(text)
    except BadInput:
        return None


def _work(case: Case) -> tuple[Any, ...]:
    device = find_backend(case.backend).device
    return case.op, case.problem, case.direction, case.precision.name, device, case.threads, case.overrides
