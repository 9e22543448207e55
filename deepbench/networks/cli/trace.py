"""`deepbench trace`: the kernels of a network, as a suite."""

from __future__ import annotations

from pathlib import Path

import click

from deepbench.api.text import BadInput, shorten
from deepbench.cli.console import print_summary, print_text
from deepbench.cli.options import form_options, pairs, whole
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import say

MOST_STEPS = 1_000_000


@cli.command(context_settings=HELP, short_help="List the kernels of a network, and write them as a suite.")
@click.argument("network", metavar="NETWORK")
@click.option("-o", "--output", metavar="FILE", help="Write the suite to this file, which ends in .suite.")
@click.option("--train", is_flag=True, help="A training step: forward, gradients and optimizer; a forward pass if not.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="An argument of the function. Repeatable.")
@click.option("--optimizer", default="sgd", metavar="NAME", help="sgd (default), adam, adamw, adagrad or none.")
@click.option("--meta", is_flag=True, help="Only shapes, no memory: for networks that are larger than this machine.")
@click.option("--steps", metavar="N", help="How many steps a log has (default: 1).")
@click.option("--while-steps", metavar="N", help="JAX: how often the body of a while loop runs.")
@click.option("--all", "show_all", is_flag=True, help="Print every kernel and operator.")
@form_options
def trace(
    network: str,
    output: str | None,
    train: bool,
    settings: tuple[str, ...],
    optimizer: str,
    meta: bool,
    steps: str | None,
    while_steps: str | None,
    show_all: bool,
    form: str | None,
) -> None:
    """List the kernels of one step of a network with their counts and places, and write them as a suite.

    NETWORK is a function in a Python file that returns a PyTorch or JAX network and its inputs (and for training its
    loss), an ONNX file, or the log of a library. A Python file is executed: trace only files that you trust.

    \b
    Examples:
      deepbench trace mymodel.py:build --train --set batch=8 -o my.suite
      deepbench run my.suite --backend onednn,torch
      deepbench predict my.suite --measure
    """
    from deepbench.networks import api

    if output is not None and Path(output).suffix.lower() != api.SUITE:
        raise BadInput(f"a suite of a trace ends in {api.SUITE}, such as my{api.SUITE}; found {shorten(output)!r}")
    found = api.trace(
        network,
        train=train,
        optimizer=optimizer,
        settings=pairs("--set", settings),
        meta=meta,
        steps=whole("--steps", steps, MOST_STEPS) or 1,
        while_steps=whole("--while-steps", while_steps, MOST_STEPS),
    )
    if output is not None:
        found.save(output)
    if form is None:
        print_summary(api.trace_summary(found))
    print_text(api.trace_report(found, show_all), form)
    if output is not None and form is None:
        say(f"\n{output} is a suite. To measure its kernels:\n  deepbench run {output}")
