"""`deepbench scale`: predict all-reduce of larger groups, and a training step on more devices."""

from __future__ import annotations

import click

from deepbench.cli.console import print_text
from deepbench.cli.options import comma_list, form_options
from deepbench.cli.root import HELP, cli


@cli.command(context_settings=HELP, short_help="Predict all-reduce, or a training step on more devices.")
@click.argument("file", metavar="FILE")
@click.option("--ranks", multiple=True, metavar="N", callback=comma_list, help="Group sizes to predict. Repeatable.")
@click.option("--model", metavar="NAME", help="The training step of this model by number of devices.")
@form_options
def scale(file: str, ranks: tuple[str, ...], model: str | None, form: str | None) -> None:
    """Predict the time of all-reduce for larger groups, from a file with several sizes at two or more group sizes.

    With --model: how the training step of a model gets faster on more devices that divide its batch, from the times
    of its kernels and of the all-reduce.

    \b
    Examples:
      deepbench scale deepbench-20261121-113000.jsonl --ranks 64,1024
      deepbench run vision/resnet18 --set phase=train,devices=1,2,4 -o steps.jsonl
      deepbench scale steps.jsonl --model resnet18
    """
    from deepbench.api.filters import whole_number
    from deepbench.networks import api

    wanted = [whole_number("--ranks", n) for n in ranks]
    print_text(api.scale(file, ranks=wanted, model=model).report(), form)
