"""`deepbench whatif`: what a change of hardware or of a library does to applications."""

from __future__ import annotations

from pathlib import Path

import click

from deepbench.api.text import BadInput, replacing
from deepbench.cli.console import print_text, warn_of_gaps
from deepbench.cli.options import form_options, require_suffix, skip_damaged_option, whole
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import say

MOST_CHANGES = 12


@cli.command(context_settings=HELP, short_help="Say what a change of hardware does to applications.")
@click.argument("file", metavar="FILE|SUITE")
@click.option("--set", "changes", multiple=True, metavar="KNOB", help="Change this, such as peak.bf16*2. Repeatable.")
@click.option("--application", "name", metavar="NAME", help="Only applications whose name contains this.")
@click.option("--precision", metavar="P", help="Only kernels in this precision, such as bf16.")
@click.option("--with", "kernels", metavar="FILE", help="Of a SUITE: the result file with its kernels.")
@click.option("--backend", "library", metavar="NAME", help="Of a SUITE: the library of its kernels (default: torch).")
@click.option("--threads", metavar="N", help="Only times with N threads (default: the number that most times have).")
@click.option("--hardware", metavar="TOML", help="The hardware of FILE, in place of the limits in it.")
@click.option("--on", "other", metavar="TOML|GPU", help="Predict the time on other hardware, by the model alone.")
@click.option("--full", is_flag=True, help="List every kernel, not only those that change most.")
@click.option("--write-hardware", "output", metavar="TOML", help="Write the measured hardware of FILE, to edit it.")
@skip_damaged_option
@form_options
def whatif(
    file: str,
    changes: tuple[str, ...],
    name: str | None,
    precision: str | None,
    kernels: str | None,
    library: str | None,
    threads: str | None,
    hardware: str | None,
    other: str | None,
    full: bool,
    output: str | None,
    skip_damaged: bool,
    form: str | None,
) -> None:
    """Say what a change of hardware, or of a library, does to the applications of a result file, and which helps most.

    A knob is a value with * or / and a factor, or = and a value: peak.bf16*2, memory.bytes_per_s*1.5 (main memory),
    memory.L2.bytes*2, overhead.call_s/2, 'time.onednn/2 where n<=8'. Each --set is shown alone, and all together;
    several knobs with commas are one change. Without --set: how much each knob matters. SUITE is a network that
    deepbench trace wrote.

    \b
    Examples:
      deepbench whatif speech.jsonl --set memory.bytes_per_s*2 --set peak.bf16*2
      deepbench whatif mlperf.jsonl --application deepspeech
      deepbench whatif mlperf.jsonl --write-hardware mine.toml
      deepbench whatif mlperf.jsonl --on theirs.toml
      deepbench whatif mymodel.suite --with kernels.jsonl --set peak.f32*2
    """
    from deepbench.api.results import load_kernels
    from deepbench.networks import api

    if other is not None and changes:
        raise BadInput("--on asks the model about other hardware; leave out --set")
    if len(changes) > MOST_CHANGES:
        raise BadInput(f"--set is given {len(changes)} times; at most {MOST_CHANGES} changes are compared")
    is_suite = Path(file).suffix.lower() == api.SUITE
    if is_suite and (name or precision or kernels is None):
        raise BadInput(
            f"{file} is one network; name the result file with its kernels: --with FILE, and no --application"
        )
    if not is_suite and (kernels or library):
        raise BadInput(f"--with and --backend are for a suite that deepbench trace wrote, and {file} is none")
    results = load_kernels(kernels or file, skip_damaged=skip_damaged)
    warn_of_gaps(results)
    answer = api.what_if(
        results,
        *changes,
        network=file if is_suite else None,
        library=library or "torch",
        application=name,
        precision=precision,
        threads=whole("--threads", threads, 4096),
        hardware=hardware,
    )
    if output is not None:
        require_suffix("--write-hardware", output, (".toml",))
        with replacing(Path(output)) as draft:
            draft.write_text(answer.model.hardware.toml(), encoding="utf-8")
        say(f"{output}: the hardware of {file}")
    elif other is not None:
        print_text(api.on_other_hardware(answer, other), form)
    else:
        print_text(api.what_if_report(answer, full), form)
