"""`deepbench rank`: which machine for which application."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deepbench.cli.console import print_json, print_report, print_table, warn_of_gaps
from deepbench.cli.options import comma_list, form_options, number, skip_damaged_option
from deepbench.cli.root import HELP, cli
from deepbench.core.aliases import did_you_mean
from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable

if TYPE_CHECKING:
    from deepbench.reporting.rank import Machine, Ranking


@cli.command(context_settings=HELP, short_help="Say which machine serves an application best.")
@click.argument("names", metavar="FILE_OR_MACHINE...", nargs=-1, required=True)
@click.option("--application", metavar="A", help='Rank by this application: "Speech Recognition" or speech.')
@click.option("--price", "prices", multiple=True, metavar="NAME=N/h", help="The price of a machine. Repeatable.")
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    metavar="P",
    callback=comma_list,
    help="Only these precisions, such as bf16; 8, 16 or 32 bits; or all (default: all that meet DeepBench's minimum).",
)
@skip_damaged_option
@form_options
def rank(
    names: tuple[str, ...],
    application: str | None,
    prices: tuple[str, ...],
    precisions: tuple[str, ...],
    skip_damaged: bool,
    form: str | None,
) -> None:
    """Rank machines by the time of an application, or by its cost where prices are given, and say how certain it is.

    A machine is a result file, or one whose results the original DeepBench published: see deepbench published list.
    Without an application: a table of all applications and machines.

    \b
    Examples:
      deepbench rank old.jsonl new.jsonl V100
      deepbench rank a.jsonl b.jsonl --application "Speech Recognition"
      deepbench rank a.jsonl b.jsonl --price a=2.5/h --price b=1.9/h
      deepbench rank a.jsonl b.jsonl --precision 16
    """
    from deepbench.reporting import rank as tables

    machines = _priced(_machines(names, skip_damaged), prices)
    found = tables.rankings(machines, tables.competing(precisions))
    if not found:
        raise BadInput(
            f"{', '.join(map(shorten, names))}: no case comes from a suite that names applications; "
            "run deepbench/server, deepbench/train or deepbench/device"
        )
    chosen = found if application is None else _of_application(found, application)
    if form == "json":
        print_json(tables.to_json(chosen))
    elif form == "csv":
        print_table(tables.for_programs(chosen), form)
    elif application is None:
        print_table(tables.matrix(machines, found), form)
    else:
        print_report(tables.parts(chosen), form)


def _machines(names: Sequence[str], skip_damaged: bool) -> list[Machine]:
    """Files that exist, and published machines. `BadInput` if one is named twice."""
    from deepbench.api import load
    from deepbench.reporting import totals
    from deepbench.reporting.rank import Machine
    from deepbench.results.file import GZIP, JSONL, title_of

    paths = [name for name in names if os.path.exists(name) or name.endswith((JSONL, JSONL + GZIP))]
    titles = [printable(title_of(Path(Path(path).name))) for path in paths]
    files = [os.path.realpath(path) for path in paths]
    if twice := [path for path, file in zip(paths, files, strict=True) if files.count(file) > 1]:
        raise BadInput(f"a machine is named twice: {', '.join(map(shorten, twice))}; name each once")
    labels = titles if len(set(titles)) == len(titles) else [printable(path) for path in paths]
    found = []
    for name in names:
        if name in paths:
            results = load(name, skip_damaged=skip_damaged)
            warn_of_gaps(results.file)
            imported = results.header["plan"]["mode"] == "imported"
            label, sums = labels[paths.index(name)], totals.of_summaries(results.summaries)
            found.append(Machine(label, "imported" if imported else "measured", sums))
        else:
            machine = _published(name)
            found.append(Machine(machine, "published", totals.of_published(machine)))
    if len({m.name for m in found}) < len(found):
        raise BadInput(f"a machine is named twice: {', '.join(m.name for m in found)}; name each once")
    return found


def _published(name: str) -> str:
    from deepbench.results import published

    try:
        return published.find(name)
    except BadInput as error:
        raise BadInput(f"{error}; a result file ends in .jsonl or .jsonl.gz") from None


def _priced(machines: Sequence[Machine], words: Sequence[str]) -> list[Machine]:
    """The machines with the prices of `NAME=2.5/h`, in any currency."""
    prices: dict[str, float] = {}
    for word in words:
        name, equals, text = word.rpartition("=")
        value = number(text.removesuffix("/h"))
        if not equals or not 0 < value < 1e9:
            raise BadInput(
                f"--price wants a machine and the price of an hour, such as {machines[0].name}=2.5/h, "
                f"found {shorten(word)!r}"
            )
        prices[_named(machines, name)] = value
    return [replace(m, price_per_h=prices.get(m.name)) for m in machines]


def _named(machines: Sequence[Machine], text: str) -> str:
    """The machine whose name is this text or contains it, ignoring case."""
    wanted = printable(text).lower()
    known = [m.name for m in machines]
    exact = [name for name in known if name.lower() == wanted]
    # A file may be named as it was on the command line.
    of_file = [name for name in known if wanted.removesuffix(".gz").removesuffix(".jsonl").endswith(name.lower())]
    within = [name for name in known if wanted and wanted in name.lower()]
    found = next((names for names in (exact, of_file, within) if names), [])
    if len(found) != 1:
        reason = f"several machines ({', '.join(found)})" if found else f"none of {', '.join(known)}"
        raise BadInput(f"--price names {reason}: {shorten(text)!r}; use the name as in the table")
    return found[0]


def _of_application(found: Sequence[Ranking], name: str) -> list[Ranking]:
    """The rankings of the application with this name, or of the only one whose title contains it, ignoring case."""
    wanted = name.strip().lower()
    exact = [r for r in found if wanted in (r.application.lower(), r.title.lower())]
    chosen = exact or [r for r in found if wanted and wanted in r.title.lower()]
    names = sorted({r.application for r in chosen})
    if len(names) > 1:
        raise BadInput(f"--application {shorten(name)!r} is part of several: {', '.join(names)}; name one")
    if not chosen:
        known = sorted({r.application for r in found})
        raise BadInput(
            f"no machine has a time of application {shorten(name)!r}; there are {', '.join(known)}"
            f"{did_you_mean(name, known)}"
        )
    return chosen
