"""Compare two result files: for each case in both, which side is faster, and how certain is that?

The unit of evidence is the process: one time each, the median of its undisturbed samples. Each side is represented by
the faster half of its processes, because interference only adds time; times are compared on a logarithmic scale
(`stats.faster_half_difference`). Sides that were interleaved in one run are compared pair by pair if their times rose
and fell together.

A case is `faster` or `slower` if its ratio is beyond the margin and its p-value, corrected for the number of cases, is
below 5 %. It is the `same` if the 95 % confidence interval of the ratio lies within the margin, else `cannot tell`.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import correlation, mean, median
from typing import Any

from deepbench.core import stats
from deepbench.judge import heats
from deepbench.judge.reasons import Reason, Reasons, library_title, reasons
from deepbench.results.file import ResultFile, damage_text
from deepbench.results.record import MEASURED, Record
from deepbench.results.summary import Summary, has_device_clock, process_time_s, summarize
from deepbench.results.work import Work

LEVEL = 0.95
MARGIN = 0.02

# A run that decides after every round whether to continue tests each case several times. Its p-values are multiplied
# by this; with `sides.EARLY`, 5 % of equal sides are then called different (simulation of 5 to 15 rounds).
LOOKS = 2.0

# A mean of ratios is withheld if a larger share of its cases is undecided.
MOST_UNDECIDED = 0.5

VERDICTS = ("faster", "slower", "same", "cannot tell")

# What would decide a case. Another program measured an imported one, so no command of ours measures it again.
ROUNDS, IN_TURN, QUIET_MACHINE, IMPORTED = "rounds", "in turn", "quiet machine", "imported"

# No case needs more rounds than this to be decided, or rounds do not decide it.
MOST_ROUNDS = 1000

# A comparison that would take longer than this is not worth waiting for: another way of measuring decides sooner.
LONGEST_S = 3600.0
# Starting a process with Python and NumPy, which its record does not count; see `plan/cost.py`.
START_S = 0.35

# Interleaved sides are compared pair by pair if they have at least so many pairs, and their times correlate by more.
LEAST_PAIRS, CORRELATED = 5, 0.7


@dataclass(frozen=True)
class ComparedCase:
    """One case on both sides. Ratios are the time of side b over that of side a: above 1, b is slower."""

    case: str
    a: Summary
    b: Summary
    difference: stats.Difference | None
    """Of log times; None if a side has one process only."""
    paired: bool
    q: float | None
    """p-value, corrected for the number of cases."""
    margin: float
    between_sessions: float = 0.0
    """Standard deviation of log times from one session to another, which no number of rounds reduces."""
    interleaved: bool = False
    """Whether both sides were measured in turn in one run."""
    met: heats.Meetings = field(default_factory=lambda: heats.Meetings(0, []))
    """The heats in which both sides met; then the difference comes from these."""

    @property
    def ratio(self) -> float:
        """The ratio that the verdict is based on."""
        return math.exp(self.difference.mean) if self.difference is not None else self.b.time_s / self.a.time_s

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % confidence interval of the ratio, not corrected for the number of cases; None of too few heats."""
        if self.difference is None or self.too_few_heats:
            return None
        low, high = self.difference.interval(LEVEL)
        return math.exp(low), math.exp(high)

    @property
    def is_disturbed(self) -> bool:
        """Whether the time of a side is disturbed."""
        return self.a.is_disturbed or self.b.is_disturbed

    @property
    def has_device_clock(self) -> bool:
        """Whether all times of both sides are from the clock of a device."""
        return all(map(has_device_clock, (*self.a.rounds, *self.b.rounds)))

    @property
    def other_load(self) -> tuple[float, float] | None:
        """CPUs used by other programs during each side, if the difference between the sides may explain the ratio."""
        if self.has_device_clock:
            return None
        a, b = other_cpus(self.a), other_cpus(self.b)
        return None if a is None or b is None or abs(a - b) < stats.OTHER_LOAD else (a, b)

    @property
    def too_few_heats(self) -> str | None:
        """Why too few heats count for a verdict; None if enough do, or if no heat is compared."""
        return self.met.too_few if self.met.count else None

    @cached_property
    def withheld(self) -> str | None:
        """Why there is no verdict, whatever the ratio: too few heats, or a side whose time is an upper bound."""
        if (too_few := self.too_few_heats) is not None:
            return too_few
        for name, side in (("first", self.a), ("second", self.b)):
            if side.is_disturbed:
                return f"other programs disturbed most processes of the {name} side"
        return None

    @property
    def is_simulated(self) -> bool:
        """Whether the time of a side was simulated, and not measured."""
        return self.a.is_simulated or self.b.is_simulated

    @property
    def imported(self) -> str | None:
        """The program that measured a side, if that was not DeepBench."""
        return self.a.imported or self.b.imported

    @property
    def is_one_process(self) -> bool:
        """Whether a side has one process of DeepBench, so that more rounds would give a verdict."""
        return self.difference is None and not self.withheld and not self.imported

    @property
    def slow_processes(self) -> str | None:
        """Which side varies more between processes, in words; None if neither does."""
        name, side = ("second", self.b) if self.b.slow_processes > self.a.slow_processes else ("first", self.a)
        if self.a.slow_processes == self.b.slow_processes:
            return None
        count = f"{side.slow_processes} of {len(side.rounds)} processes"
        return f"{count} of the {name} side took more than twice as long, and no other program had their CPUs"

    @property
    def verdict(self) -> str:
        """One of VERDICTS."""
        if self.difference is None or self.q is None or self.withheld:
            return "cannot tell"
        verdict = verdict_of(self.difference, self.q, self.margin)
        if verdict == "same" and self.slow_processes:
            return "cannot tell"
        if self.other_load is None:
            return verdict
        # Only a side that is slower despite less load from other programs is certainly slower.
        a, b = self.other_load
        return verdict if verdict == ("faster" if b > a else "slower") else "cannot tell"

    @property
    def more_rounds(self) -> int | None:
        """How many more rounds per side would probably decide; None if it is decided or MOST_ROUNDS would not do."""
        difference = self.difference
        if self.met.count and len(self.met.log_ratios) == self.met.count < heats.LEAST_HEATS:
            return heats.LEAST_HEATS - self.met.count
        if self.verdict != "cannot tell" or self.other_load or difference is None or difference.standard_error == 0:
            return None
        if self.withheld or self.slow_processes:
            return None
        effect, limit = abs(difference.mean), math.log1p(self.margin)
        half_width = effect if effect > limit else limit - effect  # excludes no change, or fits within the margin
        session_error = math.sqrt(2) * self.between_sessions
        if session_error and not stats.Difference(0.0, session_error, 1e6).half_width_at_most(half_width, LEVEL):
            return None
        count = min(len(self.a.rounds), len(self.b.rounds))

        def terms(n: int) -> tuple[int, float, float]:
            if self.paired:
                return n, 1.0, float(n - 1)
            return (n, 1.0, 2.0 * (n - 1)) if self.has_device_clock else stats.faster_half_terms(n)

        used, scale, _ = terms(count)
        own_error = math.sqrt(max(0.0, difference.standard_error**2 - session_error**2))
        spread = own_error * math.sqrt(used) / scale

        def enough(more: int) -> bool:
            used, scale, degrees_of_freedom = terms(count + more)
            error = math.hypot(scale * spread / math.sqrt(used), session_error)
            return stats.Difference(0.0, error, degrees_of_freedom).half_width_at_most(half_width, LEVEL)

        return bisect_left(range(MOST_ROUNDS), True, lo=1, key=enough) if enough(MOST_ROUNDS) else None

    @property
    def rounds_to_decide(self) -> int | None:
        """With how many rounds a new measurement of both sides would probably decide (`--rounds`)."""
        return None if (more := self.more_rounds) is None else more + min(len(self.a.rounds), len(self.b.rounds))

    @property
    def seconds_to_decide(self) -> float | None:
        """Seconds that so many rounds of this case take, of both sides; None without a number of rounds."""
        durations = [
            [r["process"]["duration_s"] for r in side.rounds if r["process"] and r["process"].get("duration_s")]
            for side in (self.a, self.b)
        ]
        if (rounds := self.rounds_to_decide) is None or not all(durations):
            return None
        return rounds * sum(median(of_side) + START_S for of_side in durations)

    @property
    def advice(self) -> str | None:
        """What would decide: ROUNDS within LONGEST_S, else another way of measuring; None if it is decided."""
        if self.verdict != "cannot tell":
            return None
        if self.imported:
            return IMPORTED
        if self.difference is None and not self.withheld:
            return None
        seconds = self.seconds_to_decide
        if self.rounds_to_decide is not None and seconds is None:
            return None  # a file without durations
        if seconds is not None and seconds <= LONGEST_S:
            return ROUNDS
        return QUIET_MACHINE if self.interleaved else IN_TURN


