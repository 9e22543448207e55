"""`deepbench predict`: the time of a step from the measured times of its kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import click

from deepbench.cli.console import make_console, print_json, print_labelled, print_table
from deepbench.cli.options import duration, form_options, pairs, require_suffix
from deepbench.cli.root import HELP, cli
from deepbench.core.errors import BadInput, shorten
from deepbench.core.shell import command


@cli.command(context_settings=HELP, short_help="Predict the time of a network from measured kernels.")
@click.argument("network", metavar="NETWORK")
@click.option("--with", "files", multiple=True, metavar="FILE", help="A result file with kernels. Repeatable.")
@click.option("--measure", is_flag=True, help="Measure the kernels that the files lack, into a new file.")
@click.option("--validate", is_flag=True, help="Run the real step in turn with all kernels, and compare.")
@click.option(
    "--backend", "library", default="torch", metavar="NAME", help="The library of the kernels (default: torch)."
)
@click.option("--threads", default=None, metavar="N", help="Threads of the kernels and of the step (default: 1).")
@click.option("--train", is_flag=True, help="A training step.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument of the network, such as batch=8. Repeatable.",
)
@click.option(
    "--optimizer", default="sgd", metavar="NAME", help="Of a program: sgd (default), adam, adamw, adagrad or none."
)
@click.option("--precision", default="f32", metavar="P", help="Of a model of a suite: of its kernels (default: f32).")
@click.option("--sweep", metavar="NAME=A,B", help="One prediction for each value of an argument, such as batch=1,2,4.")
@click.option("--devices", metavar="N,N", help="A training step on so many devices, with all-reduces of the files.")
@click.option("--strong", is_flag=True, help="With --devices: they divide the batch of --set batch=N.")
@click.option("--memory", metavar="SIZE", help="How many devices with so much memory, such as 16GiB, hold the step.")
@click.option("--budget", metavar="TIME", help="Measure for at most TIME, such as 10min.")
@click.option("-o", "--output", metavar="FILE", help="The new result file (default: predict-<date>-<time>.jsonl).")
@click.option("--by", type=click.Choice(["kernel", "layer"]), default="kernel", help="What the table lists.")
@click.option("--picture", metavar="FILE", help="Draw predicted and measured steps as bars, into this .svg file.")
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
    precision: str,
    sweep: str | None,
    devices: str | None,
    strong: bool,
    memory: str | None,
    budget: str | None,
    output: str | None,
    by: str,
    picture: str | None,
    show_all: bool,
    form: str | None,
) -> None:
    """Predict the time of one step of a network: the sum of its measured kernels, other operators and overhead.

    NETWORK is what `deepbench trace` takes, a suite that it wrote, or a model of `deepbench list --suites`. A Python
    file is executed: use only files that you trust.

    \b
    Examples:
      deepbench predict my.suite --with results.jsonl
      deepbench predict mymodel.py:build --train --validate
      deepbench predict mymodel.py:build --sweep batch=1,2,4,8 --measure
      deepbench predict vision/resnet18 --set batch=4 --backend onednn --measure
      deepbench predict my.suite --with a.jsonl --with b.jsonl --devices 1,8
    """
    from deepbench.api import load
    from deepbench.core.case import thread_count
    from deepbench.core.files import replacing
    from deepbench.measure.session import Options
    from deepbench.networks.forecast import forecast
    from deepbench.networks.read import read
    from deepbench.networks.runner import Request
    from deepbench.report import on_devices, predictions, steps
    from deepbench.report.progress import Bar

    chosen = pairs("--set", settings)
    if validate and ".py:" not in network:
        raise BadInput(f"--validate runs the real step, such as that of mymodel.py:build; {network} is no program")
    if not (files or measure or validate):
        raise BadInput("name a result file with --with FILE, or measure the kernels with --measure")
    if sweep and (devices or validate):
        raise BadInput(f"--sweep and {'--devices' if devices else '--validate'} are two questions; ask one")
    if strong and not devices:
        raise BadInput("--strong says how --devices divide the work; add --devices 1,2,4")
    if picture is not None:
        require_suffix("--picture", picture, (".svg",))
    capacity = (memory, _bytes(memory)) if memory else None
    count = thread_count(threads) if threads is not None else 1
    name, values = _list("--sweep", sweep) if sweep else ("", [])
    if devices:
        values = _numbers("--devices", devices)
    variants = [{**chosen, name: str(v)} for v in values] if sweep else [chosen]
    if strong:
        name, variants = "batch", _divided(chosen, values)
    traces = [read(network, v, is_training=train, optimizer=optimizer, precision=precision) for v in variants]
    if devices and not traces[0].is_training:
        raise BadInput("--devices add their gradients after a training step; add --train, or trace one with --train")
    loaded = [load(file) for file in files]
    options = Options("steps", budget_s=duration("--budget", budget) if budget else None)
    path = Path(output or f"predict-{datetime.now().strftime('%Y%m%d-%H%M%S')}.jsonl") if measure or validate else None
    request = Request(network, chosen, train, optimizer, count) if validate else None
    with Bar() as bar:
        found = forecast(
            traces,
            [results.file for results in loaded],
            library=library,
            threads=count,
            output=path,
            network=request,
            options=options,
            progress=bar,
        )
    labels = [f"{name} {v}" for v in values] if len(found.predictions) > 1 else ["predicted"]
    if picture is not None:
        drawn = predictions.picture(list(zip(labels, found.predictions, strict=True)), found.measured)
        with replacing(Path(picture)) as draft:
            draft.write_text(drawn, encoding="utf-8")
    first = found.predictions[0]
    if devices:
        each = found.predictions if strong else [first] * len(values)
        summaries = [s for results in loaded for s in results.summaries]
        scaling = on_devices.of_predictions(list(zip(values, each, strict=True)), summaries, strong)
        if form == "json":
            print_json(scaling.values())
            return
        print_table(steps.table([scaling]), form)
    elif form == "json":
        print_json([predictions.values(p, found.measured, found.alternatives) for p in found.predictions])
        return
    elif sweep:
        print_table(predictions.sweep_table(name, list(zip(values, found.predictions, strict=True))), form)
    else:
        if form is None:
            console = make_console()
            for label, text in predictions.summary(first, found.measured, found.alternatives, capacity):
                print_labelled(console, label, text)
            console.print()
        if by == "layer":
            print_table(predictions.layer_table(first, show_all or form is not None), form)
        else:
            print_table(predictions.table(first, None if show_all or form else predictions.MOST_ROWS), form)
    if path is not None and form is None:
        print(f"\n{path} has the kernels. To predict from it again:\n  {_again(path)}")


# Options that measure or write, which a second prediction from the same file does not need.
_ONCE = ("network", "measure", "validate", "budget", "output", "picture")


def _again(path: Path) -> str:
    """The command that predicts the same from the file."""
    context = click.get_current_context()
    words: list[str | Path] = [context.params["network"]]
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if option.name in _ONCE or value in (None, False, ()) or value == option.default:
            continue
        for each in value if isinstance(value, tuple) else (value,):
            words += [option.opts[0]] if each is True else [option.opts[0], str(each)]
    return command("predict", *words, "--with", path)


def _list(option: str, word: str) -> tuple[str, list[int]]:
    """`batch=1,2,4`."""
    found = pairs(option, [word])
    if len(found) != 1:
        raise BadInput(f"{option} changes one argument, such as batch=1,2,4; found {shorten(word)!r}")
    ((name, text),) = found.items()
    return name, _numbers(option, text, f"{name}=1,2,4")


def _numbers(option: str, text: str, wanted: str = "1,2,4") -> list[int]:
    words = text.split(",")
    if not all(word.isascii() and word.isdecimal() and 0 < len(word) < 11 and int(word) for word in words):
        raise BadInput(f"{option} wants {wanted}, found {shorten(text)!r}")
    return [int(word) for word in words]


def _divided(chosen: Mapping[str, str], devices: Sequence[int]) -> list[dict[str, str]]:
    """The arguments of a network for its part of the batch."""
    batch = chosen.get("batch", "")
    if not (batch.isascii() and batch.isdecimal() and len(batch) < 11):
        raise BadInput("--strong divides a batch; say which, such as --set batch=64")
    if uneven := [n for n in devices if int(batch) % n]:
        raise BadInput(f"{uneven[0]} devices do not divide the batch of {batch} evenly")
    return [{**chosen, "batch": str(int(batch) // n)} for n in devices]


def _bytes(text: str) -> int:
    from deepbench.plan.fit import Limit

    with contextlib.suppress(BadInput):
        if size := Limit.parse(text).bytes:
            return size
    raise BadInput(f"--memory wants a size such as 16GiB, found {shorten(text)!r}")
