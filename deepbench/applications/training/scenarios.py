"""The scenarios in which a trained model answers: queries one after the other, at random times, or all at once.

Samples are test examples, drawn with replacement; their order and the times of arrival follow from fixed seeds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from deepbench.applications.judge.serving import SHARES, lowest_rate, most_late, poisson_arrivals, probe_s
from deepbench.results.record import SCENARIOS, Scenario, ServedBatch, ServedProbe, ServedQueries, ServedRepeats

# Of everything random here; the scenarios add a number of their own.
SEED = 20_180_502

# Enough for every percentile, and few enough for a result file. Of arrivals at a rate, the slowest are kept.
MOST_QUERIES = 5000
MOST_ARRIVALS = 200_000
MOST_BATCHES, LEAST_BATCHES = 200, 2
MOST_PASSES, MOST_PROBES = 20, 10
PAIRS = 200

# The rate that a search found is tried with so many queries, and lowered so often.
LEAST_CONFIRMED, MOST_CONFIRMED = 1500, 8

# The search ends where the lowest rate that misses the bound is by so much above the highest that keeps it.
CLOSE = 1.05

# Sleeping takes longer than asked for by less than this.
SPIN_S = 2e-4


@dataclass(frozen=True)
class ServingOptions:
    """What is asked of every model."""

    scenarios: Sequence[Scenario] = SCENARIOS
    batch: int = 128
    """The most samples that a model gets at once."""
    seconds: float = 5.0
    """Of a scenario."""
    latency_s: float | None = None
    """Bound of the 99th percentile in the scenario `server`; None: a multiple of the latency of one sample."""
    driver: Literal["deepbench", "loadgen"] = "deepbench"
    """With `loadgen`, every scenario runs under LoadGen, too."""
    threads: int | None = None
    """None: as in training."""
    device: str | None = None
    """None: as in training."""
    timeout_s: float = 300.0
    """Without a sign of life for so long a process hangs."""


class QueryClock:
    """Seconds of this process. Tests have another one."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.perf_counter()

    def wait_until(self, at: float) -> None:
        """Sleep, and spin in the end."""
        while (left := at - self.now()) > 0:
            if left > SPIN_S:
                time.sleep(left - SPIN_S)


@dataclass
class AnsweringModel:
    """A model that answers test examples, and everything that it has answered in timed runs."""

    answer: Callable[[Sequence[int]], list[Any]]
    """One answer for each number of a test example."""
    tests: int
    tell: Callable[[], None] = lambda: None
    """Called between queries, as a sign of life."""
    clock: QueryClock = field(default_factory=QueryClock)
    asked: list[int] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    def timed(self, tests: Sequence[int]) -> tuple[float, float]:
        """Answer these test examples; when that began and ended."""
        begin = self.clock.now()
        answers = self.answer(tests)
        end = self.clock.now()
        self.asked += tests
        self.answers += answers
        self.tell()
        return begin, end

    def samples(self, count: int, seed: int) -> list[int]:
        """So many test examples, drawn with replacement."""
        drawn: list[int] = _chance(seed).integers(self.tests, size=count).tolist()
        return drawn


def one_after_another(model: AnsweringModel, samples: int, seconds: float) -> ServedQueries:
    """Queries of so many samples: each begins when the one before has its answer."""
    drawn = model.samples(MOST_QUERIES * samples, samples)
    model.answer(drawn[:samples])
    latencies: list[float] = []
    begin = end = model.clock.now()
    while end - begin < seconds and len(latencies) < MOST_QUERIES:
        at = len(latencies) * samples
        asked, end = model.timed(drawn[at : at + samples])
        latencies.append(end - asked)
    return {"samples": samples, "latency_s": _rounded(latencies), "seconds": end - begin}


def by_batch(model: AnsweringModel, most: int, seconds: float) -> list[ServedBatch]:
    """Batches of 1, 2, 4, … up to `most` samples, each size for an equal share of the time.

    Sizes that take too long are left out.
    """
    sizes = [2**i for i in range(most.bit_length()) if 2**i < most] + [most]
    end, found = model.clock.now() + seconds, list[ServedBatch]()
    for number, size in enumerate(sizes):
        drawn = model.samples((MOST_BATCHES + 1) * size, 100 + size)
        before = model.clock.now()
        if found and (1 + LEAST_BATCHES) * found[-1]["latency_s"][-1] > end - before:
            break
        model.answer(drawn[:size])  # may allocate memory and choose kernels
        share_s = (end - before) / (len(sizes) - number)
        latencies: list[float] = []
        at = begin = model.clock.now()
        while len(latencies) < LEAST_BATCHES or (at - begin < share_s and len(latencies) < MOST_BATCHES):
            start = (len(latencies) + 1) * size
            asked, at = model.timed(drawn[start : start + size])
            latencies.append(at - asked)
        found.append({"batch": size, "latency_s": _rounded(latencies)})
    return found


