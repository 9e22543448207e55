"""`deepbench export`: results in the formats of other programs."""

from __future__ import annotations

import click

from deepbench.api.text import count
from deepbench.cli.options import skip_damaged_option
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import print_for_programs, say, warn

# Lines about what was left out.
MOST_LEFT_OUT = 20


@cli.command(context_settings=HELP, short_help="Write results for other programs.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--to",
    metavar="FORMAT",
    required=True,
    help="pytorch-hud, bencher, github-action-benchmark, otava, openmetrics or flashinfer-trace.",
)
@click.option(
    "--output",
    "-o",
    metavar="OUT",
    help="The file (default: standard output). otava writes OUT.csv and OUT.yaml, flashinfer-trace a folder.",
)
@click.option("--commit", metavar="SHA", help="The commit that was measured.")
@click.option("--branch", metavar="NAME", help="Its branch.")
@click.option("--repository", metavar="OWNER/NAME", help="Its repository.")
@skip_damaged_option
def export(
    files: tuple[str, ...],
    to: str,
    output: str | None,
    commit: str | None,
    branch: str | None,
    repository: str | None,
    skip_damaged: bool,
) -> None:
    """Write results in the format of another program, to draw them, to store them, or to watch them over time.

    A time that other programs disturbed is marked in the output, or left out where the format has no mark.

    \b
    Examples:
      deepbench export new.jsonl --to bencher -o bencher.json
      deepbench export nightly/*.jsonl --to otava -o otava/onednn
      deepbench export new.jsonl --to openmetrics > deepbench.prom
    """
    from deepbench.api.exporting import prepare, write

    found = prepare(files, to, output, commit, branch, repository, skip_damaged)
    for reason in found.left_out[:MOST_LEFT_OUT]:
        warn(f"left out: {reason}")
    if len(found.left_out) > MOST_LEFT_OUT:
        warn(f"left out: {len(found.left_out) - MOST_LEFT_OUT} more")
    if output is None:
        print_for_programs(found.texts[""])
    else:
        paths = write(found, output)
        more = f" and {count(len(paths) - 1, 'more file')}" if len(paths) > 1 else ""
        say(f"wrote {paths[0]}{more}" if paths else "wrote nothing: all cases are left out")
