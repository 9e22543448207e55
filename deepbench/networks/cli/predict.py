"""`deepbench predict`: the time of a step from the measured times of its kernels."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepbench.api.text import BadInput, command, replacing, shorten
from deepbench.cli.console import print_summary, print_text
from deepbench.cli.options import duration, form_options, pairs, price_option, prices_of, require_suffix, whole
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import say

if TYPE_CHECKING:
    from deepbench.networks.api import Predicted


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
@click.option("--precision", metavar="P", help="Of a model of a suite: of its kernels (default: f32; with --on fp8).")
@click.option("--sweep", metavar="NAME=A,B", help="One prediction for each value of an argument, such as batch=1,2,4.")
@click.option("--devices", metavar="N,N", help="A training step on so many devices, with all-reduces of the files.")
@click.option("--strong", is_flag=True, help="With --devices: they divide the batch of --set batch=N.")
@click.option("--memory", metavar="SIZE", help="How many devices with so much memory, such as 16GiB, hold the step.")
@click.option("--budget", metavar="TIME", help="Measure for at most TIME, such as 10min.")
@click.option("-o", "--output", metavar="FILE", help="The new result file (default: predict-<date>-<time>.jsonl).")
@click.option("--on", multiple=True, metavar="GPU", help="A server of a language model on this GPU. Repeatable.")
@click.option("--batch", metavar="N", help="With --on: requests at the same time (default: 32).")
@click.option("--prompt", metavar="N", help="With --on: tokens of a prompt (default: 1024); --output N: of an answer.")
@click.option("--framework", metavar="F", help="With --on: vllm, sglang or trtllm (default: each).")
@click.option("--data", metavar="N", help="With --on: groups of data-parallel attention (default: 1).")
@click.option("--expert", metavar="N", help="With --on: expert parallelism (default: each expert is divided).")
@click.option("--equal-lengths", is_flag=True, help="With --on: all requests have the same lengths.")
@price_option
@click.option("--by", type=click.Choice(["kernel", "layer"]), default="kernel", help="What the table lists.")
@click.option("--picture", metavar="FILE", help="Draw predicted and measured steps as bars, into this .svg file.")
@click.option("--all", "show_all", is_flag=True, help="Print every kernel.")
@form_options
def predict(network: str, by: str, show_all: bool, form: str | None, **words: Any) -> None:
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
      deepbench predict llm/llama31_70b --on h100_sxm --devices 4 --batch 64
    """
    if words["on"]:
        if by != "kernel" or show_all:
            raise BadInput("--by and --all list the kernels of a network; leave them out with --on")
        print_text(_server(network, words), form)
        return
    if named := [name for name in _OF_SERVERS if words[name]]:
        raise BadInput(f"--{named[0].replace('_', '-')} is for a server: name a GPU with --on, such as --on h100_sxm")
    words["precision"] = words["precision"] or "f32"
    if words["picture"] is not None:
        require_suffix("--picture", words["picture"], (".svg",))
    found = _predicted(network, words)
    if words["picture"] is not None:
        with replacing(Path(words["picture"])) as draft:
            draft.write_text(found.picture(), encoding="utf-8")
    if form is None and (lines := found.summary()):
        print_summary(lines)
    print_text(found.report(by, show_all), form)
    if found.forecast.file is not None and form is None:
        path = found.forecast.file
        if found.forecast.has_times:
            say(f"\n{path} has the kernels. To predict from it again:\n  {_again(path)}")
        else:
            say(f"\n{path} says why no kernel has a time:\n  {command('show', path)}")


# Options of servers alone, and those that a server does not have.
_OF_SERVERS = ("batch", "prompt", "framework", "data", "expert", "equal_lengths", "prices")
_OF_STEPS = ("files", "measure", "validate", "train", "settings", "sweep", "strong", "memory", "budget", "picture")


def _server(network: str, words: dict[str, Any]) -> Any:
    """The prediction of servers on the GPUs that `--on` names."""
    from deepbench.networks import api

    if named := [name for name in _OF_STEPS if words[name]]:
        option = {"files": "with", "settings": "set"}.get(named[0], named[0])
        raise BadInput(f"--{option} is for a step of a network; leave it out with --on")
    numbers = {
        name: whole(f"--{name}", words[name], 2**24)
        for name in ("devices", "batch", "prompt", "output", "data", "expert")
        if words[name] is not None
    }
    return api.predict_server(
        network,
        words["on"],
        precision=words["precision"] or "fp8",
        framework=words["framework"],
        equal_lengths=words["equal_lengths"],
        prices=prices_of(words["prices"], words["on"][0]),
        **numbers,
    )


def _predicted(network: str, words: dict[str, Any]) -> Predicted:
    """The prediction that the words of the options ask for."""
    from deepbench.api.filters import thread_count
    from deepbench.networks import api

    if not (words["files"] or words["measure"] or words["validate"]):
        raise BadInput("name a result file with --with FILE, or measure the kernels with --measure")
    return api.predict(
        network,
        *words["files"],
        sweep=_sweep(words["sweep"]) if words["sweep"] else None,
        devices=_numbers("--devices", words["devices"]) if words["devices"] else (),
        strong=words["strong"],
        memory=words["memory"],
        measure=words["measure"],
        validate=words["validate"],
        budget_s=duration("--budget", words["budget"] or None),
        output=words["output"] or f"predict-{datetime.now().strftime('%Y%m%d-%H%M%S')}.jsonl",
        progress=True,
        train=words["train"],
        settings=pairs("--set", words["settings"]),
        optimizer=words["optimizer"],
        precision=words["precision"],
        library=words["library"],
        threads=thread_count(words["threads"]) if words["threads"] is not None else 1,
    )


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


def _sweep(word: str) -> dict[str, list[int]]:
    """`batch=1,2,4`."""
    found = pairs("--sweep", [word])
    if len(found) != 1:
        raise BadInput(f"--sweep changes one argument, such as batch=1,2,4; found {shorten(word)!r}")
    return {name: _numbers("--sweep", text, f"{name}=1,2,4") for name, text in found.items()}


def _numbers(option: str, text: str, wanted: str = "1,2,4") -> list[int]:
    words = text.split(",")
    if not all(word.isascii() and word.isdecimal() and 0 < len(word) < 11 and int(word) for word in words):
        raise BadInput(f"{option} wants {wanted}, found {shorten(text)!r}")
    return [int(word) for word in words]
