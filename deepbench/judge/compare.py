"""Two result files → for each case in both, which side is faster, and how sure that is.

The unit is the process: one number each, the median of its clean samples. Of each side the faster half of the
processes counts, on logarithms, because what disturbs a process only adds time (`stats.faster_half_difference`). Where
both files come from one run in which the sides took turns, and rounds that were slow for one were slow for the other,
they are compared pair by pair.

`faster`, `slower`: the ratio is beyond the margin, and the chance of such a ratio by accident, corrected for the number
of cases, is below 5 %. `same`: the whole 95 % interval of the ratio lies within the margin. `cannot tell`: all else.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import correlation
from typing import Any

from deepbench.core import stats
from deepbench.core.variables import thread_variables
from deepbench.machine import describe
from deepbench.results.file import ResultFile
from deepbench.results.record import MEASURED, Record
from deepbench.results.summary import Summary, process_time_s, summarize

LEVEL = 0.95
MARGIN = 0.02

# Where a run looked after every round whether to go on, each chance counts so many times: with `sides.EARLY`, one in
# twenty equal sides is then called different, by simulation of 5 to 15 rounds.
LOOKS = 2.0

# Other programs kept so many more CPUs busy beside one side than beside the other that the ratio may be theirs.
OTHER_LOAD = 0.3

VERDICTS = ("faster", "slower", "same", "cannot tell")

# Beyond this many more rounds it is no use to say how many.
MOST_ROUNDS = 1000


@dataclass(frozen=True)
class Compared:
    """One case on both sides. Ratios are the second side's time over the first's: above 1, the second is slower."""

    case: str
    a: Summary
    b: Summary
    difference: stats.Difference | None
    """Of logarithms of times; None where a side has one process only."""
    paired: bool
    q: float | None
    """Chance of so large a difference by accident, corrected for the number of cases."""
    margin: float
    between: float = 0.0
    """What of the difference's error no round makes smaller: of the logarithm, from session to session."""

    @property
    def ratio(self) -> float:
        """The second side's time over the first's, as the verdict has it; of single processes as they are."""
        if self.difference is not None:
            return math.exp(self.difference.mean)
        return numbers(self.b.rounds)[0] / numbers(self.a.rounds)[0]

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the ratio, of this case alone."""
        if self.difference is None:
            return None
        low, high = self.difference.interval(LEVEL)
        return math.exp(low), math.exp(high)

    @property
    def other_load(self) -> tuple[float, float] | None:
        """CPUs that other programs kept busy while each side was measured, where that alone may make a difference."""
        one, other = other_cpus(self.a), other_cpus(self.b)
        if one is None or other is None or abs(one - other) < OTHER_LOAD:
            return None
        return one, other

    @property
    def verdict(self) -> str:
        """One of VERDICTS."""
        if self.difference is None or self.q is None:
            return "cannot tell"
        found = verdict_of(self.difference, self.q, self.margin)
        if self.other_load is None:
            return found
        # What is slower beside less company, or faster beside more, is so all the more.
        sure = "faster" if self.other_load[1] > self.other_load[0] else "slower"
        return found if found == sure else "cannot tell"

    @property
    def more_rounds(self) -> int | None:
        """How many more rounds of each side would probably decide; None when it is decided, or nobody can say."""
        if (
            self.verdict != "cannot tell"
            or self.difference is None
            or self.difference.standard_error == 0
            or self.other_load
        ):
            return None
        count = min(len(self.a.rounds), len(self.b.rounds))
        far, limit = abs(self.difference.mean), math.log1p(self.margin)
        wanted = far if far > limit else limit - far  # to exclude no change, or to fit within the margin
        if self.between and not stats.Difference(0.0, math.sqrt(2) * self.between, 1e6).half_width_at_most(
            wanted, LEVEL
        ):
            return None  # no number of rounds makes sessions more alike
        terms = _pair_terms if self.paired else stats.faster_half_terms
        half, scale, _ = terms(count)
        own = math.sqrt(max(0.0, self.difference.standard_error**2 - 2 * self.between**2))
        spread = own * math.sqrt(half) / scale

        def enough(more: int) -> bool:
            half, scale, freedom = terms(count + more)
            error = math.hypot(scale * spread / math.sqrt(half), math.sqrt(2) * self.between)
            return stats.Difference(0.0, error, freedom).half_width_at_most(wanted, LEVEL)

        return bisect_left(range(MOST_ROUNDS), True, lo=1, key=enough)


@dataclass(frozen=True)
class Mean:
    """A geometric mean of ratios over cases."""

    name: str
    count: int
    ratio: float
    interval: tuple[float, float] | None
    """From how sure each ratio is; None where one of them says nothing."""


@dataclass
class Comparison:
    """All that two files say together."""

    cases: list[Compared]
    differences: list[str]
    """What differs between the sides, in words: machines, libraries, how it was measured."""
    left_out: list[str] = field(default_factory=list)
    """Cases of which there is no ratio, in words."""
    broken: list[str] = field(default_factory=list)
    """Of these, those that the first side did and the second does not."""
    neither: int = 0
    """Cases without a time on either side."""
    interleaved: bool = False
    between: float = 0.0
    """Standard deviation of the logarithm of a time from session to session, as far as it is known."""
    looks: float = 1.0
    """How often each chance counts: LOOKS where the run could stop early."""

    def means(self) -> list[Mean]:
        """Overall, by op, and by application."""
        groups: dict[str, list[Compared]] = {"all": self.cases}
        for c in list(self.cases):
            groups.setdefault(f"op {c.a.record['op']}", []).append(c)
        for c in list(self.cases):
            for application in dict.fromkeys(s.get("application") for s in c.a.record["sources"]):
                if application:
                    groups.setdefault(f"application {application}", []).append(c)
        return [_mean(name, cases, self.between) for name, cases in groups.items() if cases]

    def count(self, verdict: str) -> int:
        """Cases with this verdict."""
        return sum(c.verdict == verdict for c in self.cases)


def compare_files(
    a: ResultFile, b: ResultFile, margin: float = MARGIN, unchecked: bool = False, between: float = 0.0
) -> Comparison:
    """Compare the cases that both files have.

    Args:
        a, b: the first side, which is the measure, and the second.
        margin: share of the time that does not matter.
        unchecked: whether times of results that nobody checked count.
        between: standard deviation of the logarithm of a time from one session of a machine to another.

    """
    interleaved = _same_run(a, b)
    left, right = _by_key(a, b), _by_key(b, a)
    found = Comparison([], _differences(a, b), interleaved=interleaved, between=0.0 if interleaved else between)
    compared: list[Compared] = []
    for key, s in left.items():
        other = right.get(key)
        if other is None:
            found.left_out.append(f"{s.record['case']}: not in {b.path.name}")
            if _why_not(s, unchecked) is None:
                found.broken.append(f"{s.record['case']}: not measured")
            continue
        wrong = [_why_not(x, unchecked) for x in (s, other)]
        if wrong[0] and wrong[1]:
            found.neither += 1
            continue
        if wrong[0] or wrong[1]:
            where = a.path.name if wrong[0] else b.path.name
            found.left_out.append(f"{s.record['case']}: {wrong[0] or wrong[1]} in {where}")
            if not wrong[0]:
                found.broken.append(f"{s.record['case']}: {wrong[1]}")
            continue
        found_here, by_pair = _difference(s, other, interleaved, between)
        compared.append(Compared(s.record["case"], s, other, found_here, by_pair, None, margin, found.between))
    found.left_out += [f"{s.record['case']}: not in {a.path.name}" for k, s in right.items() if k not in left]
    rounds = a.header["plan"]["rounds"]
    found.looks = LOOKS if interleaved and rounds["least"] < rounds["most"] else 1.0
    corrected = stats.benjamini_hochberg(
        {c.case: min(1.0, found.looks * c.difference.p) for c in compared if c.difference is not None}
    )
    found.cases = [dataclasses.replace(c, q=corrected.get(c.case)) for c in compared]
    return found


def verdict_of(difference: stats.Difference, q: float, margin: float) -> str:
    """One of VERDICTS; `q` is the chance of so large a difference by accident, corrected for what else was asked."""
    limit, far = math.log1p(margin), abs(difference.mean)
    if q < 1 - LEVEL and far > limit:
        return "slower" if difference.mean > 0 else "faster"
    return "same" if far < limit and difference.half_width_at_most(limit - far, LEVEL) else "cannot tell"


def other_cpus(s: Summary) -> float | None:
    """CPUs that other programs kept busy, on average over the rounds that say so."""
    told = [r["measurement"].get("other_cpus") for r in s.rounds if r["measurement"]]
    known = [count for count in told if count is not None]
    return sum(known) / len(known) if known else None


def numbers(rounds: Sequence[Record]) -> list[float]:
    """One number a process, in the order of rounds."""
    return [process_time_s(r) for r in sorted(rounds, key=lambda r: r["round"])]


# Rounds that rise and fall together on both sides: then pairs say more than halves.
CORRELATED, LEAST_PAIRS = 0.7, 5


def difference_of(
    a: Sequence[float], b: Sequence[float], in_turn: bool, between: float = 0.0
) -> tuple[stats.Difference | None, bool]:
    """The difference of two sides, and whether pair by pair. Which of the two does not depend on the difference."""
    if in_turn and len(a) == len(b) >= LEAST_PAIRS:
        logs = [math.log(v) for v in a], [math.log(v) for v in b]
        if all(max(side) > min(side) for side in logs) and correlation(*logs) > CORRELATED:
            return stats.paired_difference(a, b), True
    return stats.faster_half_difference(a, b, 0.0 if in_turn else between), False


def _difference(a: Summary, b: Summary, interleaved: bool, between: float) -> tuple[stats.Difference | None, bool]:
    if not interleaved:
        return difference_of(numbers(a.rounds), numbers(b.rounds), False, between)
    by_round = [{r["round"]: r for r in s.rounds} for s in (a, b)]
    both = sorted(set(by_round[0]) & set(by_round[1]))
    one, other = (numbers([side[n] for n in both]) for side in by_round)
    return difference_of(one, other, True)


def _pair_terms(n: int) -> tuple[int, float, float]:
    return n, 1.0, float(n - 1)


def _same_run(a: ResultFile, b: ResultFile) -> bool:
    """Whether both are sides of one run."""
    one, other = (f.header["plan"].get("interleaved") for f in (a, b))
    return bool(one and other and one["run"] and one["run"] == other["run"])


def _why_not(s: Summary, unchecked: bool) -> str | None:
    """Why a case has no time that counts."""
    if s.status == "unchecked" and not unchecked:
        return "unchecked"
    if s.status not in MEASURED or s.estimate is None:
        return f"{s.status}, {s.record['reason'] or 'no reason given'}"
    return None


def _by_key(found: ResultFile, other: ResultFile) -> dict[str, Summary]:
    """Summaries by what must agree: the case, less what is compared on purpose or belongs to the machine."""
    side = found.header["plan"].get("interleaved") if _same_run(found, other) else None
    threads = [{r["threads"] for r in f.records} for f in (found, other)]
    # Two machines with other numbers of cores: all of its cores against all of theirs.
    free = {"threads"} if len(threads[0]) == len(threads[1]) == 1 and threads[0] != threads[1] else set()
    free |= set(side["choices"] if side else ())
    return {_key(s.record, free): s for s in summarize(found.records, found.order)}


def _key(record: Record, free: set[str]) -> str:
    # The text leaves settings at their default out, so that a file from before there was a setting is understood.
    words = [w for w in record["case"].split() if w.partition("=")[0] not in free]
    if "backend" in free and record["backend"] in words:
        words.remove(record["backend"])
    return " ".join(words)


# How a number came about: what differs here may explain any ratio.
MACHINE = (*describe.IDENTITY[1:], "cpu_quota", "governor", "turbo_off", "huge_pages", "libc", "python")


def _differences(a: ResultFile, b: ResultFile) -> list[str]:
    """What differs between machines, libraries and measurement, in words."""
    found = []
    machines = [f.header["machine"] for f in (a, b)]
    for name in ("host", *MACHINE):
        one, other = (m.get(name) for m in machines)
        if one != other:
            found.append(f"{name.replace('_', ' ')}: {_words(one)} and {_words(other)}")
    libraries = [f.header["libraries"] for f in (a, b)]
    used = {r["backend"] for f in (a, b) for r in f.records}
    for name in sorted(used):
        one, other = (_library(side.get(name)) for side in libraries)
        if one != other:
            found.append(f"{name}: {one} and {other}")
    plans = [f.header["plan"] for f in (a, b)]
    for name, words in (("mode", "mode"), ("rules", "sampling rules")):
        if plans[0].get(name) != plans[1].get(name):
            shown = [_words(p.get(name)) if name == "mode" else _rules(p, plans) for p in plans]
            found.append(f"{words}: {shown[0]} and {shown[1]}")
    threads = [sorted({r["threads"] for r in f.records}) for f in (a, b)]
    if threads[0] != threads[1]:
        found.append(f"threads: {_words(threads[0])} and {_words(threads[1])}")
    tuning = [_tuning(f) for f in (a, b)]
    for name in sorted(set(tuning[0]) | set(tuning[1])):
        if tuning[0].get(name) != tuning[1].get(name):
            found.append(f"{name}: {_words(tuning[0].get(name))} and {_words(tuning[1].get(name))}")
    return found


def _tuning(found: ResultFile) -> Mapping[str, str]:
    """Variables that change how libraries run, as the first record has them."""
    processes = (r["process"] for r in found.records if r["process"])
    told: object = next((p.get("environment") for p in processes), None)
    every: Mapping[str, str] = told if isinstance(told, dict) else {}
    threads = thread_variables()
    return {n: v for n, v in every.items() if n not in threads}


def _rules(plan: Mapping[str, Any], plans: Sequence[Mapping[str, Any]]) -> str:
    every = [p.get("rules") or {} for p in plans]
    names = [n for n in plan.get("rules") or {} if every[0].get(n) != every[1].get(n)]
    return ", ".join(f"{n} {plan['rules'][n]}" for n in names) or "others"


def _library(answer: Mapping[str, Any] | None) -> str:
    library = (answer or {}).get("library")
    if not library:
        return "not there"
    return " ".join(str(library[n]) for n in ("version", "cpu_kernels", "build", "path") if library.get(n))


def _words(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return str(value)


def _mean(name: str, cases: Sequence[Compared], between: float) -> Mean:
    differences = [c.difference for c in cases if c.difference is not None]
    middle = sum(math.log(c.ratio) for c in cases) / len(cases)
    if len(differences) < len(cases):
        return Mean(name, len(cases), math.exp(middle), None)
    # A session's own pace is in every ratio alike: it does not become less by averaging over cases.
    common = 2 * between**2
    own = [max(0.0, d.standard_error**2 - common) for d in differences]
    total = sum(own) / len(cases) ** 2
    fourth = sum(v**2 / d.degrees_of_freedom for v, d in zip(own, differences, strict=True)) / len(cases) ** 4
    freedom = total**2 / fourth if fourth else 1e6
    reach = stats.t_critical(min(freedom, 1e6), LEVEL) * math.sqrt(total + common)
    return Mean(name, len(cases), math.exp(middle), (math.exp(middle - reach), math.exp(middle + reach)))
