"""`deepbench compare`: compare two result files, or a file with published machines."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deepbench.cli.console import print_json, print_report, print_table, warn_of_gaps
from deepbench.cli.options import form_options, share, skip_damaged_option
from deepbench.cli.root import HELP, cli
from deepbench.core.errors import BadInput
from deepbench.core.json_lines import printable

if TYPE_CHECKING:
    from deepbench.judge.compare import Comparison
    from deepbench.results.file import ResultFile

DEFAULT_MARGIN = "2%"


@cli.command(context_settings=HELP, short_help="Compare two result files, or a file with published results.")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B", required=False)
@click.option("--all", "among_all", is_flag=True, help="Instead of B: all published machines, one line each.")
@click.option("--margin", metavar="P", default=DEFAULT_MARGIN, help="Ignore differences below P (default 2%).")
@click.option("--unchecked", is_flag=True, help="Also compare times whose results were not checked.")
@click.option("--full", is_flag=True, help="List all cases, also those that are the same or undecided.")
@skip_damaged_option
@form_options
def compare(
    first: str,
    second: str | None,
    among_all: bool,
    margin: str,
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
        if unchecked or full or margin != DEFAULT_MARGIN:
            raise BadInput("--margin, --unchecked and --full are for two files, not for published times")
        _compare_published(first, second, among_all, form, skip_damaged)
        return
    if (files := trained_files(first, second, skip_damaged)) is not None:
        _compare_trained(*files, share("--margin", margin), form)
        return
    comparison = compared(first, second, share("--margin", margin), unchecked, skip_damaged)
    print_comparison(comparison, (printable(Path(first).name), printable(Path(second).name)), form, full)


def _compare_published(first: str, second: str | None, among_all: bool, form: str | None, skip_damaged: bool) -> None:
    from deepbench.api import load
    from deepbench.cli.published import compare_with, compare_with_all
    from deepbench.results import published

    if (second is None) != among_all:
        raise BadInput("compare wants two files, a file and a published machine, or a file and --all")
    if second is not None and ("/" in second or second.endswith((".jsonl", ".jsonl.gz"))):
        raise BadInput(f"{second} does not exist; wanted a result file, or a machine of deepbench published list")
    machine = published.find(second) if second is not None else None
    name, results = printable(Path(first).name), load(first, skip_damaged=skip_damaged)
    warn_of_gaps(results.file)
    if machine is None:
        compare_with_all(name, results.summaries, form)
    else:
        compare_with(name, results.summaries, machine, form)


def trained_files(first: str, second: str, skip_damaged: bool) -> tuple[ResultFile, ResultFile] | None:
    """Both files, if they have trained applications; None if they have kernels."""
    from deepbench.results.file import is_training, read_results

    kinds = [is_training(Path(path)) for path in (first, second)]
    if any(kinds) and not all(kinds):
        names = (first, second) if kinds[0] else (second, first)
        raise BadInput(f"{names[0]} has trained applications and {names[1]} has kernels; compare two files of one kind")
    if not any(kinds):
        return None
    return read_results(Path(first), skip_damaged), read_results(Path(second), skip_damaged)


def _compare_trained(first: ResultFile, second: ResultFile, margin: float, form: str | None) -> None:
    from deepbench.applications.judge.trained import runs_of, trained
    from deepbench.applications.judge.training_pairs import differences, pairs
    from deepbench.applications.reporting.training import pairs_table
    from deepbench.judge import selftest

    drift = selftest.between_files(first, second)
    found, left = pairs(trained(runs_of(first)), trained(runs_of(second)), margin, drift=drift)
    if not found:
        raise BadInput(f"{first.path} and {second.path} have no application and rung in common")
    table = pairs_table(found)
    print_table(replace(table, notes=[*table.notes, *left, *differences(first, second)]), form)


def compared(
    first: str, second: str, margin: float, unchecked: bool, skip_damaged: bool, broken: bool = False
) -> Comparison:
    """Read and compare two files; `BadInput` without a common case (or, with `broken`, without one that failed)."""
    from deepbench.api import compare as compare_results
    from deepbench.results.file import read_results

    files = read_results(Path(first), skip_damaged), read_results(Path(second), skip_damaged)
    comparison = compare_results(*files, margin=margin, unchecked=unchecked)
    for file in files:
        warn_of_gaps(file)
    if not comparison.cases and not (broken and comparison.broken):
        reason = f" ({comparison.left_out[0]})" if comparison.left_out else ""
        raise BadInput(f"{first} and {second} have no measured case in common{reason}")
    return comparison


def print_comparison(comparison: Comparison, names: tuple[str, str], form: str | None, full: bool) -> None:
    """Differences of the sides, geometric means, cases and the answer; or one of the forms for programs."""
    from deepbench.reporting import compare as tables

    if form == "json":
        print_json(tables.to_json(comparison))
    else:
        table = tables.listed(comparison, full) if form is None else tables.cases(comparison)
        print_report(tables.parts(comparison, names, table), form)
