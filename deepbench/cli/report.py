"""`deepbench report`: a page of one or more result files."""

from __future__ import annotations

import click

from deepbench.cli.console import warn_of_gaps
from deepbench.cli.options import skip_damaged_option
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import say


@cli.command(context_settings=HELP)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--against", multiple=True, metavar="MACHINE", help="Also compare with a published machine. Repeatable.")
@click.option(
    "--network", "networks", multiple=True, metavar="SUITE", help="Draw the step of a traced network. Repeatable."
)
@click.option("--output", "-o", metavar="FILE", default="report.html", help="The page (default: report.html).")
@click.option("--title", metavar="TEXT", help="The heading of the page.")
@skip_damaged_option
def report(
    files: tuple[str, ...],
    against: tuple[str, ...],
    networks: tuple[str, ...],
    output: str,
    title: str | None,
    skip_damaged: bool,
) -> None:
    """Write a page of one or more result files. It needs no other file and no network.

    The first file is compared with each of the others.

    \b
    Examples:
      deepbench report deepbench-20261121-113000.jsonl -o report.html
      deepbench report new.jsonl --against V100 --against "Xeon Phi"
      deepbench report kernels.jsonl --network my.suite
    """
    from deepbench.api.pages import report as write_report

    read = write_report(files, output, against=against, networks=networks, title=title, skip_damaged=skip_damaged)
    for results in read:
        warn_of_gaps(results)
    say(f"wrote {output}")
