"""`deepbench scale`: predict all-reduce of larger groups."""

from __future__ import annotations

import click

from deepbench.cli.console import print_table
from deepbench.cli.options import comma_list, form_options
from deepbench.cli.root import HELP, cli
from deepbench.core.errors import BadInput


@cli.command(context_settings=HELP, short_help="Predict all-reduce for larger groups.")
@click.argument("file", metavar="FILE")
@click.option("--ranks", multiple=True, metavar="N", callback=comma_list, help="Group sizes to predict. Repeatable.")
@form_options
def scale(file: str, ranks: tuple[str, ...], form: str | None) -> None:
    """Predict the time of all-reduce for larger groups, from a file with several sizes at two or more group sizes.

    \b
    Example: deepbench scale deepbench-20261121-113000.jsonl --ranks 64,1024
    """
    from deepbench.api import load
    from deepbench.core.case import whole_number
    from deepbench.report import groups

    wanted = [whole_number("--ranks", n) for n in ranks] or groups.DEFAULT_RANKS
    if not all(2 <= n <= 10**6 for n in wanted):
        raise BadInput("--ranks must be from 2 to 1000000")
    table = groups.scaled(load(file).summaries, wanted)
    if not table.rows:
        raise BadInput(f"{file} gives no model: {table.notes[0]}")
    print_table(table, form)
