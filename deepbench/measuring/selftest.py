"""Measures the cases of a self-test: many heats of unchanged code, for `judge/selftest.py` to compare."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.judge import compare, selftest
from deepbench.judge.heats import log_ratios
from deepbench.machine import describe, remembered
from deepbench.measuring import cold
from deepbench.measuring.heat import Rival, measure_case, measure_heat
from deepbench.measuring.session import Progress, Step
from deepbench.native import callloop
from deepbench.plan.cases import Choices, expand
from deepbench.plan.modes import DEFAULT
from deepbench.plan.suites import read_words
from deepbench.results.summary import process_time_s

TIMEOUT_S = 120.0

# A call that does nothing costs what the harness adds to every call.
NULL_CASE = "gemm m=1 n=1 k=1 a_t=0 b_t=0 forward f32 null threads=1"


def measure_selftest(machine: Mapping[str, Any], heats: int, progress: Progress) -> selftest.Findings:
    """Measure the suite `selftest` in so many heats of two processes; `BadInput` where nothing can be measured."""
    cases = [p.case for p in expand(read_words(["selftest"]), Choices(), describe.default_threads())]
    times: dict[str, list[float]] = {case.text: [] for case in cases}
    ratios: dict[str, list[float]] = {case.text: [] for case in cases}
    failure, begin = "", time.monotonic()
    planned = [(n, case) for n in range(1, heats + 1) for case in random.sample(cases, len(cases))]
    for done, (number, case) in enumerate(planned):
        left_s = (time.monotonic() - begin) / done * (len(planned) - done) if done else None
        progress(Step(f"heat {number}  {case.text}", done, len(planned), left_s))
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
    cores = selftest.core_block_times(describe.cores())
    fastest = min((min(blocks) for blocks in cores.values()), default=1.0)
    null = measure_case(parse_case(NULL_CASE), 1, DEFAULT.rules, TIMEOUT_S)
    earlier = [selftest.times_of(line) for line in remembered.remembered(machine, "selftest")]
    return selftest.Findings(
        times,
        [selftest.sensitivity(text, selftest.two_runs(values), compare.MARGIN) for text, values in times.items()],
        [selftest.sensitivity(text, selftest.in_heats(values), compare.MARGIN) for text, values in ratios.items()],
        process_time_s(null),
        "compiled" if callloop.native_library() else "Python",
        selftest.clock_cost_s(),
        {cpu: selftest.jitter(blocks) for cpu, blocks in cores.items()},
        {cpu: min(blocks) / fastest for cpu, blocks in cores.items()},
        cold.prove(machine, {}),
        selftest.between_sessions([*filter(None, earlier), times]),
    )
