"""`deepbench show`: tables and exports of a result file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepbench.cli.console import make_console, print_head, print_table, warn_of_gaps
from deepbench.cli.options import form_options, require_suffix, skip_damaged_option
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import print_for_programs, say

if TYPE_CHECKING:
    from deepbench.api.results import Lacks


@cli.command(context_settings=HELP)
@click.argument("file", metavar="FILE")
@form_options
@click.option("--xlsx", metavar="OUT", help="Write a workbook with one row per case.")
@click.option("--parquet", metavar="OUT", help="Write one row per case, for data frames.")
@click.option("--sqlite", metavar="OUT", help="Write tables of cases and samples, for SQL.")
@click.option("--plot", is_flag=True, help="Draw a roofline in the terminal.")
@click.option("--full", is_flag=True, help="Print one line per library instead of the fastest only.")
@click.option(
    "--by",
    metavar="WHAT",
    help="application: total time per application; backend: one column per library; limit: the problems furthest from "
    "their limit, and why; excess: those with the most time above it; parts: whole layers and the sum of their parts; "
    "ranks: collectives.",
)
@click.option("--host", metavar="NAME", help="Show one host of a fleet file.")
@click.option(
    "--complete",
    is_flag=True,
    help="Say whether FILE is good enough to publish; if not, list what it lacks (exit code 1).",
)
@click.option("--mllog", metavar="FOLDER", help="Of deepbench train: write one log per run in the MLLOG format.")
@skip_damaged_option
def show(
    file: str,
    form: str | None,
    xlsx: str | None,
    parquet: str | None,
    sqlite: str | None,
    plot: bool,
    full: bool,
    by: str | None,
    host: str | None,
    complete: bool,
    mllog: str | None,
    skip_damaged: bool,
) -> int | None:
    """Print the table of a result file. Every line of the file is checked first.

    \b
    Examples:
      deepbench show deepbench-20261121-113000.jsonl --csv > results.csv
      deepbench show new.jsonl --by application
      deepbench show train.jsonl --xlsx train.xlsx
    """
    from deepbench.api.results import EXPORTS, load

    results = load(file, skip_damaged=skip_damaged)
    if host is not None:
        results = results.host(host)
    exports = {form: path for form, path in (("xlsx", xlsx), ("parquet", parquet), ("sqlite", sqlite)) if path}
    if mllog is not None:
        say(f"{len(results.logs(Path(mllog)))} logs are in {mllog}")
        return None
    if complete:
        return _print_lacks(results.path, results.lacks())
    for name, path in exports.items():
        require_suffix(f"--{name}", path, EXPORTS[name])
        results.save_as(name, Path(path))
        say(f"wrote {path}")
    if exports:
        warn_of_gaps(results)
    elif plot:
        _plot(results)
    elif by is not None:
        table = results.by(by, form is not None)
        warn_of_gaps(results)
        print_table(table, form)
    else:
        report = results.report(full)
        warn_of_gaps(results)
        if form is not None:
            print_for_programs(report.text(form))
        else:
            console = make_console(to_read=True)
            print_head(console, results)
            report.print(console)
    return None


def _print_lacks(path: Path, found: Lacks) -> int:
    """Print what a file lacks to be published; the exit code is 1 if it lacks anything."""
    verdict = "not good enough to publish" if found.lacks else f"good enough to publish: {found.complete}"
    say("\n".join([f"{path}: {verdict}", *(f"- {text}" for text in found.lacks)]))
    if found.intervals:
        say(found.intervals)
    return 1 if found.lacks else 0


def _plot(results: Any) -> None:
    console = make_console(to_read=True)
    for line in results.roofline(min(console.width, 160)):
        console.print(line, markup=False, soft_wrap=True)
