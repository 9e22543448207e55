"""`deepbench compare`: compare two result files, or a file with published machines."""

from __future__ import annotations

import os

import click

from deepbench.api.text import BadInput
from deepbench.cli.console import print_text, warn_of_gaps
from deepbench.cli.options import form_options, metric_option, share, skip_damaged_option
from deepbench.cli.root import HELP, cli


@cli.command(context_settings=HELP, short_help="Compare two result files, or a file with published results.")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B", required=False)
@click.option("--all", "among_all", is_flag=True, help="Instead of B: all published machines, one line each.")
@click.option("--margin", metavar="P", help="Ignore differences below P (default 2%, of another metric 10%).")
@metric_option
@click.option("--unchecked", is_flag=True, help="Also compare times whose results were not checked.")
@click.option("--full", is_flag=True, help="List all cases, also those that are the same or undecided.")
@skip_damaged_option
@form_options
def compare(
    first: str,
    second: str | None,
    among_all: bool,
    margin: str | None,
    metric: str,
    unchecked: bool,
    full: bool,
    skip_damaged: bool,
    form: str | None,
) -> None:
    """Say for each case in both files whether B is faster or slower than A, the same, or undecided.

    B may be a machine whose results the original DeepBench published: see deepbench published list.

    \b
    Examples:
      deepbench compare before.jsonl after.jsonl
      deepbench compare mine.jsonl V100
      deepbench compare mine.jsonl --all
    Both sides in turn, which is more certain:
      deepbench run gemm m=1760 n=128 k=1760 --ab threads=1,2
    """
    if second is None or among_all or not os.path.exists(second):
        if unchecked or full or margin or metric != "steady":
            raise BadInput("--margin, --metric, --unchecked and --full are for two files, not for published times")
        _compare_published(first, second, among_all, form, skip_damaged)
        return
    from deepbench.api.comparing import margins_of, of_metric, pair

    allowed = share("--margin", margin) if margin else margins_of(metric)[0]
    results, other = of_metric(metric, *pair(first, second, skip_damaged))
    report = results.comparison(other, allowed, unchecked, full)
    for file in (results, other):
        warn_of_gaps(file)
    print_text(report, form)


def _compare_published(first: str, second: str | None, among_all: bool, form: str | None, skip_damaged: bool) -> None:
    from deepbench.api.published import against_published
    from deepbench.api.results import load_kernels

    if (second is None) != among_all:
        raise BadInput("compare wants two files, a file and a published machine, or a file and --all")
    if second is not None and ("/" in second or second.endswith((".jsonl", ".jsonl.gz"))):
        raise BadInput(f"{second} does not exist; wanted a result file, or a machine of deepbench published list")
    results = load_kernels(first, skip_damaged=skip_damaged)
    warn_of_gaps(results)
    print_text(against_published(results, second), form)
