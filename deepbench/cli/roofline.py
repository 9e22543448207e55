"""`deepbench roofline`: what this machine can do at most."""

from __future__ import annotations

import json

import click

from deepbench.cli.choose import comma_list
from deepbench.cli.printing import make_console, print_machine, steps_bar
from deepbench.cli.root import HELP, cli, interruptible
from deepbench.cli.run import open_backends


@cli.command(context_settings=HELP)
@click.option("--threads", multiple=True, metavar="N", callback=comma_list, help="Default: 1 and all cores.")
@click.option("--quick", is_flag=True, help="Fewer sizes, one process each.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def roofline(threads: tuple[str, ...], quick: bool, as_json: bool) -> None:
    """Measure the limits: peak FLOP/s of each precision, bandwidth of each level of memory, shortest call.

    Takes some minutes (--quick: one). What it finds is kept, and used by every run on this machine.
    """
    from deepbench.core.backend import all_backends, find_backend
    from deepbench.core.case import thread_count
    from deepbench.judge import limits
    from deepbench.machine import describe
    from deepbench.measure.parent import measure_case
    from deepbench.plan.modes import DEFAULT, QUICK
    from deepbench.report import limits as report
    from deepbench.results.record import Limit

    machine = describe.describe_machine()
    counts = [thread_count(t) for t in threads] or sorted({1, describe.default_threads()})
    names = [n for n, b in all_backends().items() if b.default and b.device == "cpu"]
    lone = [n for n in names if not find_backend(n).is_group]
    opened = open_backends(lone)
    here = [n for n in lone if "library" in opened[n]]
    console = make_console(quiet=as_json)
    print_machine(console, machine)
    rules, rounds = (QUICK.rules, 1) if quick else (DEFAULT.rules, 3)
    probes = limits.all_probes(counts, here, limits.COARSE if quick else limits.FINE)
    steps = rounds * sum(len(probe.cases) for probe in probes)
    lines: list[Limit] = []
    with interruptible(), steps_bar(console, steps) as step:
        for number in range(1, rounds + 1):
            for probe in probes:
                for case in probe.cases:
                    line = probe.limit(measure_case(case, number, rules, 120.0))
                    if line is not None:
                        lines.append(line)
                        limits.remember(machine, line)
                    step(case.text, steps)
    views = report.tables([*lines, *limits.recall(machine)], counts, machine)
    if as_json:
        print(json.dumps({name: view.rows for name, view in views.items()}, ensure_ascii=False, indent=1))
        return
    for view in views.values():
        if view.rows:
            console.print()
            view.print(console)
