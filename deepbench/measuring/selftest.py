"""Measures for a self-test: many heats of unchanged code, equal blocks of work on every core, and the clock.

`judge/selftest.py` computes from them how reliable comparisons are.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
import timeit
from collections.abc import Mapping, Sequence
from typing import Any

from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.core.progress import Activity, Progress
from deepbench.judge import compare, selftest
from deepbench.judge.heats import log_ratios
from deepbench.machine import describe, remembered
from deepbench.measuring import cold
from deepbench.measuring.heat import Rival, measure_case, measure_heat
from deepbench.native import callloop
from deepbench.plan.cases import Choices, expand
from deepbench.plan.modes import DEFAULT
from deepbench.plan.suites import read_words
from deepbench.results.summary import process_time_s

TIMEOUT_S = 120.0

# A call that does nothing costs what the harness adds to every call.
NULL_CASE = "gemm m=1 n=1 k=1 a_t=0 b_t=0 forward f32 null threads=1"


def measure_selftest(machine: Mapping[str, Any], heats: int, progress: Progress) -> selftest.SelfTestResult:
    """Measure the suite `selftest` in so many heats of two processes; `BadInput` where nothing can be measured."""
    cases = [p.case for p in expand(read_words(["selftest"]), Choices(), describe.default_threads())]
    times: dict[str, list[float]] = {case.text: [] for case in cases}
    ratios: dict[str, list[float]] = {case.text: [] for case in cases}
    failure, begin = "", time.monotonic()
    planned = [(n, case) for n in range(1, heats + 1) for case in random.sample(cases, len(cases))]
    for done, (number, case) in enumerate(planned):
        left_s = (time.monotonic() - begin) / done * (len(planned) - done) if done else None
        progress(Activity(f"heat {number}  {case.text}", done, len(planned), left_s))
        one, other = measure_heat([Rival(case), Rival(case)], number, DEFAULT.rules_of_sides, TIMEOUT_S)
        ratios[case.text] += log_ratios([one], [other])
        for record in (one, other):
            if record["status"] == "ok":
                times[case.text].append(process_time_s(record))
            else:
                failure = f"{case.text}: {record['status']}, {record['reason']}"
    least = selftest.PROCESSES
    times = {text: values for text, values in times.items() if len(values) >= 2 * least}
    ratios = {text: values for text, values in ratios.items() if len(values) >= least}
    if not times:
        raise BadInput(f"nothing could be measured ({failure}); see deepbench info")
    cores = core_block_times(describe.cores())
    fastest = min((min(blocks) for blocks in cores.values()), default=1.0)
    null = measure_case(parse_case(NULL_CASE), 1, DEFAULT.rules, TIMEOUT_S)
    earlier = [selftest.times_of(line) for line in remembered.remembered(machine, "selftest")]
    return selftest.SelfTestResult(
        times,
        [selftest.sensitivity(text, selftest.two_runs(values), compare.MARGIN) for text, values in times.items()],
        [selftest.sensitivity(text, selftest.in_heats(values), compare.MARGIN) for text, values in ratios.items()],
        process_time_s(null),
        "compiled" if callloop.native_library() else "Python",
        clock_cost_s(),
        {cpu: selftest.jitter(blocks) for cpu, blocks in cores.items()},
        {cpu: min(blocks) / fastest for cpu, blocks in cores.items()},
        cold.prove(machine, {}),
        selftest.between_sessions([*filter(None, earlier), times]),
    )


def block_times(count: int, seconds: float) -> list[float]:
    """Times of `count` equal blocks of dependent additions, about `seconds` each, on the current core."""
    library = callloop.native_library()

    def block() -> None:
        if library is not None:
            library.deepbench_additions(additions)
        else:
            sum(range(additions))

    additions = 200_000
    additions = max(1, int(additions * seconds / min(timeit.repeat(block, number=1))))
    return timeit.repeat(block, number=1, repeat=count)


def core_block_times(cpus: Sequence[int], count: int = 300, seconds: float = 1e-3) -> dict[int, list[float]]:
    """`block_times` of each core, one core at a time. Restores the CPU affinity of this process."""
    times: dict[int, list[float]] = {}
    if not hasattr(os, "sched_setaffinity"):  # macOS binds nothing to a core
        return times
    before = os.sched_getaffinity(0)
    try:
        for cpu in cpus:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, {cpu})
                times[cpu] = block_times(count, seconds)
    finally:
        os.sched_setaffinity(0, before)
    return times


def clock_cost_s(count: int = 20_000) -> float:
    """Seconds that two readings of the clock take."""
    return 2 * min(timeit.repeat(time.perf_counter_ns, number=count)) / count
