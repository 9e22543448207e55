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
    from deepbench.api import load
    from deepbench.core.case import whole_number
    from deepbench.report import groups, on_devices, steps

    if model is not None:
        if ranks:
            raise BadInput("--model takes the numbers of devices from the file; leave out --ranks")
        found = on_devices.chosen(load(file).training_steps, model)
        if form == "json":
            print_json([value for scaling in found for value in scaling.values()])
        else:
            print_table(steps.table(found), form)
        return
    wanted = [whole_number("--ranks", n) for n in ranks] or groups.DEFAULT_RANKS
    if not all(2 <= n <= 10**6 for n in wanted):
        raise BadInput("--ranks must be from 2 to 1000000")
    table = groups.scaled(load(file).summaries, wanted)
    if not table.rows:
        raise BadInput(f"{file} gives no model: {table.notes[0]}")
    print_table(table, form)
