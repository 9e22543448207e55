"""`deepbench report`: a page to look at."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import click

from deepbench.cli.choose import require_suffix
from deepbench.cli.root import EXIT_WRONG, HELP, cli


@cli.command(context_settings=HELP)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--against",
    multiple=True,
    metavar="MACHINE",
    help="A published machine beside them: deepbench reference list. Repeatable.",
)
@click.option(
    "--output", "-o", metavar="FILE", default="report.html", help="Where the page goes (default: report.html)."
)
@click.option("--title", metavar="TEXT", help="The page's heading.")
def report(files: tuple[str, ...], against: tuple[str, ...], output: str, title: str | None) -> None:
    """One page of one or more result files: it needs no other file and no network.

    The first file is compared with each of the others.

    \b
    Examples:
      deepbench report deepbench-20261121-113000.jsonl -o report.html
      deepbench report before.jsonl after.jsonl --against V100 --against "Xeon Phi"
    """
    from deepbench.report.page import render
    from deepbench.results import published
    from deepbench.results.file import read_results

    gc.disable()  # all that is read stays until the end: looking through it again and again is a third of the time
    require_suffix("-o", output, (".html", ".htm"))
    machines = [published.find(name) for name in against]
    render.plotly()  # before the work, not after it
    found = []
    for file in files:
        read = read_results(Path(file))
        if read.truncated:
            print(f"deepbench: {file}: the last line is incomplete and was ignored", file=sys.stderr)
        found.append(read)
    render.write_report(found, machines, Path(output), title)
    print(f"wrote {output}")


@cli.command(context_settings=HELP)
@click.argument("folder", metavar="DIR")
@click.option(
    "--output", "-o", metavar="DIR", required=True, help="Where the site goes: a new folder, or one made before."
)
@click.option("--no-published", is_flag=True, help="Leave out the machines that the original DeepBench published.")
def site(folder: str, output: str, no_published: bool) -> int:
    """A static results site from a folder of result files; what has not changed is not made again.

    Exit code 1 where a file could not be read: the others are in the site.

    \b
    Example: deepbench site results -o public
    """
    from deepbench.cli.printing import make_console, steps_bar
    from deepbench.core.json_lines import printable
    from deepbench.report import site as sites

    gc.disable()
    console = make_console()
    with steps_bar(console, 1) as step:
        built = sites.build(Path(folder), Path(output), not no_published, step)
    for reason in built.refused:
        print(f"deepbench: left out: {printable(reason)}", file=sys.stderr)
    print(
        f"wrote {output}: {built.machines} machines ({len(built.fresh)} made anew, {len(built.removed)} removed), "
        f"{built.families} families ({built.written} made anew); open {Path(output) / 'index.html'}"
    )
    return EXIT_WRONG if built.refused else 0
