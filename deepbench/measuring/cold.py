"""Proves that caches are cold before `cache=cold` or `cache=weights` is measured."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from deepbench.core import stats
from deepbench.core.case import Case, parse_case
from deepbench.core.errors import BadInput
from deepbench.judge import selftest
from deepbench.judge.limits import Limits
from deepbench.judge.selftest import ColdProof
from deepbench.machine import describe, remembered
from deepbench.measuring import probes
from deepbench.measuring.heat import measure_case
from deepbench.measuring.parent import open_backend
from deepbench.plan.modes import DEFAULT
from deepbench.results.summary import process_time_s

# So old a measurement of warm caches does not count: the machine may have been busy.
WARM_AGE = timedelta(hours=1)

# Other programs can spoil a proof, but not make warm caches look cold: so often it is tried before a refusal.
PROOFS = 3

# The proof multiplies a matrix and a vector with the first of these libraries that is here.
LIBRARIES = ("openblas", "onednn", "mkl")


def environment(cases: Iterable[Case], machine: Mapping[str, Any]) -> dict[str, str]:
    """What workers must know of the caches: a virtual machine may be told of larger ones than it can use."""
    if all(case.settings["cache"] == "hot" or case.device != "cpu" for case in cases):
        return {}
    measured, stated = Limits(probes.recall(machine)).cache_bytes(), describe.cache_bytes()
    if describe.MEASURED_CACHES in os.environ or measured is None or (stated is not None and measured >= stated):
        return {}
    return {describe.MEASURED_CACHES: str(measured)}


def require(cases: Iterable[Case], machine: Mapping[str, Any]) -> None:
    """`BadInput` where cold caches are wanted and a measurement shows that they are not cold. Measures once."""
    cases = list(cases)
    if all(case.settings["cache"] == "hot" or case.device != "cpu" for case in cases):
        return
    workers = environment(cases, machine)
    size = _cache_bytes(workers)
    proofs = [
        line for line in remembered.remembered(machine, "cold") if line.get("cache_bytes") == size and _counts(line)
    ]
    proof: Mapping[str, Any] | None = proofs[-1] if proofs else None
    for _ in range(0 if proofs else PROOFS):
        proof = prove(machine, workers)
        if proof is None or proof["cold_is_cold"]:
            break
    if proof is not None and not proof["cold_is_cold"]:
        cold, memory = (_giga(proof.get(f"{name}_bytes_per_s")) for name in ("small_cold", "large_hot"))
        raise BadInput(
            "cache=cold and cache=weights are refused: a measurement here showed that caches stay warm "
            f"({cold} with cache=cold, {memory} from memory); "
            f"name the size of the caches in {describe.MEASURED_CACHES}, and run deepbench selftest again"
        )


def _counts(line: Mapping[str, Any]) -> bool:
    is_cold = line.get("cold_is_cold")
    return is_cold is True or (is_cold is False and remembered.age(line) < WARM_AGE)


def prove(machine: Mapping[str, Any], workers: Mapping[str, str]) -> ColdProof | None:
    """Measure whether cold caches are cold, and remember it; None where no library here can measure it."""
    threads = describe.default_threads()
    library = next((name for name in LIBRARIES if "library" in open_backend(name, 60.0)), None)
    if library is None:
        return None

    def rate(size: int, setting: str) -> float | None:
        # Columns that begin an odd number of cache lines apart: others may share few sets of a cache, and a large
        # matrix is then read at half of the rate of the memory.
        side = round((size / 4) ** 0.5) // 32 * 32 + 16
        words = "" if setting == "hot" else f" cache={setting}"
        case = parse_case(f"gemm m={side} n=1 k={side} a_t=0 b_t=0 forward f32 {library} threads={threads}{words}")
        times = []
        for number in (1, 2, 3):
            record = measure_case(case, number, DEFAULT.rules, 120.0, (), workers)
            if record["status"] != "ok":
                return None
            times.append(process_time_s(record))
        return float(record["traffic_bytes"] / stats.lower_quartile(times))

    sizes, rates = selftest.cold_sizes(_cache_bytes(workers)), {}
    for name, setting in selftest.COLD_RATES:
        measured = rate(sizes[name], setting)
        if measured is None:
            return None
        rates[name, setting] = measured
    proof = selftest.cold_proof(rates, _cache_bytes(workers))
    remembered.remember(machine, "cold", {"at": datetime.now(UTC).isoformat(timespec="seconds"), **proof})
    return proof


def _giga(bytes_per_s: object) -> str:
    return f"{bytes_per_s / 1e9:.1f} GB/s" if isinstance(bytes_per_s, float) else "an unknown rate"


def _cache_bytes(workers: Mapping[str, str]) -> int:
    measured = workers.get(describe.MEASURED_CACHES)
    return int(measured) if measured else describe.cache_bytes() or describe.GUESSED_CACHE_BYTES
