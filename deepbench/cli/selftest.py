"""`deepbench selftest`: how reliable comparisons on this machine are."""

from __future__ import annotations

import click

from deepbench.cli.console import make_console, print_machine, print_text, progress_bar
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import go_on_without_output


@cli.command(context_settings=HELP, short_help="Measure how reliable comparisons on this machine are.")
@click.option("--quick", is_flag=True, help="7 heats per case instead of 12.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def selftest(quick: bool, as_json: bool) -> None:
    """Measure how often a comparison on this machine errs, and the smallest change that it detects.

    Takes two minutes (--quick: one). The result is remembered; compare uses it to widen its confidence intervals.
    """
    from deepbench.api.machine import describe_machine
    from deepbench.api.measuring import selftest as measure_selftest
    from deepbench.api.measuring import selftest_report

    console = make_console(quiet=as_json)
    go_on_without_output("the findings are remembered all the same")
    print_machine(console, describe_machine())
    with progress_bar(console) as bar:
        findings, path = measure_selftest(quick=quick, progress=bar)
    report = selftest_report(findings)
    if as_json:
        print_text(report, "json")
        return
    console.print()
    report.print(console)
    where = f"saved in {path}" if path else "could not be saved; set DEEPBENCH_STATE to a folder that can be written"
    console.print(where, markup=False, soft_wrap=True)
