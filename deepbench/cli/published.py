"""`deepbench published`: results that the original DeepBench published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deepbench.cli.console import print_json, print_report, print_table
from deepbench.cli.options import form_options
from deepbench.cli.root import HELP, cli
from deepbench.core.aliases import did_you_mean
from deepbench.core.errors import BadInput

if TYPE_CHECKING:
    from deepbench.results.summary import Summary


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
    from deepbench.reporting import published as tables

    print_table(tables.machines(), form)


@published.command("show", short_help="Print the results of a machine.", context_settings=HELP)
@click.argument("machine", metavar="MACHINE")
@click.option("--op", metavar="OP", help="Only this operation.")
@click.option("--precision", metavar="WORD", help="Only float32, float16_mixed, float16_storage or int8.")
@form_options
def show_machine(machine: str, op: str | None, precision: str | None, form: str | None) -> None:
    """Print the results of a machine, with rates computed from the times, and the published rate where it differs."""
    from deepbench.reporting import published as tables
    from deepbench.results import published as data

    name = data.find(machine)
    table = tables.of_machine(name, op, precision)
    if not table.rows:
        known = sorted({(r.op, r.precision) for r in data.results() if r.machine == name})
        has = ", ".join(f"{o} {p}" for o, p in known)
        raise BadInput(
            f"{name} has no result of {op or 'any operation'} in {precision or 'any precision'}; it has {has}"
            + did_you_mean(op or "", {o for o, _ in known})
        )
    print_table(table, form)


def compare_with(file: str, summaries: list[Summary], machine: str, form: str | None) -> None:
    """Print the results of a file next to those of a published machine."""
    from deepbench.reporting import published as tables
    from deepbench.results import published as data

    matches = data.match(summaries, machine)
    if not matches:
        suites = sorted({r.suite for r in data.results() if r.machine == machine})
        raise BadInput(f"{file} has no measured case that {machine} has; run {' or '.join(suites)} first")
    if form == "json":
        print_json(tables.to_json(matches, machine))
    else:
        print_report(tables.parts(matches, machine, file), form)


def compare_with_all(file: str, summaries: list[Summary], form: str | None) -> None:
    """Print the results of a file next to those of all published machines."""
    from deepbench.reporting import published as tables

    table = tables.among_all(summaries)
    if not table.rows:
        raise BadInput(
            f"{file} has no measured case that a published machine has; run deepbench/train or deepbench/server"
        )
    print_table(table, form)
