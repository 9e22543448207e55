"""`deepbench show`: tables and exports of a result file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deepbench.cli.console import make_console, print_head, print_json, print_served, print_table, warn_of_gaps
from deepbench.cli.options import form_options, require_suffix, skip_damaged_option
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import print_for_programs, say
from deepbench.core.errors import BadInput
from deepbench.core.shell import command

if TYPE_CHECKING:
    from deepbench.api import Results
    from deepbench.report.table import Table


def _moved(value: str | None) -> None:
    if value is not None:
        raise BadInput(
            "--against and --price are options of another command now: deepbench rank FILE OTHER --price FILE=2.5/h"
        )


@cli.command(context_settings=HELP)
@click.argument("file", metavar="FILE")
@form_options
@click.option("--xlsx", metavar="OUT", help="Write a workbook: the original's sheets, and one row per case.")
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
@click.option("--against", hidden=True, expose_value=False, callback=lambda *given: _moved(given[2]))
@click.option("--price", hidden=True, expose_value=False, callback=lambda *given: _moved(given[2]))
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
      deepbench show train.jsonl --xlsx DeepBench_mine.xlsx
    """
    from deepbench.api import Results, load
    from deepbench.report import export
    from deepbench.results.fleet import is_fleet, read_fleet

    of_fleet = is_fleet(Path(file))
    if of_fleet and host is None:
        if complete or xlsx or parquet or sqlite or plot or full or by is not None:
            raise BadInput(f"{file} is of a fleet; choose one of its hosts: {command('show', Path(file))} --host NAME")
        _show_fleet(file, form, skip_damaged)
        return None
    if host is not None and not of_fleet:
        raise BadInput(f"--host is for files of a fleet, and {file} is of one machine")
    if host is not None:
        results = Results(read_fleet(Path(file), skip_damaged).results_of(host))
    else:
        results = load(file, skip_damaged=skip_damaged)
    if results.file.has_applications:
        if complete or xlsx or parquet or sqlite or plot or by is not None:
            raise BadInput(f"{file} has trained applications; they have a table only, with --json, --csv or --markdown")
        _show_applications(results, form, mllog)
        return None
    if mllog is not None:
        raise BadInput(f"--mllog is for files of deepbench train, and {file} has kernels")
    if complete:
        return _show_lacks(results)
    warn_of_gaps(results.file)
    if xlsx or parquet or sqlite:
        _write(results, xlsx, parquet, sqlite)
    elif plot:
        _plot(results)
    elif by is not None:
        print_table(_table_by(results, by, form), form)
    elif form is not None:
        convert = {"json": export.to_json, "csv": export.to_csv, "markdown": export.to_markdown}[form]
        print_for_programs(convert(results.file, results.summaries))
    else:
        console = make_console()
        print_head(console, results.file)
        if results.file.incomplete:
            console.print(results.file.incomplete, style="bold red", markup=False)
        console.print()
        results.table(full).print(console)
    return None


def _show_applications(results: Results, form: str | None, mllog: str | None) -> None:
    """Tables of the applications that a file has trained, and how fast their models answered; or logs."""
    from deepbench.cli.train import print_trained
    from deepbench.judge.serving import served
    from deepbench.judge.trained import runs_of, trained
    from deepbench.report import mllog as logs
    from deepbench.report import serving, training

    file = results.file
    if mllog is not None:
        written = logs.write(file, Path(mllog))
        say(f"{len(written)} logs are in {mllog}")
        return
    if form is not None:
        print_table(training.table(trained(runs_of(file))) if file.is_training else serving.table(served(file)), form)
        return
    console = make_console()
    print_head(console, file)
    if file.is_training:
        console.print()
        print_trained(console, file)
    if file.serving:
        console.print()
        print_served(served(file))


def _show_lacks(results: Results) -> int:
    """Print what a file lacks to be published; the exit code is 1 if it lacks anything."""
    from deepbench.results.completeness import COMPLETE, intervals_text, lacks_of

    lacks = lacks_of(results.file, results.summaries)
    verdict = "not good enough to publish" if lacks else f"good enough to publish: {COMPLETE}"
    say("\n".join([f"{results.path}: {verdict}", *(f"- {text}" for text in lacks)]))
    if text := intervals_text(results.summaries):
        say(text)
    return 1 if lacks else 0


def _write(results: Results, xlsx: str | None, parquet: str | None, sqlite: str | None) -> None:
    from deepbench.report import database, workbook

    kinds = (
        ("--xlsx", xlsx, workbook.write, (".xlsx",)),
        ("--parquet", parquet, database.parquet, (".parquet",)),
        ("--sqlite", sqlite, database.sqlite, (".db", ".sqlite", ".sqlite3")),
    )
    for option, path, write, suffixes in kinds:
        if path:
            require_suffix(option, path, suffixes)
            write(results.file, results.summaries, Path(path))
            say(f"wrote {path}")


def _plot(results: Results) -> None:
    from deepbench.report import plot

    console = make_console()
    lines = plot.roofline(results.summaries, results.limits, min(console.width, 160))
    if not lines:
        raise BadInput(f"no case of {results.path} computes anything, so there is no roofline")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _table_by(results: Results, by: str, form: str | None) -> Table:
    from deepbench.judge import furthest
    from deepbench.report import components, groups, views
    from deepbench.report import furthest as furthest_table
    from deepbench.report.cases import rankings

    if by not in ("application", "backend", "limit", "excess", "parts", "ranks"):
        raise BadInput(f"--by is application, backend, limit, excess, parts or ranks, found {by}")
    if by == "application":
        table = views.by_application(results.summaries)
        reason = "no case comes from a suite that names applications; run deepbench/server"
    elif by in furthest.ORDERS:
        nearest = [results.limits.nearest(s) for s in results.summaries]
        fastest = [r.ranked[0] for r in rankings(results.summaries) if r.ranked]
        found = furthest.kernels(results.summaries, fastest, nearest)
        table = furthest_table.table(found, by, len(found) if form else furthest.MOST)
        reason = f"no limit of this machine is known; see {command('roofline')}"
    elif by == "parts":
        table = components.table(results.summaries)
        example = "recurrent cell=lstm input_size=512 hidden=512 batch=16 timesteps=25"
        reason = f"no case with a time has parts; measure some with {command('run', *example.split(), '--with-parts')}"
    elif by == "ranks":
        table = groups.by_ranks(results.summaries)
        reason = "no all-reduce has a time; run all_reduce n=100000 ranks=2"
    else:
        table = views.by_backend(results.summaries)
        reason = f"no case has a time; see {command('show', results.path)}"
    if not table.rows:
        raise BadInput(f"{results.path}: {reason}")
    return table


def _show_fleet(file: str, form: str | None, skip_damaged: bool) -> None:
    from deepbench.judge.fleet import judge
    from deepbench.report import fleet as tables
    from deepbench.results.fleet import read_fleet

    fleet_file = read_fleet(Path(file), skip_damaged)
    warn_of_gaps(fleet_file)
    judged = judge(fleet_file)
    if form == "json":
        print_json(tables.to_json(fleet_file, judged))
    elif form is not None:
        print_table(tables.by_host(fleet_file, judged), form)
    else:
        tables.print_fleet(make_console(), fleet_file, judged)
