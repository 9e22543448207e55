"""`deepbench reference`: what the original DeepBench published."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from deepbench.cli.printing import make_console, print_view
from deepbench.cli.root import HELP, cli, end_with_the_reader
from deepbench.core.errors import BadInput

if TYPE_CHECKING:
    from deepbench.results.summary import Summary

FORMS = (
    click.option("--json", "form", flag_value="json", help="For programs."),
    click.option("--csv", "form", flag_value="csv", help="For spreadsheets."),
    click.option("--markdown", "form", flag_value="markdown", help="To paste into a page."),
)


@cli.group(context_settings=HELP)
def reference() -> None:
    """Results that Baidu's DeepBench published from 2016 to 2019: 18 workbooks, 10,729 numbers.

    \b
    Examples:
      deepbench reference list
      deepbench reference show V100 --op gemm
      deepbench compare mine.jsonl V100
    """


@reference.command("list", context_settings=HELP)
@FORMS[0]
@FORMS[1]
@FORMS[2]
def list_machines(form: str | None) -> None:
    """The machines, the newest first."""
    from deepbench.report import published as report

    end_with_the_reader()
    print_view(report.machines(), form)


@reference.command("show", context_settings=HELP)
@click.argument("machine", metavar="MACHINE")
@click.option("--op", metavar="OP", help="One op only.")
@click.option("--precision", metavar="WORD", help="float32, float16_mixed, float16_storage or int8 only.")
@FORMS[0]
@FORMS[1]
@FORMS[2]
def show_machine(machine: str, op: str | None, precision: str | None, form: str | None) -> None:
    """The results of a machine, each with the rate of its time, and the sheet's own where it is another."""
    from deepbench.report import published as report
    from deepbench.results import published

    end_with_the_reader()
    name = published.find(machine)
    view = report.of_machine(name, op, precision)
    if not view.rows:
        known = sorted({(r.op, r.precision) for r in published.results() if r.machine == name})
        has = ", ".join(f"{o} {p}" for o, p in known)
        raise BadInput(f"{name} has no result of {op or 'any op'} in {precision or 'any precision'}; it has {has}")
    print_view(view, form)


def compare_with(file: str, summaries: list[Summary], machine: str, form: str | None) -> None:
    """Ours beside a published machine: what differs, means, cases."""
    from deepbench.report import published as report
    from deepbench.results import published

    found = published.match(summaries, machine)
    if not found:
        suites = sorted({r.suite for r in published.results() if r.machine == machine})
        raise BadInput(f"{file} has no measured case that {machine} has; run {' or '.join(suites)} first")
    if form == "json":
        print(json.dumps(report.to_json(found, machine), ensure_ascii=False, indent=1))
        return
    if form == "csv":
        print_view(report.matched(found), form)
        return
    if form == "markdown":
        print(report.to_markdown(found, machine, file), end="")
        return
    report.print_matches(found, machine, file, make_console())


def compare_with_all(file: str, summaries: list[Summary], form: str | None) -> None:
    """Ours among all published machines."""
    from deepbench.report import published as report

    view = report.among_all(summaries)
    if not view.rows:
        raise BadInput(
            f"{file} has no measured case that a published machine has; run deepbench/train or deepbench/server"
        )
    print_view(view, form)