@dataclass(frozen=True)
class Mean:
    """A geometric mean of ratios over cases."""

    name: str
    count: int
    ratio: float | None
    """None where most cases are undecided: their ratios may be accidents."""
    interval: tuple[float, float] | None
    """95 % confidence interval; None without a ratio, and if a case has none."""
    undecided: int = 0
    """How many of the cases have the verdict `cannot tell`."""


@dataclass
class Comparison:
    """The comparison of two files."""

    cases: list[ComparedCase]
    reasons: Reasons
    """What was recorded and differs between the sides, for each case, each library and all cases."""
    differences: list[str]
    """What differs between machines, libraries and settings for more than a single case, in words."""
    left_out: list[str] = field(default_factory=list)
    """Cases without a ratio, each with its reason."""
    broken: dict[str, str] = field(default_factory=dict)
    """Those of them that side a measured and side b did not: the reason by the text of the case."""
    unmeasured: int = 0
    """How many cases have no time on either side."""
    unchecked: int = 0
    """How many of them have times on both sides that were not checked."""
    interleaved: bool = False
    between_sessions: float = 0.0
    """Standard deviation of log times from one session to another; 0 if unknown."""
    looks: float = 1.0
    """What p-values are multiplied by: LOOKS if the run could stop early."""

    def means(self) -> list[Mean]:
        """Of all cases, by operation, and by application."""
        groups: dict[str, list[ComparedCase]] = {"all": list(self.cases)}
        for c in self.cases:
            groups.setdefault(f"op {c.a.record['op']}", []).append(c)
        for c in self.cases:
            for application in dict.fromkeys(s.get("application") for s in c.a.record["sources"]):
                if application:
                    groups.setdefault(f"application {application}", []).append(c)
        return [_mean(name, cases, self.between_sessions) for name, cases in groups.items() if cases]

    def of(self, verdict: str) -> list[ComparedCase]:
        """The cases with this verdict."""
        return [c for c in self.cases if c.verdict == verdict]

    def reasons_of(self, c: ComparedCase) -> list[Reason]:
        """What may explain the ratio of a case; empty if nothing that was recorded differs."""
        return self.reasons.of(c.case, library_title(c.a, c.b))


