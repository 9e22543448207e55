"""What queries to a trained model say: percentiles that are certain, rates that keep a bound, and right answers.

The clock follows the rules of the field (MLPerf inference): latency is that of a query, and a query that comes while
the model is busy waits from its own arrival on.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from deepbench.applications.judge.convergence import Spread
from deepbench.core import stats, units
from deepbench.results.file import ResultFile
from deepbench.results.record import Scenario, ServedAnswers, ServedBatch, Serving, TrainingSetup

# The share of all sets of queries whose bound is at or above the true percentile, at least.
CONFIDENCE = 0.99

# The percentile of latency that a scenario reports. Batches are single queries with several samples.
SHARES: dict[Scenario, float] = {"single": 0.90, "multi": 0.99, "server": 0.99, "batches": 0.90}

# Another size of a batch rounds differently, and an answer in the balance may tip. More is a wrong model.
GRADE_TOLERANCE = 0.01

# The bound of the scenario `server` where nobody chose one: so many times the median latency of one sample, but not
# less than this. A shorter one would be missed whenever the system lets another program run for one turn.
BOUND_FACTOR, LEAST_BOUND_S = 10.0, 0.015

# A queue that grows has to grow beyond the bound within a probe, also where the rate is only 5 % too high.
BOUNDS_PER_PROBE = 20

# By more, samples that repeat are answered faster than others.
REPEATS_TOLERANCE = 0.10


def default_bound_s(latency_s: float) -> float:
    """The bound of the scenario `server`, from the median latency of one sample."""
    return max(LEAST_BOUND_S, BOUND_FACTOR * latency_s)


@cache
def bound_rank(queries: int, share: float) -> int | None:
    """The smallest k for which the k-th smallest of n latencies bounds a percentile; None where n is too small.

    The number of latencies below the percentile p has a binomial distribution. The k-th smallest is below it if k or
    more are:

        P(k-th smallest < percentile) = Σ from i = k to n of C(n, i)·pⁱ·(1 - p)ⁿ⁻ⁱ ≤ 1 - confidence

    The queries are taken as independent (Wilks, 1941, as early stopping in MLPerf).
    """
    tail = 0.0
    for i in range(queries, -1, -1):
        log = math.lgamma(queries + 1) - math.lgamma(i + 1) - math.lgamma(queries - i + 1)
        tail += math.exp(log + i * math.log(share) + (queries - i) * math.log1p(-share))
        if tail > 1 - CONFIDENCE:
            return i + 1 if i < queries else None
    return None


def least_queries(share: float) -> int:
    """With fewer queries not even the slowest bounds the percentile: n = ⌈log(1 - confidence) / log(p)⌉."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(share))


def percentile_bound(latency_s: Sequence[float], share: float, faster: int = 0) -> float | None:
    """The smallest latency that is an upper bound of their percentile with 99 % confidence.

    `faster` more are below all of these, so many that the percentile may be among them: then there is no bound.
    """
    rank = bound_rank(faster + len(latency_s), share)
    return None if rank is None or rank <= faster else sorted(latency_s)[rank - faster - 1]


def most_late(queries: int, share: float) -> int | None:
    """How many queries may be above a bound that their percentile keeps; None where there are too few queries."""
    rank = bound_rank(queries, share)
    return None if rank is None else queries - rank


def probe_s(rate: float, bound_s: float) -> float:
    """Seconds of the shortest probe that can judge whether a rate of queries keeps a bound."""
    return max(least_queries(SHARES["server"]) / rate, BOUNDS_PER_PROBE * bound_s)


def lowest_rate(seconds: float) -> float:
    """The lowest rate that a probe of so many seconds can judge."""
    return least_queries(SHARES["server"]) / seconds


def poisson_arrivals(rate: float, queries: int, seed: int) -> list[float]:
    """Seconds at which queries arrive independently of each other, from the first at 0.

    The mean rate is exactly `rate`: of 459 random gaps it would differ from it by 5 % (one standard deviation).
    """
    chance = np.random.Generator(np.random.PCG64(seed))
    times = np.cumsum(chance.exponential(1.0, queries - 1))
    return [0.0, *(times * ((queries - 1) / rate / times[-1])).tolist()]


