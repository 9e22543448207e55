"""The tool measures itself: how often would it err on this machine, and what is the smallest change it would find?

Every case is measured in many fresh processes, in random order, all of one code. Then processes are dealt out into two
sides again and again and compared by the very code of `compare`: whatever it calls faster or slower is a false alarm.
With all times of one side made longer by a few percent, what it finds is its power.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, pstdev
from typing import Any

from deepbench.judge import compare
from deepbench.machine import remembered
from deepbench.results.file import ResultFile

# Processes of a side, as `run --ab` takes at first, and pairs of sides that are dealt out.
PROCESSES, DEALS = 5, 400

# Changes whose discovery is tried, and how often one must be found to count.
CHANGES = (0.01, 0.02, 0.03, 0.05, 0.075, 0.10, 0.15, 0.20, 0.30, 0.50)
POWER = 0.90


@dataclass(frozen=True)
class Rates:
    """How often each verdict came out, as shares."""

    faster: float
    slower: float
    same: float
    cannot_tell: float

    @property
    def false_alarms(self) -> float:
        """Of code that is the same: what was called faster or slower."""
        return self.faster + self.slower


@dataclass(frozen=True)
class Sensitivity:
    """What comparisons of one case are worth here."""

    case: str
    rates: Rates
    """Of equal sides."""
    smallest: float | None
    """The smallest change of CHANGES that is found nine times out of ten; None: none of them."""


def sensitivity(case: str, times: Sequence[float], in_turn: bool, margin: float, seed: int = 1) -> Sensitivity:
    """False alarms and power of comparing `PROCESSES` processes a side, dealt from these times.

    Args:
        case: its text.
        times: seconds, a number a process, in the order they were measured.
        in_turn: whether sides take turns: then neighbours are of one round.
        margin: as in `compare`.
        seed: of the deals.

    """
    rates = verdicts(times, 0.0, in_turn, margin, seed)
    smallest = next((c for c in CHANGES if verdicts(times, c, in_turn, margin, seed).slower >= POWER), None)
    return Sensitivity(case, rates, smallest)


def verdicts(times: Sequence[float], change: float, in_turn: bool, margin: float, seed: int) -> Rates:
    """How often each verdict comes out when the second side is slower by this share."""
    rng = random.Random(seed)
    counts = dict.fromkeys(compare.VERDICTS, 0)
    for _ in range(DEALS):
        a, b = _dealt(times, in_turn, rng)
        difference, _ = compare.difference_of(a, [t * (1 + change) for t in b], in_turn)
        if difference is not None:
            counts[compare.verdict_of(difference, difference.p, margin)] += 1
    return Rates(*(counts[v] / DEALS for v in compare.VERDICTS))


def _dealt(times: Sequence[float], in_turn: bool, rng: random.Random) -> tuple[list[float], list[float]]:
    if not in_turn:
        drawn = rng.sample(list(times), 2 * PROCESSES)
        return drawn[:PROCESSES], drawn[PROCESSES:]
    pairs = [times[i : i + 2] for i in range(0, len(times) - 1, 2)]
    chosen = [rng.sample(list(pair), 2) for pair in rng.sample(pairs, min(PROCESSES, len(pairs)))]
    return [one for one, _ in chosen], [other for _, other in chosen]


def between_sessions(sessions: Sequence[Mapping[str, Sequence[float]]]) -> float | None:
    """Standard deviation of the logarithm of a time from one session to another, beyond what processes explain.

    `sessions` have the times of each process by case. None with fewer than two sessions of the same cases.
    """
    if len(sessions) < 2:
        return None
    common = sorted(set.intersection(*(set(s) for s in sessions)))
    excess = []
    for case in common:
        logs = [[math.log(t) for t in s[case]] for s in sessions]
        if min(map(len, logs)) < 2:
            continue
        means = [sum(x) / len(x) for x in logs]
        own = sum(pstdev(x) ** 2 / (len(x) - 1) for x in logs) / len(logs)
        centre = sum(means) / len(means)
        between = sum((m - centre) ** 2 for m in means) / (len(means) - 1)
        excess.append(between - own)
    return math.sqrt(max(0.0, sum(excess) / len(excess))) if excess else None


def between_files(a: ResultFile, b: ResultFile) -> float:
    """How much times of these files move from one session to the next, as far as this machine's self-tests know.

    0 for files of other machines, of which nothing is known here.
    """
    machines = [f.header["machine"] for f in (a, b)]
    if remembered.fingerprint(machines[0]) != remembered.fingerprint(machines[1]):
        return 0.0
    lines = remembered.remembered(machines[0], "selftest")
    return between_sessions([times for line in lines if (times := times_of(line))]) or 0.0


def times_of(line: Mapping[str, Any]) -> dict[str, list[float]]:
    """Times by case of a remembered self-test; empty for a line that is none."""
    times = line.get("times")
    if not isinstance(times, dict):
        return {}
    return {
        case: values
        for case, values in times.items()
        if isinstance(values, list) and values and all(isinstance(v, float) and v > 0 for v in values)
    }


def pace(blocks_s: Sequence[float]) -> dict[str, float]:
    """How steady a core is, from the times of equal blocks of dependent additions: shares of the fastest."""
    fastest = min(blocks_s)
    ordered = sorted(b / fastest - 1 for b in blocks_s)
    return {
        "median": median(ordered),
        "p95": ordered[int(0.95 * (len(ordered) - 1))],
        "disturbed": sum(b > 0.05 for b in ordered) / len(ordered),
    }


def blocks(count: int, seconds: float) -> list[float]:
    """Times of so many equal blocks of dependent additions, each about so long, on the core that this runs on."""
    from deepbench.native import callloop

    library = callloop.native_library()

    def block(additions: int) -> float:
        start = time.perf_counter()
        if library is not None:
            library.deepbench_additions(additions)
        else:
            sum(range(additions))
        return time.perf_counter() - start

    trial = 200_000
    additions = max(1, int(trial * seconds / min(block(trial) for _ in range(5))))
    return [block(additions) for _ in range(count)]


def steadiness(cpus: Sequence[int], count: int = 300, seconds: float = 1e-3) -> dict[int, list[float]]:
    """Times of blocks on each core in turn; the affinity of this process is put back."""
    before = os.sched_getaffinity(0)
    found: dict[int, list[float]] = {}
    try:
        for cpu in cpus:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, {cpu})
                found[cpu] = blocks(count, seconds)
    finally:
        os.sched_setaffinity(0, before)
    return found


def clock_s(count: int = 20_000) -> float:
    """What a pair of readings of the clock takes."""
    best = math.inf
    for _ in range(5):
        start = time.perf_counter_ns()
        for _ in range(count):
            time.perf_counter_ns()
        best = min(best, (time.perf_counter_ns() - start) / count)
    return best * 2e-9


# Where the system does not say how large the caches are.
GUESSED_CACHE_BYTES = 64 * 2**20

# Cold must be no faster than memory by more than clocks and neighbours explain, and slower than what a cache holds.
COLD_AT_MOST, HOT_AT_LEAST = 1.15, 1.5


def cold_proof(rate: Callable[[int, str], float | None], cache_bytes: int) -> dict[str, Any] | None:
    """Is cold cold? Rates of a matrix times a vector, in bytes a second, hot and cold; None where nothing runs it.

    `rate` measures a matrix of so many bytes with a setting of `cache`. The large one is four times all caches, so that
    even hot it comes from memory; the small one is an eighth of them, and hot it should not.
    """
    small, large = cache_bytes // 8, 4 * cache_bytes
    found = {
        f"{name}_{setting}": rate(size, setting)
        for name, size, setting in (
            ("large", large, "hot"),
            ("small", small, "hot"),
            ("small", small, "cold"),
            ("small", small, "weights"),
        )
    }
    if None in found.values():
        return None
    memory, hot, cold, weights = (float(v) for v in found.values() if v is not None)
    return {
        "cache_bytes": cache_bytes,
        **{f"{name}_bytes_per_s": float(f"{v:.6g}") for name, v in found.items() if v is not None},
        "has_cache": hot > HOT_AT_LEAST * memory,
        "cold_is_cold": max(cold, weights) <= COLD_AT_MOST * memory,
    }


@dataclass(frozen=True)
class Findings:
    """All that a self-test found; `as_line` is what is remembered."""

    times: dict[str, list[float]]
    """Seconds of each process by case."""
    separate: list[Sensitivity]
    """Two files measured one after the other."""
    in_turn: list[Sensitivity]
    """Two sides of one run."""
    loop_s: float
    """What the harness adds to a call."""
    loop: str
    clock_s: float
    """Two readings of the clock."""
    cores: dict[int, dict[str, float]]
    """How steady each core is."""
    core_speeds: dict[int, float]
    """Time of a block on each core, over the fastest core's."""
    cold: dict[str, Any] | None
    """Rates of a matrix that fits into the caches and of one that does not, hot and cold."""
    between: float | None

    def as_line(self, at: str) -> dict[str, Any]:
        """For the memory of this machine."""
        return {
            "at": at,
            "times": self.times,
            "loop_s": self.loop_s,
            "clock_s": self.clock_s,
            "cold": self.cold,
            "core_speeds": {str(cpu): v for cpu, v in self.core_speeds.items()},
        }
