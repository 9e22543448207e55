"""`deepbench roofline`: what this machine can do at most."""

from __future__ import annotations

import json
from typing import Any

import click

from deepbench.cli.choose import comma_list
from deepbench.cli.printing import make_console, print_machine, steps_bar
from deepbench.cli.root import HELP, cli, interruptible
from deepbench.cli.run import limits_of, open_backends


@cli.command(context_settings=HELP)
@click.option("--threads", multiple=True, metavar="N", callback=comma_list, help="Default: 1 and all cores.")
@click.option("--quick", is_flag=True, help="Fewer sizes, one process each.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def roofline(threads: tuple[str, ...], quick: bool, as_json: bool) -> None:
    """Measure the roofs: FLOP/s of each precision, bytes a second of each level of memory, the least a call takes.

    Takes some minutes (--quick: one). What it finds is kept, and used by every run on this machine.
    """
    from deepbench.core.backend import all_backends, find_backend
    from deepbench.core.case import Case, thread_count
    from deepbench.core.precision import PRECISIONS
    from deepbench.judge import limits
    from deepbench.judge.roof import probe_cases
    from deepbench.machine import describe, remembered
    from deepbench.measure.parent import measure_case
    from deepbench.plan.modes import DEFAULT, QUICK
    from deepbench.report import limits as report

    machine = describe.describe_machine()
    counts = [thread_count(t) for t in threads] or sorted({1, describe.default_threads()})
    names = [n for n, b in all_backends().items() if b.default and b.device == "cpu"]
    lone = [n for n in names if not find_backend(n).is_group]
    opened = open_backends(lone)
    here = [n for n in lone if "library" in opened[n]]
    console = make_console(quiet=as_json)
    print_machine(console, machine)
    rules, rounds = (QUICK.rules, 1) if quick else (DEFAULT.rules, 3)
    wanted: list[Case] = []
    for count in counts:
        for name in PRECISIONS:
            wanted += [c for c in probe_cases(name, "cpu", count, here) if c.backend != "loops"]
        wanted += [limits.floor_case(n, count) for n in here if find_backend(n).supports("gemm", "f32", "forward")]
        if "loops" in here:
            wanted += [limits.memory_case("read", size, count) for size in (limits.COARSE if quick else limits.FINE)]
            wanted += [limits.memory_case(kind, limits.FINE[-1], count) for kind in ("copy", "triad")]
    lines: list[dict[str, Any]] = []
    with interruptible(), steps_bar(console, rounds * len(wanted)) as step:
        done = 0
        for number in range(1, rounds + 1):
            for case in wanted:
                record = measure_case(case, number, rules, 120.0)
                line = limits.line_of(record) if _is_limit(case) else limits.peak_of(record)
                if line is not None:
                    lines.append(line)
                    remembered.remember(machine, "limits" if _is_limit(case) else "peaks", line)
                done += 1
                step(case.text, rounds * len(wanted))
    earlier = limits_of(machine)
    known = limits.Limits(
        limits.best([line for line in lines + earlier if line.get("kind", "read") == "read"]), (), (), machine
    )
    peaks = limits.best_peaks([*lines, *earlier])
    views = {
        "compute": report.peaks(peaks, counts),
        "memory": report.memory(known, counts, machine),
        "calls": report.calls(lines, counts),
    }
    if as_json:
        print(json.dumps({name: view.rows for name, view in views.items()}, ensure_ascii=False, indent=1))
        return
    for view in views.values():
        if view.rows:
            console.print()
            console.print(view.table(), soft_wrap=not console.is_terminal)
            for note in view.notes:
                console.print(note, markup=False, soft_wrap=True)


def _is_limit(case: Any) -> bool:
    """Whether it tells a limit of memory or of calls, rather than a peak of arithmetic."""
    return bool(case.op == "memory" or (case.op == "gemm" and case.problem.m == case.problem.n == case.problem.k == 1))