def compare_files(
    a: ResultFile, b: ResultFile, margin: float = MARGIN, unchecked: bool = False, between_sessions: float = 0.0
) -> Comparison:
    """Compare the cases that both files have; `a` is the baseline.

    `margin` is the relative change that does not matter, `unchecked` includes results that were not checked, and
    `between_sessions` is the standard deviation of log times from one session on a machine to another.
    """
    interleaved = _same_run(a, b)
    comparison = Comparison([], Reasons([], {}, {}), [], interleaved=interleaved)
    comparison.between_sessions = 0.0 if interleaved else between_sessions
    rounds = a.header["plan"]["rounds"]
    comparison.looks = LOOKS if interleaved and rounds["least"] < rounds["most"] else 1.0
    cases_a, cases_b = _summaries_by_work(a, b), _summaries_by_work(b, a)
    for work, summary in cases_a.items():
        text, other = summary.record["case"], cases_b.get(work)
        why_a = _no_time_reason(summary, unchecked)
        why_b = _no_time_reason(other, unchecked) if other else "not measured"
        if why_a is None and why_b is not None:
            comparison.broken[text] = why_b
        if other is None:
            comparison.left_out.append(f"{text}: not in {b.path.name}")
        elif why_a and why_b and "inconsistent" not in (summary.status, other.status):
            comparison.unmeasured += 1
            comparison.unchecked += why_a == why_b == UNCHECKED
        elif why_a or why_b:
            comparison.left_out.append(f"{text}: {why_a or why_b} in {(a if why_a else b).path.name}")
        else:
            met = heats.meetings(summary.rounds, other.rounds)
            difference, paired = difference_of_rounds(summary.rounds, other.rounds, interleaved, between_sessions)
            sides = (text, summary, other, difference, paired, None, margin, comparison.between_sessions)
            comparison.cases.append(ComparedCase(*sides, interleaved, met))
    missing = (s.record["case"] for work, s in cases_b.items() if work not in cases_a)
    comparison.left_out += [f"{text}: not in {a.path.name}" for text in missing]
    corrected = stats.benjamini_hochberg(
        {
            c.case: min(1.0, comparison.looks * c.difference.p)
            for c in comparison.cases
            if c.difference is not None and not c.withheld
        }
    )
    comparison.cases = [dataclasses.replace(c, q=corrected.get(c.case)) for c in comparison.cases]
    comparison.reasons = reasons(a, b, [(c.a, c.b) for c in comparison.cases])
    comparison.differences = _differences(a, b, comparison.reasons)
    return comparison


