"""`deepbench compare` and `deepbench gate`: what two result files say together, for people and for CI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deepbench.cli.printing import make_console, print_view
from deepbench.cli.root import HELP, cli, end_with_the_reader
from deepbench.errors import BadInput

if TYPE_CHECKING:
    from deepbench.comparison import Comparison


@cli.command(context_settings=HELP)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--margin", metavar="P", default="2%", help="What does not matter, such as 2% (the default).")
@click.option("--unchecked", is_flag=True, help="Compare times of results that nobody checked, too.")
@click.option("--json", "form", flag_value="json", help="Everything, for programs.")
@click.option("--csv", "form", flag_value="csv", help="A row a case, for spreadsheets.")
@click.option("--markdown", "form", flag_value="markdown", help="A table to paste into a page.")
def compare(first: str, second: str, margin: str, unchecked: bool, form: str | None) -> None:
    """For each case in both files: is B faster or slower than A, the same, or can nobody tell?

    \b
    Examples:
      deepbench compare before.jsonl after.jsonl
      deepbench run gemm m=1760 n=128 k=1760 --ab threads=1,2 -o mine    # mine.a.jsonl, mine.b.jsonl, compared
    """
    end_with_the_reader()
    found = compared(first, second, share("--margin", margin), unchecked)
    print_comparison(found, (Path(first).name, Path(second).name), form)


def compared(first: str, second: str, margin: float, unchecked: bool) -> Comparison:
    """Two files, read and compared; `BadInput` where they have nothing in common."""
    from deepbench import comparison, store

    found = comparison.compare(store.read(Path(first)), store.read(Path(second)), margin, unchecked)
    if not found.cases:
        reason = f" ({found.left_out[0]})" if found.left_out else ""
        raise BadInput(f"{first} and {second} have no measured case in common{reason}")
    return found


def print_comparison(found: Comparison, names: tuple[str, str], form: str | None) -> None:
    """Heading, means, cases, verdict; or one of the forms for programs."""
    from deepbench.report import comparison as report

    if form == "json":
        print(json.dumps(report.to_json(found), ensure_ascii=False, indent=1))
        return
    if form == "csv":
        print_view(report.cases(found), form)
        return
    if form == "markdown":
        for line in report.heading(found, names):
            print(f"- {line}")
        print()
        for view in (report.means(found), report.cases(found)):
            print_view(view, form)
        for line in report.sentences(found):
            print(f"- {line}")
        return
    console = make_console()
    for line in report.heading(found, names):
        console.print(line, markup=False, soft_wrap=True)
    for view in (report.means(found), report.cases(found)):
        console.print()
        print_view(view, None)
    console.print()
    for line in report.sentences(found):
        console.print(line, markup=False, soft_wrap=True)


def share(name: str, text: str) -> float:
    """`2%` or `0.02` as a share from 0 to 1."""
    try:
        value = float(text.strip().removesuffix("%").strip()) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise BadInput(f"{name} must be a share such as 2% or 0.02, found {text[:60]!r}")
    return value
