"""`deepbench selftest`: what comparisons on this machine are worth."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from deepbench.cli.printing import make_console, print_machine, steps_bar
from deepbench.cli.root import HELP, cli, interruptible
from deepbench.core.errors import BadInput

if TYPE_CHECKING:
    from deepbench.judge.selftest import ColdProof, Findings

# Processes of each case: enough to deal out two sides of five in many ways.
MANY, FEW = 24, 12


@cli.command(context_settings=HELP)
@click.option("--quick", is_flag=True, help=f"{FEW} processes a case instead of {MANY}.")
@click.option("--json", "as_json", is_flag=True, help="Everything, for programs.")
def selftest(quick: bool, as_json: bool) -> None:
    """How often would a comparison on this machine err, and what is the smallest change it would find?

    Takes two minutes (--quick: one). What it finds is kept, and makes the intervals of `compare` honest.
    """
    from deepbench.core import units
    from deepbench.machine import describe, remembered
    from deepbench.report import selftest as report
    from deepbench.report.views import View

    machine = describe.describe_machine()
    console = make_console(quiet=as_json)
    print_machine(console, machine)
    with interruptible():
        found = _findings(console, machine, FEW if quick else MANY)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    kept = remembered.remember(machine, "selftest", found.as_line(at))
    rows = report.table(found)
    if as_json:
        content = {"page": report.page(found), "cases": rows, "cold": found.cold, "between": found.between_sessions}
        print(
            json.dumps({**content, "cores": {str(k): v for k, v in found.cores.items()}}, ensure_ascii=False, indent=1)
        )
        return
    console.print()
    for line in report.page(found):
        console.print(line, markup=False, soft_wrap=True)
    console.print()
    share: Callable[[Any], str] = lambda v: units.percent(v, 1)  # noqa: E731
    columns: dict[str, Callable[[Any], str]] = {
        "case": str,
        "time": units.seconds,
        "spread": share,
        "false alarms": share,
        "finds": lambda v: f"+{share(v)}",
        "false alarms in turn": share,
        "finds in turn": lambda v: f"+{share(v)}",
    }
    notes = [
        "spread: how far the faster half of the processes lies apart; finds: the smallest change found 9 times of 10."
    ]
    view = View(columns, rows, notes)
    console.print(view.table(), soft_wrap=not console.is_terminal)
    console.print(notes[0], markup=False)
    console.print(f"kept in {kept}" if kept else "could not be kept: see DEEPBENCH_STATE", markup=False, soft_wrap=True)


def _findings(console: Any, machine: dict[str, Any], processes: int) -> Findings:
    from deepbench.core.case import parse_case
    from deepbench.judge import compare
    from deepbench.judge import selftest as selftests
    from deepbench.machine import describe, remembered
    from deepbench.measure.parent import measure_case
    from deepbench.native import callloop
    from deepbench.plan.cases import Choices, expand
    from deepbench.plan.modes import DEFAULT
    from deepbench.plan.suites import read_words
    from deepbench.results import summary

    chosen = [p.case for p in expand(read_words(["selftest"]), Choices(), describe.default_threads())]
    times: dict[str, list[float]] = {c.text: [] for c in chosen}
    why = ""
    with steps_bar(console, processes * len(chosen)) as step:
        done = 0
        for number in range(1, processes + 1):
            for case in random.sample(chosen, len(chosen)):
                record = measure_case(case, number, DEFAULT.rules, 120.0)
                if record["status"] == "ok":
                    times[case.text].append(summary.process_time_s(record))
                else:
                    why = f"{case.text}: {record['status']}, {record['reason']}"
                done += 1
                step(f"round {number}  {case.text}", processes * len(chosen))
    times = {text: values for text, values in times.items() if len(values) >= 2 * selftests.PROCESSES}
    if not times:
        raise BadInput(f"nothing could be measured ({why}); see deepbench info")
    cores = selftests.core_block_times(describe.cores())
    fastest = min(min(v) for v in cores.values()) if cores else 1.0
    null = measure_case(parse_case(NULL_CASE), 1, DEFAULT.rules, 60.0)
    margin = compare.MARGIN
    lines = remembered.remembered(machine, "selftest")
    earlier = [found for line in lines if (found := selftests.times_of(line))]
    return selftests.Findings(
        times,
        [selftests.sensitivity(text, values, False, margin) for text, values in times.items()],
        [selftests.sensitivity(text, values, True, margin) for text, values in times.items()],
        summary.process_time_s(null),
        "compiled" if callloop.native_library() else "Python",
        selftests.clock_cost_s(),
        {cpu: selftests.jitter(blocks) for cpu, blocks in cores.items()},
        {cpu: min(blocks) / fastest for cpu, blocks in cores.items()},
        prove_cold(machine),
        selftests.between_sessions([*earlier, times]),
    )


NULL_CASE = "gemm m=1 n=1 k=1 a_t=0 b_t=0 forward f32 null threads=1"

# A matrix times a vector on the first of these that is here.
COLD_LIBRARIES = ("openblas", "onednn", "mkl")


def prove_cold(machine: dict[str, Any]) -> ColdProof | None:
    """Measure whether cold is cold, and remember it; None where nothing can measure it."""
    from deepbench.core import stats
    from deepbench.core.case import parse_case
    from deepbench.judge import selftest as selftests
    from deepbench.machine import describe, remembered
    from deepbench.measure.parent import measure_case, open_backend
    from deepbench.plan.modes import DEFAULT
    from deepbench.results import summary

    threads = describe.default_threads()
    library = next((n for n in COLD_LIBRARIES if "library" in open_backend(n, 60.0)), None)
    if library is None:
        return None

    def rate(size: int, setting: str) -> float | None:
        side = round((size / 4) ** 0.5)
        words = "" if setting == "hot" else f" cache={setting}"
        case = parse_case(f"gemm m={side} n=1 k={side} a_t=0 b_t=0 forward f32 {library} threads={threads}{words}")
        found = []
        for number in (1, 2, 3):
            record = measure_case(case, number, DEFAULT.rules, 120.0)
            if record["status"] != "ok":
                return None
            found.append(summary.process_time_s(record))
        return float(record["traffic_bytes"] / stats.lower_quartile(found))

    found = selftests.cold_proof(rate, describe.cache_bytes() or selftests.GUESSED_CACHE_BYTES)
    if found is not None:
        remembered.remember(machine, "cold", {"at": datetime.now(UTC).isoformat(timespec="seconds"), **found})
    return found