def wrong_answers(answers: ServedAnswers) -> str | None:
    """Why answers of a timed run are wrong; None where they are as good as those of a plain evaluation."""
    grade, plain = answers["grade"], answers["plain_grade"]
    if grade is None or plain is None:
        return "the grade of the answers is no finite number"
    if abs(grade - plain) <= GRADE_TOLERANCE * abs(plain):
        return None
    equal = f"{answers['equal']:,} of {answers['answers']:,} answers are equal"
    return (
        f"the timed answers have the grade {units.significant(grade)}, and a plain evaluation of the same samples has "
        f"{units.significant(plain)}; {equal}"
    )


def best_batch(batches: Sequence[ServedBatch]) -> ServedBatch:
    """The one with the most samples per second."""
    return max(batches, key=batch_rate)


def batch_rate(batch: ServedBatch) -> float:
    """Samples per second, from the median latency."""
    return batch["batch"] / statistics.median(batch["latency_s"])


def least_saturated(batches: Sequence[ServedBatch], share: float = 0.9) -> int:
    """The smallest batch that reaches this share of the highest rate of all."""
    highest = batch_rate(best_batch(batches))
    return min(found["batch"] for found in batches if batch_rate(found) >= share * highest)


@dataclass(frozen=True)
class Served:
    """A scenario of a run."""

    setup: TrainingSetup
    line: Serving

    @property
    def is_ok(self) -> bool:
        """Whether its numbers count."""
        answers = self.line.get("answers")
        is_believable = answers is None or (wrong_answers(answers) is None and answers["equal"] <= answers["answers"])
        return self.line["status"] == "ok" and is_believable

    @property
    def is_disturbed(self) -> bool:
        """Whether other programs used CPUs that its threads needed."""
        others, cpus = self.line.get("other_cpus"), self.line.get("cpus")
        if others is None or cpus is None:
            return False
        return others - max(0, cpus - self.line["threads"]) >= stats.OTHER_LOAD

    @property
    def latency_s(self) -> float | None:
        """The upper bound of the percentile of the scenario; None without one."""
        queries = self.line.get("queries")
        if not self.is_ok or queries is None or self.line["scenario"] not in SHARES:
            return None
        return percentile_bound(queries["latency_s"], SHARES[self.line["scenario"]], queries.get("faster", 0))

    @property
    def samples_per_second(self) -> Spread | None:
        """Offline, over all passes."""
        passes = self.line.get("passes_s")
        if not self.is_ok or not passes or "start" not in self.line:
            return None
        return Spread.of([self.line["start"]["tests"] / seconds for seconds in passes])

    @property
    def kept_rate(self) -> float | None:
        """Of the server, the rate that was found and then confirmed with more queries, in queries per second."""
        search, queries = self.line.get("search"), self.line.get("queries")
        if not self.is_ok or search is None or queries is None:
            return None
        # The last one confirms the rate. A higher rate that a shorter probe kept before may have been luck.
        return next((probe["rate"] for probe in reversed(search["probes"]) if probe["is_kept"]), None)

    @property
    def missed_rate(self) -> float | None:
        """The lowest rate that does not keep the bound; None where none was tried."""
        search = self.line.get("search")
        missed = [probe["rate"] for probe in search["probes"] if not probe["is_kept"]] if search else []
        return min(missed, default=None)

    @property
    def lacks(self) -> str | None:
        """Why an `ok` scenario has no number."""
        if not self.is_ok:
            return None
        if self.line["scenario"] == "server":
            return None if self.kept_rate else self.line["reason"]
        queries = self.line.get("queries")
        if queries is None or self.latency_s is not None:
            return None
        share, made = SHARES[self.line["scenario"]], len(queries["latency_s"])
        needed_s = least_queries(share) * queries["seconds"] / max(1, made)
        return (
            f"{made} queries are too few to bound the {100 * share:.0f}th percentile; it takes {least_queries(share)}: "
            f"use --seconds {math.ceil(1.1 * needed_s)}"
        )

    @property
    def repeats_ratio(self) -> float | None:
        """The median time of samples that differ over that of one sample that repeats; None if it was not measured."""
        repeats = self.line.get("repeats")
        if repeats is None:
            return None
        return statistics.median(repeats["different_s"]) / statistics.median(repeats["repeated_s"])


def served(file: ResultFile) -> list[Served]:
    """The last line of each scenario of each run, in the order of the first."""
    setups = file.header["plan"].get("training", [])
    found: dict[tuple[object, ...], Served] = {}
    for line in file.serving:
        if line["run"] < len(setups):
            key = (line["run"], line["device"], line["precision"], line["threads"], line["scenario"])
            found[key] = Served(setups[line["run"]], line)
    return list(found.values())
