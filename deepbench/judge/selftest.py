"""How often does DeepBench report a change that does not exist here, and what is the smallest change it finds?

`measure/selftest.py` measures every case in heats of two rivals with equal code. Comparisons of two runs are simulated
with the times of the processes, split at random into two sides; comparisons in heats with the ratios of some heats
drawn at random. Each is judged by the code of `compare`: every `faster` or `slower` is a false alarm. With the times of
one side increased by a few percent, the share of `slower` is the power to detect that change.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, variance
from typing import Any, Literal, TypedDict, cast

from deepbench.core import stats
from deepbench.judge import compare
from deepbench.machine import remembered
from deepbench.results.file import ResultFile

# Processes per side, as `run --ab` starts with, and the number of comparisons that are drawn.
PROCESSES, SPLITS = 6, 400

# Changes that are tried, and how often one must be found to count as found.
CHANGES = (0.01, 0.02, 0.03, 0.05, 0.075, 0.10, 0.15, 0.20, 0.30, 0.50)
POWER = 0.90


@dataclass(frozen=True)
class VerdictRates:
    """The share of each verdict, from 0 to 1."""

    faster: float
    slower: float
    same: float
    cannot_tell: float

    @property
    def false_alarms(self) -> float:
        """If the code is unchanged: the share of `faster` and `slower`."""
        return self.faster + self.slower


@dataclass(frozen=True)
class Sensitivity:
    """How reliable comparisons of one case are."""

    case: str
    rates: VerdictRates
    """For unchanged code."""
    half_width: float
    """Median half width of the 95 % interval of the ratio: 0.01 is ±1 %."""
    smallest: float | None
    """The smallest of CHANGES that is found nine times out of ten; None if none is."""


Draw = Callable[[float, random.Random], stats.Difference]
"""Two random sides with equal code, the second slower by this share: their difference."""


def two_runs(times_s: Sequence[float]) -> Draw:
    """Comparisons of two runs with `PROCESSES` processes each, from the seconds per call of many processes."""

    def draw(change: float, rng: random.Random) -> stats.Difference:
        drawn = rng.sample(list(times_s), 2 * PROCESSES)
        a, b = drawn[:PROCESSES], [t * (1 + change) for t in drawn[PROCESSES:]]
        difference = stats.faster_half_difference(a, b)
        assert difference is not None, "PROCESSES are enough"
        return difference

    return draw


def in_heats(log_ratios: Sequence[float]) -> Draw:
    """Comparisons in `PROCESSES` heats, from the logarithms of the ratios of many heats.

    Either rival may be the second side, so each ratio has a random sign.
    """

    def draw(change: float, rng: random.Random) -> stats.Difference:
        drawn = [rng.choice((-1, 1)) * ratio for ratio in rng.sample(list(log_ratios), PROCESSES)]
        difference = stats.trimmed_difference([ratio + math.log1p(change) for ratio in drawn])
        assert difference is not None, "PROCESSES are enough"
        return difference

    return draw


def sensitivity(case: str, draw: Draw, margin: float, seed: int = 1) -> Sensitivity:
    """False alarms, intervals and power of comparisons that are drawn with this seed."""
    rng = random.Random(seed)
    widths = [low_high[1] - low_high[0] for low_high in (draw(0.0, rng).interval() for _ in range(SPLITS))]
    smallest = next((c for c in CHANGES if verdict_rates(draw, c, margin, seed).slower >= POWER), None)
    return Sensitivity(case, verdict_rates(draw, 0.0, margin, seed), median(widths) / 2, smallest)


def verdict_rates(draw: Draw, change: float, margin: float, seed: int) -> VerdictRates:
    """The share of each verdict if the second side is slower by `change`."""
    rng = random.Random(seed)
    counts = dict.fromkeys(compare.VERDICTS, 0)
    for _ in range(SPLITS):
        difference = draw(change, rng)
        counts[compare.verdict_of(difference, difference.p, margin)] += 1
    return VerdictRates(*(counts[v] / SPLITS for v in compare.VERDICTS))


def between_sessions(sessions: Sequence[Mapping[str, Sequence[float]]]) -> float | None:
    """Standard deviation of log times from one session to another, beyond what processes explain.

    `sessions` contain the times of processes by case. None with fewer than two sessions of the same cases.
    """
    if len(sessions) < 2:
        return None
    common = sorted(set.intersection(*(set(s) for s in sessions)))
    variances = []
    for case in common:
        logs = [[math.log(t) for t in s[case]] for s in sessions]
        if min(map(len, logs)) >= 2:
            noise = mean(variance(x) / len(x) for x in logs)
            variances.append(variance(map(mean, logs)) - noise)
    return math.sqrt(max(0.0, mean(variances))) if variances else None


def between_files(a: ResultFile, b: ResultFile) -> float:
    """`between_sessions` of the machine that measured both files, from its self-tests; 0 if unknown."""
    machine, other = (f.header["machine"] for f in (a, b))
    if remembered.fingerprint(machine) != remembered.fingerprint(other):
        return 0.0
    lines = remembered.remembered(machine, "selftest")
    return between_sessions([times for line in lines if (times := times_of(line))]) or 0.0


def times_of(line: Mapping[str, Any]) -> dict[str, list[float]]:
    """Times by case of a remembered self-test; empty if the line is damaged."""
    times = line.get("times")
    if not isinstance(times, dict):
        return {}
    return {
        case: values
        for case, values in times.items()
        if isinstance(values, list) and values and all(isinstance(v, float) and v > 0 for v in values)
    }


class Jitter(TypedDict):
    """How much equal blocks of work on one core differ in time, relative to the fastest block."""

    median: float
    p95: float
    disturbed: float
    """Share of blocks that take over 5 % longer."""


def jitter(blocks_s: Sequence[float]) -> Jitter:
    """Summarize the times of equal blocks of work."""
    fastest = min(blocks_s)
    excess = sorted(b / fastest - 1 for b in blocks_s)
    return {
        "median": median(excess),
        "p95": excess[int(0.95 * (len(excess) - 1))],
        "disturbed": sum(e > 0.05 for e in excess) / len(excess),
    }


# Cold data must not be read faster than memory by more than measurement error, and data in a cache must be read faster.
COLD_AT_MOST, HOT_AT_LEAST = 1.15, 1.5


class ColdProof(TypedDict):
    """Rates of a matrix times a vector, in bytes per second, and whether `cache=cold` reads from memory."""

    cache_bytes: int
    large_hot_bytes_per_s: float
    small_hot_bytes_per_s: float
    small_cold_bytes_per_s: float
    small_weights_bytes_per_s: float
    has_cache: bool
    cold_is_cold: bool


Rate = tuple[Literal["large", "small"], str]
"""The matrix that is read, and the setting of `cache`."""

COLD_RATES: tuple[Rate, ...] = (("large", "hot"), ("small", "hot"), ("small", "cold"), ("small", "weights"))


def cold_sizes(cache_bytes: int) -> dict[str, int]:
    """Bytes of the matrices that prove whether caches of so many bytes are cold.

    The large one is read from memory even if hot. The small one is, if hot, read from a cache.
    """
    return {"large": 4 * cache_bytes, "small": cache_bytes // 8}


def cold_proof(rates: Mapping[Rate, float], cache_bytes: int) -> ColdProof:
    """Whether `cache=cold` and `cache=weights` read from memory, from the bytes per second of all of `COLD_RATES`."""
    memory = rates["large", "hot"]
    proof = {
        "cache_bytes": cache_bytes,
        **{f"{name}_{setting}_bytes_per_s": float(f"{rates[name, setting]:.6g}") for name, setting in COLD_RATES},
        "has_cache": rates["small", "hot"] > HOT_AT_LEAST * memory,
        "cold_is_cold": max(rates["small", "cold"], rates["small", "weights"]) <= COLD_AT_MOST * memory,
    }
    return cast(ColdProof, proof)


@dataclass(frozen=True)
class SelfTestResult:
    """The results of a self-test."""

    times: dict[str, list[float]]
    """Seconds per call of each process, by case."""
    separate: list[Sensitivity]
    """Of two files measured one after the other."""
    in_heats: list[Sensitivity]
    """Of two sides of one run, which meet in heats."""
    loop_s: float
    """What the harness adds to a call."""
    loop: str
    """`compiled` or `Python`."""
    clock_s: float
    """Two readings of the clock."""
    cores: dict[int, Jitter]
    core_speeds: dict[int, float]
    """Time of a block on each core, relative to the fastest core."""
    cold: ColdProof | None
    between_sessions: float | None
    """As the function; None with fewer than two sessions."""

    def as_line(self, at: str) -> dict[str, Any]:
        """What is remembered of this machine."""
        return {
            "at": at,
            "times": self.times,
            "loop_s": self.loop_s,
            "clock_s": self.clock_s,
            "cold": self.cold,
            "core_speeds": {str(cpu): v for cpu, v in self.core_speeds.items()},
        }
