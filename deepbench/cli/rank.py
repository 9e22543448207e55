"""`deepbench rank`: which machine for which application."""

from __future__ import annotations

import click

from deepbench.cli.console import print_text, warn_of_gaps
from deepbench.cli.options import comma_list, form_options, price_option, prices_of, skip_damaged_option
from deepbench.cli.root import HELP, cli


@cli.command(context_settings=HELP, short_help="Say which machine serves an application best.")
@click.argument("names", metavar="FILE_OR_MACHINE...", nargs=-1, required=True)
@click.option("--application", metavar="A", help='Rank by this application: "Speech Recognition" or speech.')
@price_option
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    metavar="P",
    callback=comma_list,
    help="Only these precisions, such as bf16; 8, 16 or 32 bits; or all (default: all that meet DeepBench's minimum).",
)
@skip_damaged_option
@form_options
def rank(
    names: tuple[str, ...],
    application: str | None,
    prices: tuple[str, ...],
    precisions: tuple[str, ...],
    skip_damaged: bool,
    form: str | None,
) -> None:
    """Rank machines by the time of an application, or by its cost where prices are given, and say how certain it is.

    A machine is a result file, or one whose results the original DeepBench published: see deepbench published list.
    Without an application: a table of all applications and machines.

    \b
    Examples:
      deepbench rank old.jsonl new.jsonl V100
      deepbench rank a.jsonl b.jsonl --application "Speech Recognition"
      deepbench rank a.jsonl b.jsonl --price a=2.5/h --price b=1.9/h
      deepbench rank a.jsonl b.jsonl --precision 16
    """
    from deepbench.api.comparing import rank as rank_machines

    found = rank_machines(
        *names,
        application=application,
        prices=prices_of(prices, names[0]),
        precisions=precisions,
        skip_damaged=skip_damaged,
    )
    for results in found.files:
        warn_of_gaps(results)
    print_text(found.report(), form)
