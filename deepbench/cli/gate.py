"""`deepbench gate`: is anything slower than before? For CI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from deepbench.api.text import BadInput, replacing, require_no_results
from deepbench.cli.options import is_trusted, metric_option, print_libraries, share, skip_damaged_option
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import say, warn


@cli.command(context_settings=HELP, short_help="Fail if any case is slower in B than in A.")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--margin", metavar="P", help="Ignore slowdowns below P (default 5%, of another metric 15%).")
@metric_option
@click.option("--rerun", is_flag=True, help="Measure cases that look slower again, and judge them by that alone.")
@click.option("--trust", metavar="A", help="With --rerun: load the libraries whose paths A names.")
@click.option("--unchecked", is_flag=True, help="Also compare times whose results were not checked.")
@skip_damaged_option
@click.option("--junit", metavar="FILE", help="Write JUnit XML for a CI system.")
@click.option("--markdown", metavar="FILE", help="Write a summary for a pull request.")
def gate(
    first: str,
    second: str,
    margin: str | None,
    metric: str,
    rerun: bool,
    trust: str | None,
    unchecked: bool,
    skip_damaged: bool,
    junit: str | None,
    markdown: str | None,
) -> int:
    """Fail if any case is slower in B than in A. Exit code 0: no regression; 1: regression; 2: undecided.

    \b
    Examples:
      deepbench gate main.jsonl branch.jsonl --junit gate.xml
      deepbench gate main.jsonl branch.jsonl --rerun --trust main.jsonl
    """
    from deepbench.api.comparing import gate as judge
    from deepbench.api.measuring import LoadWatch
    from deepbench.cli.console import load_text, make_console, print_lines_and_tables

    for output in filter(None, (junit, markdown)):
        require_no_results(Path(output))  # now, and not after measuring again
    if trust is not None and not rerun:
        raise BadInput("--trust A belongs to --rerun: without it, no library is loaded")
    allowed = share("--margin", margin) if margin else None
    trusted, watch = is_trusted(first, trust), LoadWatch()

    def announce(cases: Sequence[str]) -> None:
        say(f"measuring {len(cases)} flagged case{'s' if len(cases) > 1 else ''} again")
        if busy := load_text(watch):
            say(f"busy: {busy}")

    found = judge(
        first,
        second,
        margin=allowed,
        metric=metric,
        rerun=rerun,
        trusted=trusted,
        unchecked=unchecked,
        skip_damaged=skip_damaged,
        on_rerun=announce,
        on_load=print_libraries,
    )
    for gap in found.gaps:
        warn(gap)
    print_lines_and_tables(found.parts(), make_console(to_read=True))
    for path, text in ((junit, found.junit), (markdown, found.markdown)):
        if path is not None:
            with replacing(Path(path)) as draft:
                draft.write_text(text(), encoding="utf-8", errors="replace")
    return found.outcome.exit_code
