"""`deepbench history`: each case of many files over time, and when it became slower or faster."""

from __future__ import annotations

from typing import Any

import click

from deepbench.cli.console import print_text, progress_bar
from deepbench.cli.options import (
    choosing_options,
    comma_list,
    form_options,
    settings_of,
    share,
    skip_damaged_option,
)
from deepbench.cli.root import EXIT_WRONG, HELP, cli
from deepbench.cli.streams import say, warn

# Reasons that are printed; the others are counted.
MOST_LEFT_OUT = 10


@cli.command(context_settings=HELP, short_help="Show each case over time, and when it became slower.")
@click.argument("sources", metavar="FOLDER...", nargs=-1, required=True)
@choosing_options(
    *("--op", "--backend", "--precision", "--direction", "--application", "--threads", "--ranks", "--set", "--device"),
    backend="Only these libraries.",
    precision="Only these precisions.",
    direction="Only these directions.",
    application="Only cases of these applications.",
    threads="Only these numbers of threads.",
    ranks="Only groups of this many ranks.",
    set="Only cases with this setting, such as beta=0.",
    device="Only this device, such as cuda.",
)
@click.option("--host", "hosts", multiple=True, metavar="NAME", callback=comma_list, help="Only these hosts: node*.")
@click.option("--since", metavar="DATE", help="Only runs that began then or later, such as 2026-03-01.")
@click.option("--ignore-host", is_flag=True, help="Hosts of one kind are one machine: for runners whose names change.")
@click.option("--margin", metavar="P", help="Ignore changes below P (default 2%).")
@click.option("--full", is_flag=True, help="List all machines and cases, also those that did not change.")
@click.option("--page", "--output", "-o", "page", metavar="FILE", help="Write a page with a chart per case.")
@click.option("--title", metavar="TEXT", help="The heading of the page.")
@skip_damaged_option
@form_options
def history(
    sources: tuple[str, ...],
    hosts: tuple[str, ...],
    since: str | None,
    ignore_host: bool,
    margin: str | None,
    full: bool,
    page: str | None,
    title: str | None,
    skip_damaged: bool,
    form: str | None,
    **filters: Any,
) -> int:
    """Show each case of the result files in FOLDER over time, and the points at which it became slower or faster.

    Files of kernels and of fleets count, each machine by itself. Exit code 1 when a file could not be read: the others
    are shown.

    \b
    Examples:
      deepbench history nightly
      deepbench history nightly --op conv --since 2026-03-01 -o history.html
      deepbench history checks --host node07 --full
    """
    from deepbench.api.filters import thread_count, whole_number
    from deepbench.api.history import history as read

    with progress_bar() as bar:
        found = read(
            sources,
            ops=filters["op"] or None,
            backends=filters["backend"] or None,
            precisions=filters["precision"] or None,
            directions=filters["direction"] or None,
            applications=filters["application"] or None,
            threads=[thread_count(n) for n in filters["threads"]] or None,
            ranks=[whole_number("ranks", n) for n in filters["ranks"]] or None,
            device=filters["device"],
            settings=settings_of(filters["set"]),
            hosts=hosts or None,
            since=since,
            ignore_host=ignore_host,
            margin=None if margin is None else share("--margin", margin),
            skip_damaged=skip_damaged,
            progress=bar,
        )
    reasons = [*found.refused, *found.left_out]
    for reason in reasons[:MOST_LEFT_OUT]:
        warn(f"left out: {reason}")
    if len(reasons) > MOST_LEFT_OUT:
        warn(f"left out: {len(reasons) - MOST_LEFT_OUT} more files; --json has all reasons")
    if page is not None:
        found.write_page(page, title)
    print_text(found.report(full), form)
    if page is not None and form is None:
        say(f"wrote {page}")
    return EXIT_WRONG if found.refused else 0
