"""`deepbench rank`: which machine for which application."""

from __future__ import annotations

import click

from deepbench.api.text import BadInput
from deepbench.cli.console import print_text, warn_of_gaps
from deepbench.cli.options import comma_list, form_options, pairs, price_option, prices_of, skip_damaged_option, whole
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import warn


@cli.command(context_settings=HELP, short_help="Say which machine serves an application best.")
@click.argument("names", metavar="FILE_OR_MACHINE...", nargs=-1, required=True)
@click.option("--application", metavar="A", help='Rank by this application: "Speech Recognition" or speech.')
@price_option
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    metavar="P",
    callback=comma_list,
    help="Only these precisions, such as bf16; 8, 16 or 32 bits; or all (default: all that meet DeepBench's minimum).",
)
@click.option("--phase", metavar="P", help="Of a model: decode or prefill.")
@click.option("--set", "settings", multiple=True, metavar="N=V", help="Of a model: batch=32, context=4096, tensor=2, …")
@click.option("--framework", metavar="F", help="Of a model: only times of vllm, sglang or trtllm (default: all).")
@click.option("--devices", metavar="N", help="Of a model: on N GPUs (default: the fewest that hold it).")
@skip_damaged_option
@form_options
def rank(
    names: tuple[str, ...],
    application: str | None,
    prices: tuple[str, ...],
    precisions: tuple[str, ...],
    phase: str | None,
    settings: tuple[str, ...],
    framework: str | None,
    devices: str | None,
    skip_damaged: bool,
    form: str | None,
) -> None:
    """Rank machines by the time of an application, or by its cost where prices are given, and say how certain it is.

    A machine is a result file, or one whose results the original DeepBench published: see deepbench published list.
    Without an application: a table of all applications and machines.

    With a language model first, GPUs are ranked by the time of its step, from published kernel times.

    \b
    Examples:
      deepbench rank old.jsonl new.jsonl V100
      deepbench rank a.jsonl b.jsonl --application "Speech Recognition"
      deepbench rank a.jsonl b.jsonl --price a=2.5/h --price b=1.9/h
      deepbench rank a.jsonl b.jsonl --precision 16
      deepbench rank llm/llama31_70b h100_sxm h200_sxm l40s --set batch=32
    """
    from deepbench.api.comparing import is_model, rank_gpus

    if is_model(names[0]):
        if application or skip_damaged or len(precisions) > 1:
            raise BadInput("--application, --skip-damaged and several precisions are for files, not for a model")
        print_text(
            rank_gpus(
                *names,
                phase=phase,
                settings=pairs("--set", settings),
                precision=precisions[0] if precisions else "bf16",
                framework=framework,
                prices=prices_of(prices, names[-1]),
                devices=whole("--devices", devices, 1024),
            ),
            form,
        )
        return
    if phase or settings or framework or devices:
        raise BadInput(
            "--phase, --set, --framework and --devices are for a model, which comes first: deepbench rank "
            "llm/llama31_70b h100_sxm h200_sxm"
        )
    from deepbench.api.comparing import rank as rank_machines
    from deepbench.api.submitting import rounds_of

    found = rank_machines(
        *names,
        application=application,
        prices=prices_of(prices, names[0]),
        precisions=precisions,
        skip_damaged=skip_damaged,
    )
    for results in found.files:
        warn_of_gaps(results)
    rounds = rounds_of(results.path for results in found.files)
    if len(rounds) > 1:
        warn(
            f"files of the rounds {' and '.join(rounds)}: their rules differ; only results of one round compare fairly"
        )
    print_text(found.report(), form)
