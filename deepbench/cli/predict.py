"""`deepbench predict`: the time of a step from the measured times of its kernels."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from deepbench.cli.console import make_console, print_json, print_labelled, print_table
from deepbench.cli.options import duration, form_options
from deepbench.cli.root import HELP, cli
from deepbench.core.errors import BadInput, shorten


@cli.command(context_settings=HELP, short_help="Predict the time of a network from measured kernels.")
@click.argument("network", metavar="SUITE|NETWORK")
@click.option("--with", "files", multiple=True, metavar="FILE", help="A result file with kernels. Repeatable.")
@click.option("--measure", is_flag=True, help="Measure the kernels that the files lack, into a new file.")
@click.option("--validate", is_flag=True, help="Run the real step in turn with all kernels, and compare.")
@click.option(
    "--backend", "library", default="torch", metavar="NAME", help="The library of the kernels (default: torch)."
)
@click.option("--threads", default=None, metavar="N", help="Threads of the kernels and of the step (default: 1).")
@click.option("--train", is_flag=True, help="Of a NETWORK: a training step.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Of a NETWORK: an argument. Repeatable.")
@click.option("--optimizer", default="sgd", metavar="NAME", help="Of a NETWORK: sgd (default), adam, adamw or none.")
@click.option("--sweep", metavar="NAME=A,B", help="Of a NETWORK: one prediction for each value of an argument.")
@click.option("--budget", metavar="TIME", help="Measure for at most TIME, such as 10min.")
@click.option("-o", "--output", metavar="FILE", help="The new result file (default: predict-<date>-<time>.jsonl).")
@click.option("--all", "show_all", is_flag=True, help="Print every kernel.")
@form_options
def predict(
    network: str,
    files: tuple[str, ...],
    measure: bool,
    validate: bool,
    library: str,
    threads: str | None,
    train: bool,
    settings: tuple[str, ...],
    optimizer: str,
    sweep: str | None,
    budget: str | None,
    output: str | None,
    show_all: bool,
    form: str | None,
) -> None:
    """Predict the time of one step of a network: the sum of its measured kernels, other operators and overhead.

    SUITE is a file that `deepbench trace` wrote. NETWORK is what `deepbench trace` takes; a Python file is executed:
    use only files that you trust.

    \b
    Examples:
      deepbench predict my.suite --with results.jsonl
      deepbench predict mymodel.py:build --train --validate
      deepbench predict mymodel.py:build --sweep batch=1,2,4,8 --measure
    """
    from deepbench.api import load
    from deepbench.core.case import thread_count
    from deepbench.measure.session import Options
    from deepbench.networks.forecast import forecast
    from deepbench.networks.read import read, read_suite_trace
    from deepbench.networks.runner import Request
    from deepbench.report import predictions
    from deepbench.report.progress import Bar

    chosen = dict(_pair(word) for word in settings)
    is_suite = Path(network).suffix.lower() == ".suite"
    if is_suite and (validate or sweep or chosen or train):
        option = "--validate" if validate else "--sweep" if sweep else "--set" if chosen else "--train"
        raise BadInput(
            f"{option} needs the network itself, such as mymodel.py:build; {network} has one step of it only"
        )
    if not (files or measure or validate):
        raise BadInput("name a result file with --with FILE, or measure the kernels with --measure")
    count = thread_count(threads) if threads is not None else 1
    name, values = _sweep(sweep) if sweep else ("", [""])
    if is_suite:
        traces = [read_suite_trace(Path(network))]
    else:
        traces = [
            read(network, {**chosen, **({name: v} if name else {})}, is_training=train, optimizer=optimizer)
            for v in values
        ]
    options = Options("quick", budget_s=duration("--budget", budget) if budget else None)
    path = Path(output or f"predict-{datetime.now().strftime('%Y%m%d-%H%M%S')}.jsonl") if measure or validate else None
    request = Request(network, chosen, train, optimizer, count) if validate else None
    with Bar() as bar:
        found = forecast(
            traces,
            [load(file).file for file in files],
            library=library,
            threads=count,
            output=path,
            network=request,
            options=options,
            progress=bar,
        )
    if form == "json":
        print_json([predictions.values(p, found.measured) for p in found.predictions])
        return
    if sweep:
        print_table(predictions.sweep_table(name, list(zip(map(int, values), found.predictions, strict=True))), form)
    else:
        prediction = found.predictions[0]
        if form is None:
            console = make_console()
            for label, text in predictions.summary(prediction, found.measured):
                print_labelled(console, label, text)
            console.print()
        print_table(predictions.table(prediction, None if show_all or form else predictions.MOST_ROWS), form)
    if path is not None and form is None:
        print(f"\n{path} has the kernels. To predict from it again:\n  deepbench predict {network} --with {path}")


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not (name and equals and value):
        raise BadInput(f"--set wants NAME=VALUE, found {shorten(word)!r}")
    return name, value


def _sweep(word: str) -> tuple[str, list[str]]:
    name, text = _pair(word)
    values = text.split(",")
    if not all(value.isascii() and value.isdecimal() and 0 < len(value) < 11 for value in values):
        raise BadInput(f"--sweep wants NAME=1,2,4, found {shorten(word)!r}")
    return name, values
