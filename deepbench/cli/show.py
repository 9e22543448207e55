"""`deepbench show` and `deepbench scale`: tables of a result file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deepbench.core.errors import BadInput

if TYPE_CHECKING:
    from deepbench.results.file import ResultFile
    from deepbench.results.summary import Summary

from deepbench.cli.choose import comma_list, require_suffix
from deepbench.cli.printing import make_console, print_head, print_table, print_view
from deepbench.cli.root import HELP, cli, end_with_the_reader


@cli.command(context_settings=HELP)
@click.argument("file", metavar="FILE")
@click.option("--json", "form", flag_value="json", help="Header, limits, and one row per case.")
@click.option("--csv", "form", flag_value="csv", help="A row a case, for spreadsheets.")
@click.option("--markdown", "form", flag_value="markdown", help="A table to paste into a page.")
@click.option("--xlsx", metavar="OUT", help="A workbook: the original's sheets, and one with a row a case.")
@click.option("--parquet", metavar="OUT", help="A row a case, for data frames.")
@click.option("--sqlite", metavar="OUT", help="Tables of cases and samples, for SQL.")
@click.option("--plot", is_flag=True, help="A roofline in the terminal.")
@click.option("--full", is_flag=True, help="A line for each library instead of the fastest only.")
@click.option(
    "--by",
    metavar="WHAT",
    help="application: sums of an application's kernels; backend: side by side; ranks: all-reduce.",
)
@click.option("--against", metavar="FILE", help="With --by application: another file to compare with.")
@click.option("--price", metavar="N/h", help="With --by application: what an hour of the machine costs, such as 2.5/h.")
@click.option("--host", metavar="NAME", help="Of a fleet file: the results of one host, as those of any file.")
def show(
    file: str,
    form: str | None,
    xlsx: str | None,
    parquet: str | None,
    sqlite: str | None,
    plot: bool,
    full: bool,
    by: str | None,
    against: str | None,
    price: str | None,
    host: str | None,
) -> None:
    """The table of a result file; checks every line of it first.

    \b
    Examples:
      deepbench show deepbench-20261121-113000.jsonl --csv > results.csv
      deepbench show new.jsonl --by application --against old.jsonl
      deepbench show train.jsonl --xlsx DeepBench_mine.xlsx
    """
    from deepbench.report import export
    from deepbench.results.file import read_results
    from deepbench.results.fleet import is_fleet, read_fleet
    from deepbench.results.summary import summarize

    end_with_the_reader()
    of_fleet = is_fleet(Path(file))
    if of_fleet and host is None:
        if xlsx or parquet or sqlite or plot:
            raise BadInput(f"{file} is of a fleet; choose one of its hosts: deepbench show {file} --host NAME")
        _show_fleet(file, form, full, by, against)
        return
    if host is not None and not of_fleet:
        raise BadInput(f"--host is for files of a fleet, and {file} is of one machine")
    found = read_fleet(Path(file)).results_of(host) if host is not None else read_results(Path(file))
    if found.truncated:
        print(f"deepbench: {file}: the last line is incomplete and was ignored", file=sys.stderr)
    summaries = summarize(found.records, found.order)
    if xlsx or parquet or sqlite:
        _write(found, summaries, xlsx, parquet, sqlite)
        return
    if plot:
        _plot(found, summaries)
        return
    if by is not None or against is not None or price is not None:
        _show_view(found, summaries, by, against, form, price)
        return
    if form == "json":
        print(export.to_json(found, summaries), end="")
    elif form == "csv":
        print(export.to_csv(found, summaries), end="")
    elif form == "markdown":
        print(export.to_markdown(found, summaries), end="")
    else:
        console = make_console()
        print_head(console, found)
        print_table(console, found, full)


def _write(
    found: ResultFile, summaries: list[Summary], xlsx: str | None, parquet: str | None, sqlite: str | None
) -> None:
    from deepbench.report import database, workbook

    kinds = (
        ("--xlsx", xlsx, workbook.write, (".xlsx",)),
        ("--parquet", parquet, database.parquet, (".parquet",)),
        ("--sqlite", sqlite, database.sqlite, (".db", ".sqlite", ".sqlite3")),
    )
    for option, path, writer, suffixes in kinds:
        if path:
            require_suffix(option, path, suffixes)
            writer(found, summaries, Path(path))
            print(f"wrote {path}")


def _plot(found: ResultFile, summaries: list[Summary]) -> None:
    from deepbench.judge import limits
    from deepbench.report import plot

    console = make_console()
    lines = plot.roofline(summaries, limits.of_file(found, summaries), min(console.width, 160))
    if not lines:
        raise BadInput(f"nothing in {found.path} computes, so there is no roofline; see deepbench show {found.path}")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _price(text: str | None) -> float | None:
    """`2.5/h`, in whatever money."""
    if text is None:
        return None
    try:
        value = float(text.removesuffix("/h"))
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise BadInput(f"--price wants what an hour costs, such as 2.5/h, found {text[:60]!r}")
    return value


def _show_fleet(file: str, form: str | None, full: bool, by: str | None, against: str | None) -> None:
    import json

    from deepbench.cli.fleet import print_fleet
    from deepbench.judge.fleet import judge
    from deepbench.report import fleet as report
    from deepbench.results.fleet import read_fleet

    if full or by is not None or against is not None:
        raise BadInput(f"{file} is of a fleet; choose one of its hosts: deepbench show {file} --host NAME")
    found = read_fleet(Path(file))
    judged = judge(found)
    if form == "json":
        print(json.dumps(report.to_json(found, judged), ensure_ascii=False, indent=1))
    elif form is not None:
        print_view(report.by_host(found, judged), form)
    else:
        print_fleet(make_console(), found)


def _show_view(
    found: ResultFile,
    summaries: list[Summary],
    by: str | None,
    against: str | None,
    form: str | None,
    price: str | None,
) -> None:
    from deepbench.report import views
    from deepbench.results.file import read_results
    from deepbench.results.summary import summarize

    if by not in ("application", "backend", "ranks"):
        raise BadInput(f"--by is application, backend or ranks, found {by or 'nothing'}")
    if (against is not None or price is not None) and by != "application":
        raise BadInput("--against and --price go with --by application")
    if by == "application":
        other = read_results(Path(against)) if against is not None else None
        others = summarize(other.records, other.order) if other else None
        view = views.by_application(summaries, others, _price(price))
        if not view.rows:
            raise BadInput(f"no case of {found.path} comes from a suite that names applications; run deepbench/server")
    elif by == "ranks":
        from deepbench.report import groups

        view = groups.by_ranks(summaries)
        if not view.rows:
            raise BadInput(f"no all-reduce of {found.path} has a time; run all_reduce n=100000 ranks=2")
    else:
        view = views.by_backend(summaries)
        if not view.rows:
            raise BadInput(f"no case of {found.path} has a time; see deepbench show {found.path}")
    print_view(view, form)


@cli.command(context_settings=HELP)
@click.argument("file", metavar="FILE")
@click.option("--ranks", multiple=True, metavar="N", callback=comma_list, help="Group sizes to predict. Repeatable.")
@click.option("--json", "form", flag_value="json", help="For programs.")
@click.option("--csv", "form", flag_value="csv", help="For spreadsheets.")
@click.option("--markdown", "form", flag_value="markdown", help="To paste into a page.")
def scale(file: str, ranks: tuple[str, ...], form: str | None) -> None:
    """Predict all-reduce of larger groups from a file that has several sizes at two or more numbers of ranks.

    \b
    Example: deepbench scale deepbench-20261121-113000.jsonl --ranks 64,1024
    """
    from deepbench.core.case import whole_number
    from deepbench.report import groups
    from deepbench.results.file import read_results
    from deepbench.results.summary import summarize

    end_with_the_reader()
    found = read_results(Path(file))
    wanted = [whole_number("--ranks", n) for n in ranks] or groups.DEFAULT_RANKS
    if not all(2 <= n <= 10**6 for n in wanted):
        raise BadInput("--ranks must be from 2 to 1000000")
    view = groups.scaled(summarize(found.records, found.order), wanted)
    if not view.rows:
        raise BadInput(f"{found.path} gives no model: {view.notes[0]}")
    print_view(view, form)
