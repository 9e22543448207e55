"""`deepbench selftest`: how reliable comparisons on this machine are."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from deepbench.cli.console import make_console, print_json, print_machine
from deepbench.cli.interrupts import interruptible
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import go_on_without_output

# Heats per case, of two processes each: enough to draw sides of five in many ways.
MANY, FEW = 12, 7


@cli.command(context_settings=HELP, short_help="Measure how reliable comparisons on this machine are.")
@click.option("--quick", is_flag=True, help=f"{FEW} heats per case instead of {MANY}.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def selftest(quick: bool, as_json: bool) -> None:
    """Measure how often a comparison on this machine errs, and the smallest change that it detects.

    Takes two minutes (--quick: one). The result is remembered; compare uses it to widen its confidence intervals.
    """
    from deepbench.machine import describe, remembered
    from deepbench.measuring.selftest import measure_selftest
    from deepbench.reporting import selftest as tables
    from deepbench.reporting.progress import Bar
    from deepbench.reporting.table import print_parts

    machine = describe.describe_machine()
    console = make_console(quiet=as_json)
    go_on_without_output("the findings are remembered all the same")
    print_machine(console, machine)
    with interruptible(), Bar(console) as bar:
        findings = measure_selftest(machine, FEW if quick else MANY, bar)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    path = remembered.remember(machine, "selftest", findings.as_line(now))
    table = tables.table(findings)
    if as_json:
        content = {
            "page": tables.page(findings),
            "cases": table.rows,
            "cold": findings.cold,
            "between": findings.between_sessions,
            "cores": {str(cpu): values for cpu, values in findings.cores.items()},
        }
        print_json(content)
        return
    console.print()
    print_parts([tables.page(findings), table], console)
    where = f"saved in {path}" if path else "could not be saved; set DEEPBENCH_STATE to a folder that can be written"
    console.print(where, markup=False, soft_wrap=True)
