"""`deepbench site`: a website of many result files."""

from __future__ import annotations

from pathlib import Path

import click

from deepbench.cli.console import make_console, progress_bar
from deepbench.cli.options import skip_damaged_option
from deepbench.cli.root import EXIT_WRONG, HELP, cli
from deepbench.cli.streams import say, warn


@cli.command(context_settings=HELP)
@click.argument("folder", metavar="DIR")
@click.option("--output", "-o", metavar="DIR", required=True, help="A new folder, or that of an earlier build.")
@click.option("--no-published", is_flag=True, help="Leave out the machines that the original DeepBench published.")
@click.option("--history", metavar="DIR", help="Also a page about each case over time, from the files of this folder.")
@skip_damaged_option
def site(folder: str, output: str, no_published: bool, history: str | None, skip_damaged: bool) -> int:
    """Build a static results site from a folder of result files. Only what has changed is built again.

    Exit code 1 when a file could not be read: the site has the others.

    \b
    Example: deepbench site results -o public --history nightly
    """
    from deepbench.api.pages import site as build_site

    with progress_bar(make_console()) as bar:
        built = build_site(
            folder,
            output,
            published=not no_published,
            history=history,
            skip_damaged=skip_damaged,
            progress=bar,
        )
    for text in built.damaged:
        warn(text)
    for reason in built.refused:
        warn(f"left out: {reason}")
    say(
        f"wrote {output}: {built.machines} machines ({len(built.fresh)} rebuilt, {len(built.removed)} removed), "
        f"{built.families} families of problems ({built.written} rebuilt); open {Path(output) / 'index.html'}"
    )
    return EXIT_WRONG if built.refused else 0
