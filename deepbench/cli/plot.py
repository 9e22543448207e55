"""`deepbench plot`: figures for papers and slides."""

from __future__ import annotations

import click

from deepbench.cli.console import warn_of_gaps
from deepbench.cli.options import number, skip_damaged_option
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import say


@cli.command(context_settings=HELP, short_help="Draw a figure of a result file.")
@click.argument("file", metavar="FILE")
@click.argument("other", metavar="[OTHER]", required=False)
@click.option(
    "--kind",
    metavar="KIND",
    default="roofline",
    help="roofline (default); rates: bars of each library by problem; ratios: how much faster OTHER is.",
)
@click.option("--output", "-o", metavar="OUT", help="A name that ends in .svg, .pdf or .png (default: KIND.svg).")
@click.option("--op", metavar="OP", help="Only this operation.")
@click.option("--precision", metavar="P", help="Only this precision.")
@click.option("--title", metavar="TEXT", help="The title of the figure (default: the name of the file).")
@click.option("--width", metavar="INCHES", default="7", help="The width, such as 3.3 for a column (default: 7).")
@skip_damaged_option
def plot(
    file: str,
    other: str | None,
    kind: str,
    output: str | None,
    op: str | None,
    precision: str | None,
    title: str | None,
    width: str,
    skip_damaged: bool,
) -> None:
    """Draw a figure of a result file, or of the ratios of two. It needs Matplotlib: pip install matplotlib.

    What other programs disturbed is hollow in a roofline and in rates, and left out of ratios.

    \b
    Examples:
      deepbench plot mine.jsonl -o roofline.pdf
      deepbench plot mine.jsonl --kind rates --op gemm -o gemm.svg --width 3.3
      deepbench plot before.jsonl after.jsonl --kind ratios -o ratios.png
    """
    from deepbench.api.results import load

    results = load(file, skip_damaged=skip_damaged)
    second = load(other, skip_damaged=skip_damaged) if other is not None else None
    path = output or f"{kind}.svg"
    results.plot(path, kind, second, op=op, precision=precision, title=title, width=number(width))
    for read in filter(None, (results, second)):
        warn_of_gaps(read)
    say(f"wrote {path}")