def offline(model: AnsweringModel, batch: int, seconds: float) -> list[float]:
    """All test examples at once, in batches of this size: the seconds of each pass. Each has another order."""
    passes: list[float] = []
    while not passes or (sum(passes) < seconds and len(passes) < MOST_PASSES):
        order = _chance(1000 + len(passes)).permutation(model.tests).tolist()
        begin = end = model.clock.now()
        for at in range(0, model.tests, batch):
            _, end = model.timed(order[at : at + batch])
        passes.append(end - begin)
    return passes


def on_schedule(
    model: AnsweringModel, arrivals: Sequence[float], samples: Sequence[int], batch: int, bound_s: float, most: int
) -> tuple[ServedQueries, int]:
    """Queries of one sample that arrive when the schedule says, whether or not the model is ready for them.

    Those that have arrived while it was busy wait, and it takes up to `batch` of them at once. Their latency counts
    from the scheduled arrival. The run ends early when more than `most` are later than the bound.

    Returns:
        The queries that were answered, and how many of them were late.
    """
    latencies: list[float] = []
    late, done, arrived, begin = 0, 0, 0, model.clock.now()
    end = begin
    while done < len(arrivals) and late <= most:
        model.clock.wait_until(begin + arrivals[done])
        now = model.clock.now() - begin
        while arrived < len(arrivals) and arrivals[arrived] <= now and arrived < done + batch:
            arrived += 1
        arrived = max(arrived, done + 1)
        _, end = model.timed(samples[done:arrived])
        latencies += [end - begin - arrivals[i] for i in range(done, arrived)]
        late += sum(latency > bound_s for latency in latencies[done:])
        done = arrived
    slow = sorted(latencies)[-MOST_QUERIES:]
    kept = [latency for latency in latencies if latency >= slow[0]]
    faster = len(latencies) - len(kept)
    return {"samples": 1, "latency_s": _rounded(kept), "faster": faster, "seconds": end - begin}, late


def highest_rate(
    model: AnsweringModel, batch: int, capacity: float, bound_s: float, seconds: float
) -> tuple[list[ServedProbe], ServedQueries | None]:
    """The highest rate of arrivals at which the percentile of latency keeps a bound, by bisection of the logarithm.

    Queries that wait in one queue are late together, so a short probe keeps many a rate by luck. The rate that is found
    is tried again with more queries and other arrivals, and lowered by a twentieth until it is kept.

    Args:
        model: answers.
        batch: samples that it may get at once.
        capacity: samples per second without any bound, where the search begins.
        bound_s: of the percentile.
        seconds: after which no further probe of the bisection begins, and twice what a probe may take.

    Returns:
        Every probe, and the queries of that with the highest rate that keeps the bound.
    """
    probes: list[ServedProbe] = []

    def is_kept(rate: float, queries: int) -> ServedQueries | None:
        number, queries = len(probes), min(MOST_ARRIVALS, queries)
        arrivals = poisson_arrivals(rate, queries, SEED + number)
        samples, most = model.samples(queries, 2000 + number), most_late(queries, SHARES["server"]) or 0
        found, late = on_schedule(model, arrivals, samples, batch, bound_s, most)
        answered = len(found["latency_s"]) + found.get("faster", 0)
        probes.append({"rate": rate, "queries": answered, "late": late, "is_kept": late <= most})
        return found if late <= most else None

    least = lowest_rate(seconds / 2) * (1 + 1e-9)  # rounding must not make its probe too long
    low, high, rate, begin = 0.0, 0.0, max(least, 0.8 * capacity), model.clock.now()
    while len(probes) < MOST_PROBES and model.clock.now() - begin < seconds and probe_s(rate, bound_s) <= seconds / 2:
        if is_kept(rate, math.ceil(rate * max(probe_s(rate, bound_s), seconds / 6))):
            low = rate
        else:
            high = rate
        if (low and high and high / low < CLOSE) or (high and not low and high <= least):
            break
        rate = (low * high) ** 0.5 if low and high else 1.25 * rate if low else max(least, rate / 2)
    for _ in range(MOST_CONFIRMED if low else 0):
        queries = max(LEAST_CONFIRMED, math.ceil(low * max(probe_s(low, bound_s), seconds / 2)))
        if best := is_kept(low, queries):
            return probes, best
        low /= CLOSE
    return probes, None


def repeats(model: AnsweringModel, seconds: float) -> ServedRepeats:
    """Single samples that were never asked before, and one sample that repeats, in turn.

    A model that keeps its answers is faster at the sample that repeats. Call it before everything else.
    """
    order = _chance(3000).permutation(model.tests).tolist()
    for _ in range(LEAST_BATCHES):
        model.answer(order[:1])
    different, repeated = list[float](), list[float]()
    begin = model.clock.now()
    for test in order[1 : 1 + PAIRS]:
        for latencies, asked_for in ((different, test), (repeated, order[0])):
            asked, answered = model.timed([asked_for])
            latencies.append(answered - asked)
        if model.clock.now() - begin > seconds:
            break
    return {"different_s": _rounded(different), "repeated_s": _rounded(repeated)}


def _rounded(seconds: Sequence[float]) -> list[float]:
    """To tenths of a microsecond: a line has thousands."""
    return [max(1e-7, round(value, 7)) for value in seconds]


def _chance(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((SEED, seed))))