def verdict_of(difference: stats.Difference, q: float, margin: float) -> str:
    """One of VERDICTS; `q` is the p-value of the difference, corrected for multiple tests."""
    limit, effect = math.log1p(margin), abs(difference.mean)
    if q < 1 - LEVEL and effect > limit:
        return "slower" if difference.mean > 0 else "faster"
    is_same = effect < limit and difference.half_width_at_most(limit - effect, LEVEL)
    return "same" if is_same else "cannot tell"


def other_cpus(s: Summary) -> float | None:
    """How many CPUs other programs used, on average over the rounds that recorded it."""
    counts = [r["measurement"].get("other_cpus") for r in s.rounds if r["measurement"]]
    known = [count for count in counts if count is not None]
    return sum(known) / len(known) if known else None


def process_times_s(rounds: Sequence[Record]) -> list[float]:
    """Seconds per call in each process, in the order of rounds."""
    return [process_time_s(r) for r in sorted(rounds, key=lambda r: r["round"])]


def difference_of(
    a: Sequence[float],
    b: Sequence[float],
    interleaved: bool,
    between_sessions: float = 0.0,
    on_device: bool = False,
) -> tuple[stats.Difference | None, bool]:
    """The difference of process times, and whether pairs were used; that choice does not depend on the difference.

    `on_device`: the times are from the clock of a device, to which other programs add nothing.
    """
    if interleaved and len(a) == len(b) >= LEAST_PAIRS:
        logs = [math.log(v) for v in a], [math.log(v) for v in b]
        if all(max(side) > min(side) for side in logs) and correlation(*logs) > CORRELATED:
            return stats.paired_difference(a, b), True
    difference = stats.device_difference if on_device else stats.faster_half_difference
    return difference(a, b, 0.0 if interleaved else between_sessions), False


def difference_of_rounds(
    a: Sequence[Record], b: Sequence[Record], interleaved: bool, between_sessions: float = 0.0
) -> tuple[stats.Difference | None, bool]:
    """The difference of two cases from their rounds, and whether it comes from pairs: of heats, where they met in any.

    Files that are older than heats have process times only. Of heats that were left out, process times tell no more.
    """
    met = heats.meetings(a, b)
    if met.count > 1:
        return stats.trimmed_difference(met.log_ratios), True
    if interleaved:
        both = {r["round"] for r in a} & {r["round"] for r in b}
        a, b = ([r for r in side if r["round"] in both] for side in (a, b))
    on_device = all(map(has_device_clock, (*a, *b)))
    return difference_of(process_times_s(a), process_times_s(b), interleaved, between_sessions, on_device)


def _same_run(a: ResultFile, b: ResultFile) -> bool:
    side_a, side_b = (f.header["plan"].get("interleaved") for f in (a, b))
    return bool(side_a and side_b and side_a["run"] and side_a["run"] == side_b["run"])


UNCHECKED = "unchecked"


def _no_time_reason(s: Summary, unchecked: bool) -> str | None:
    """Why a case has no time that counts; None if it has one."""
    if s.status == "unchecked" and not unchecked:
        return UNCHECKED
    if s.status not in MEASURED or s.estimate is None:
        return f"{s.status}, {s.record['reason'] or 'no reason given'}"
    return None


