"""`deepbench estimate`: times of problems on hardware that is only described."""

from __future__ import annotations

from typing import Any

import click

from deepbench.api.text import command, count
from deepbench.cli.options import choices_of, choosing_options
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import say, warn_each


@cli.command(context_settings=HELP, short_help="Estimate times on hardware that is only described.")
@click.argument("words", metavar="[SUITE|CASE]...", nargs=-1, required=True)
@click.option("--hardware", metavar="TOML", required=True, help="A file of hardware (docs/what-if.md), or a GPU.")
@click.option("--output", "-o", metavar="FILE", help="The result file (default: the name of TOML with .jsonl).")
@choosing_options("--op", "--precision", "--direction", "--application", "--set", "--fit")
def estimate(words: tuple[str, ...], hardware: str, output: str | None, **filters: Any) -> None:
    """Estimate the time of every problem on described hardware, and write it to a result file.

    The time is that of the model without fitted constants: what peaks and bandwidths allow, and the cycles of a
    systolic array where the file has [array]. Software may take much longer. show, compare, rank, whatif and report
    read the file, and mark its times as simulated.

    \b
    Examples:
      deepbench estimate mlperf llm --hardware mine.toml -o mine.jsonl
      deepbench estimate deepbench/server --precision i8u8 --hardware mine.toml
      deepbench estimate gemm m=4096 n=4096 k=4096 bf16 --hardware h100_sxm
    """
    from deepbench.networks import api

    target, found, results = api.estimated(words, hardware, output, choices_of(filters))
    warn_each("note", found.remarks)
    warn_each("left out", found.left_out)
    say(f"wrote {target}: {count(results, 'estimate')}; to see them: {command('show', target)}")
