"""`deepbench published`: results that the original DeepBench published."""

from __future__ import annotations

import click

from deepbench.cli.console import make_console, print_head, print_table
from deepbench.cli.options import form_options
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import print_for_programs


@cli.group(context_settings=HELP, short_help="Show what the original DeepBench published.")
def published() -> None:
    """Results that Baidu's DeepBench published from 2016 to 2019: 18 workbooks, 10,729 numbers.

    \b
    Examples:
      deepbench published list
      deepbench published show V100 --op gemm
      deepbench compare mine.jsonl V100
    """


@published.command("list", context_settings=HELP)
@form_options
def list_machines(form: str | None) -> None:
    """List the machines, newest first."""
    from deepbench.api.published import published_machines

    print_table(published_machines(), form)


@published.command("show", short_help="Print the results of a machine.", context_settings=HELP)
@click.argument("machine", metavar="MACHINE")
@click.option("--op", metavar="OP", help="Only this operation.")
@click.option("--precision", metavar="WORD", help="Only this precision: f32, f16 or i8.")
@form_options
def show_machine(machine: str, op: str | None, precision: str | None, form: str | None) -> None:
    """Print the results of a machine, with rates computed from the times, and the published rate where it differs."""
    from deepbench.api.published import published as results_of

    results = results_of(machine, op=op, precision=precision)
    report = results.report(full=True)
    if form is not None:
        print_for_programs(report.text(form))
    else:
        console = make_console(to_read=True)
        print_head(console, results)
        report.print(console)