def _summaries_by_work(file: ResultFile, other: ResultFile) -> dict[Work, Summary]:
    """Summaries by the work that must be equal on both sides: all but the setting that the run compares."""
    side = file.header["plan"].get("interleaved") if _same_run(file, other) else None
    ignored = {"device", *(side["choices"] if side else ())}  # the backend implies the device
    threads = [{r["threads"] for r in f.records} for f in (file, other)]
    if len(threads[0]) == len(threads[1]) == 1:  # machines with different numbers of cores: all against all
        ignored.add("threads")
    return {Work.on_library(s.record).without(*ignored): s for s in summarize(file.records, file.order)}


def _differences(a: ResultFile, b: ResultFile, found: Reasons) -> list[str]:
    """What differs between the sides, one line per library: `cpu: Intel Xeon Gold 6148 → AMD EPYC 7763`."""
    lines = [f"{f.path.name}: {f.incomplete}" for f in (a, b) if f.incomplete]
    lines += [r.text for r in found.of_all]
    lines += [f"{title}: {', '.join(r.change for r in rs)}" for title, rs in found.of_library.items() if rs]
    compared = {name for title in found.of_library for name in title.split(", ")}
    others = {r["backend"]: r["library_title"] for f in (a, b) for r in f.records if r["library_title"] not in compared}
    facts = [(title, *(_version(f.header["libraries"].get(name)) for f in (a, b))) for name, title in others.items()]
    plans = [f.header["plan"] for f in (a, b)]
    facts.append(("mode", *(plan["mode"] for plan in plans)))
    rules = [dict[str, object](plan["rules"]) for plan in plans]
    changed = [n for n in {**rules[0], **rules[1]} if rules[0].get(n) != rules[1].get(n)]
    facts.append(
        ("sampling rules", *(", ".join(f"{n} {r[n]}" for n in changed if n in r) or "not stated" for r in rules))
    )
    facts.append(("left out", *(damage_text(f.damaged) if f.damaged else "nothing" for f in (a, b))))
    return lines + [f"{name}: {of_a} → {of_b}" for name, of_a, of_b in facts if of_a != of_b]


def _version(answer: Mapping[str, Any] | None) -> str:
    """The version of a library without a compared case."""
    library = (answer or {}).get("library")
    return str(library.get("version") or "available") if library else "unavailable"


def _mean(name: str, cases: Sequence[ComparedCase], between_sessions: float) -> Mean:
    undecided = sum(c.verdict == "cannot tell" for c in cases)
    if undecided > MOST_UNDECIDED * len(cases):
        return Mean(name, len(cases), None, None, undecided)
    ratio, interval = mean_ratio(cases, between_sessions)
    return Mean(name, len(cases), ratio, interval, undecided)


def mean_ratio(
    cases: Sequence[ComparedCase], between_sessions: float = 0.0
) -> tuple[float, tuple[float, float] | None]:
    """The geometric mean of ratios, decided or not, and its 95 % confidence interval."""
    differences = [c.difference for c in cases if c.difference is not None and c.interval is not None]
    if len(differences) < len(cases):
        return math.exp(mean(math.log(c.ratio) for c in cases)), None
    difference = mean_difference(differences, between_sessions)
    low, high = difference.interval(LEVEL)
    return math.exp(difference.mean), (math.exp(low), math.exp(high))


def mean_difference(differences: Sequence[stats.Difference], between_sessions: float = 0.0) -> stats.Difference:
    """The mean of the differences of several cases, whose standard errors include that of the sessions."""
    count = len(differences)
    # All cases share the difference between the sessions: averaging over cases does not reduce it.
    session_variance = 2 * between_sessions**2
    variances = [max(0.0, d.standard_error**2 - session_variance) for d in differences]
    variance = sum(variances) / count**2
    # Degrees of freedom of a sum of variances by Welch and Satterthwaite.
    terms = sum(v**2 / d.degrees_of_freedom for v, d in zip(variances, differences, strict=True)) / count**4
    degrees_of_freedom = min(variance**2 / terms, 1e6) if terms else 1e6
    error = math.sqrt(variance + session_variance)
    return stats.Difference(mean(d.mean for d in differences), error, degrees_of_freedom)
