"""`deepbench report`: a page of one or more result files."""

from __future__ import annotations

import click

from deepbench.cli.console import warn_of_gaps
from deepbench.cli.options import price_option, prices_of, skip_damaged_option
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import say


@cli.command(context_settings=HELP)
@click.argument("files", metavar="FILE_OR_MACHINE...", nargs=-1, required=True)
@click.option("--against", multiple=True, metavar="MACHINE", help="Also compare with a published machine. Repeatable.")
@click.option(
    "--network", "networks", multiple=True, metavar="SUITE", help="Draw the step of a traced network. Repeatable."
)
@click.option("--output", "-o", metavar="FILE", default="report.html", help="The page (default: report.html).")
@click.option("--title", metavar="TEXT", help="The heading of the page.")
@click.option("--application", metavar="A", help="The application that the page shows at first: speech, for example.")
@price_option
@skip_damaged_option
def report(
    files: tuple[str, ...],
    against: tuple[str, ...],
    networks: tuple[str, ...],
    output: str,
    title: str | None,
    application: str | None,
    prices: tuple[str, ...],
    skip_damaged: bool,
) -> None:
    """Write a page of one or more result files. It needs no other file and no network.

    The first file is compared with each of the others. A machine is one whose results the original DeepBench
    published: see deepbench published list. A reader can change the application and the prices.

    With models and GPUs, the page says which GPU is the best for a model, from published kernel times.

    \b
    Examples:
      deepbench report deepbench-20261121-113000.jsonl -o report.html
      deepbench report old.jsonl new.jsonl V100 "Xeon Phi"
      deepbench report a.jsonl b.jsonl --application speech --price a=2.5/h
      deepbench report kernels.jsonl --network my.suite
      deepbench report llm/llama31_70b h100_sxm l40s --price l40s=0.8/h -o g.html
    """
    from deepbench.api.pages import report as write_report

    read = write_report(
        files,
        output,
        against=against,
        networks=networks,
        title=title,
        application=application,
        prices=prices_of(prices, files[0]),
        skip_damaged=skip_damaged,
        progress=True,
    )
    for results in read:
        warn_of_gaps(results)
    say(f"wrote {output}")
