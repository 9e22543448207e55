"""`deepbench train`: applications that are trained to a given accuracy."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from deepbench.cli.console import make_console, print_head, print_labelled
from deepbench.cli.interrupts import EXIT_INTERRUPTED, interruptible
from deepbench.cli.launch import hosts_of_file, launched, taking_place
from deepbench.cli.options import whole
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import go_on_without_output, say
from deepbench.core import units
from deepbench.core.errors import BadInput
from deepbench.core.shell import command

if TYPE_CHECKING:
    from rich.console import Console

    from deepbench.results.file import ResultFile
    from deepbench.results.record import TrainingSetup
    from deepbench.training.application import Setup
    from deepbench.training.session import TrainingSession

ALL = "all"

# No run trained to its end.
EXIT_FAILED = 1


@cli.command(context_settings=HELP, short_help="Train applications to a given accuracy.")
@click.argument("applications", metavar="APPLICATION...", nargs=-1)
@click.option("--rung", default="mini", metavar="NAME", help="The size: mini (default), small, or full.")
@click.option("--seeds", default="5", metavar="N", help="Runs of each application, with seeds 0 to N-1 (default: 5).")
@click.option("--framework", default="torch", metavar="NAME", help="torch (default), or jax.")
@click.option("--device", default="cpu", metavar="NAME", help="cpu (default), or cuda.")
@click.option("--precision", default="f32", metavar="P", help="f32 (default), or bf16: products in 16 bits.")
@click.option("--ranks", metavar="N", help="Processes that share each batch (default: 1, or those of a launcher).")
@click.option("--hostfile", metavar="FILE", help="Hosts of the ranks, one per line.")
@click.option("--threads", metavar="N", help="Threads of each rank (default: all cores, shared by the ranks).")
@click.option("--batch", metavar="N", help="Samples per step (default: that of the rung).")
@click.option("--sweep", metavar="NAME=A,B,...", help="Train with each value of batch, threads, ranks or precision.")
@click.option("--explain", is_flag=True, help="Do not train; explain the time of one step by its kernels.")
@click.option("--all", "show_all", is_flag=True, help="With --explain: print every kernel.")
@click.option("-o", "--output", metavar="FILE", help="The new result file (default: train-<date>-<time>.jsonl).")
@click.option("--resume", is_flag=True, help="Continue the runs of the file that -o names.")
def train(
    applications: tuple[str, ...],
    rung: str,
    seeds: str,
    framework: str,
    device: str,
    precision: str,
    ranks: str | None,
    hostfile: str | None,
    threads: str | None,
    batch: str | None,
    sweep: str | None,
    explain: bool,
    show_all: bool,
    output: str | None,
    resume: bool,
) -> int:
    """Train applications to a target quality, and report the samples to the target and the samples per second.

    APPLICATION is image, detection, speech, translation, sentiment, recommendation, go, or all. Every run of a rung
    trains on the same number of samples. All events are stored in the result file. This command downloads no data:
    see `deepbench data`.

    \b
    Examples:
      deepbench train image
      deepbench train image --framework jax
      deepbench train all --seeds 3 -o mine.jsonl
      deepbench train image --sweep batch=128,256,512,1024
      deepbench train image --sweep ranks=1,2 --threads 1
      torchrun --nproc-per-node 2 -m deepbench train image
      deepbench train --resume -o mine.jsonl
    """
    from deepbench.training.application import applications as known
    from deepbench.training.session import TrainingSession, resolved

    place = launched()
    context = click.get_current_context()
    given_names = {p.name for p in context.command.params if _is_given(context, p)}
    if resume and (output is None or given_names - {"resume", "output"}):
        raise BadInput("--resume takes everything from the file; the command is deepbench train --resume -o FILE")
    if not resume and not applications:
        raise BadInput(f"name an application: {', '.join([*known(), ALL])}")
    if place is not None and (ranks or hostfile):
        raise BadInput(f"leave out --ranks and --hostfile: {place.launcher} has started {place.ranks} ranks")
    count = str(place.ranks) if place is not None else ranks
    given = {"precision": precision, "ranks": count, "threads": threads, "batch": batch}
    having = [name for name, one in known().items() if framework in one.frameworks and rung in one.rungs]
    names = having if ALL in applications else list(dict.fromkeys(applications))
    if not names and not resume:
        raise BadInput(f"no application has a version in {framework!r:.40} with the rung {rung!r:.40}")
    setups = [
        resolved(setup)
        for seed in range(whole("--seeds", seeds, 1000) or 1)
        for name in names
        for setup in _variants(name, rung, framework, device, seed, given, sweep)
    ]
    if explain:
        allowed = {"applications", "explain", "show_all", "rung", "threads", "batch", "precision", "output"}
        if given_names - allowed or place is not None:
            raise BadInput("--explain takes --rung, --threads, --batch and --precision, for PyTorch on CPUs")
        return _explain([setup for setup in setups if setup["seed"] == 0], output, show_all)
    if show_all:
        raise BadInput("--all goes with --explain; for all applications, the command is deepbench train all")
    with taking_place(place, True) as hosts:
        if hostfile:
            hosts = hosts_of_file(hostfile)
            if hosts[0] not in ("localhost", socket.gethostname()) and not hosts[0].startswith("127."):
                raise BadInput(f"the first host of {hostfile} must be this machine, which stores the checkpoints")
        path = Path(output or f"train-{datetime.now().strftime('%Y%m%d-%H%M%S')}.jsonl")
        make = (
            TrainingSession.resume(path, hosts) if resume else TrainingSession.create(path, setups, sys.argv[1:], hosts)
        )
        with make as session:
            return _train(session)


def _is_given(context: click.Context, parameter: click.Parameter) -> bool:
    source = context.get_parameter_source(parameter.name or "")
    return source is ParameterSource.COMMANDLINE


def _variants(
    name: str, rung: str, framework: str, device: str, seed: int, given: Mapping[str, str | None], sweep: str | None
) -> list[Setup]:
    """The runs of one seed of an application: one, or one for each value of a sweep."""
    from deepbench.core.case import thread_count
    from deepbench.machine import describe
    from deepbench.training.application import Setup

    setting, _, values = (sweep or "").partition("=")
    chosen = [value.strip() for value in values.split(",")]
    if sweep is not None and (setting not in given or not all(chosen)):
        raise BadInput(f"--sweep is {sweep!r:.60}, wanted NAME=A,B,... with one of {', '.join(given)}")
    if len(set(chosen)) < len(chosen):
        raise BadInput(f"--sweep is {sweep!r:.60}, and has a value twice")
    if sweep is not None and given[setting] not in (None, "f32"):
        raise BadInput(f"leave out --{setting}: --sweep gives its values")
    found = []
    for value in chosen:
        text = {**given, setting: value} if setting else given
        ranks = whole("--ranks", text["ranks"], 4096) or 1
        threads = thread_count(text["threads"]) if text["threads"] else max(1, describe.default_threads() // ranks)
        batch = whole("--batch", text["batch"], 2**20)
        words = (name, rung, framework, device, text["precision"])
        found.append(Setup(*words, ranks, threads, seed, batch))  # type: ignore[arg-type]
    return found


def _train(session: TrainingSession) -> int:
    """Train what the session plans, and print the table; the exit code of the command."""
    from deepbench.api import run_training
    from deepbench.report.progress import Bar

    path, console = session.file.path, make_console()
    go_on_without_output(f"all results still go to {path}")
    print_head(console, session.file, os.environ)
    code = 0
    try:
        with Bar(console) as bar, interruptible():
            run_training(session, bar)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    console.print()
    print_trained(console, session.file)
    if code:
        again = command("train", "--resume", "-o", path)
        say(f"interrupted; {path} has everything so far. To continue: {again}")
    ends = [event["end"]["status"] for event in session.file.training if "end" in event]
    return code or (0 if "ok" in ends else EXIT_FAILED)


def _explain(setups: Sequence[TrainingSetup], output: str | None, show_all: bool) -> int:
    """The kernels of one step of each application, what they explain of it, and what a faster one would change."""
    from deepbench.measure.session import Options
    from deepbench.networks.forecast import forecast
    from deepbench.networks.read import read
    from deepbench.networks.runner import Request
    from deepbench.report import predictions
    from deepbench.report.progress import Bar
    from deepbench.training import step
    from deepbench.training.application import find_application

    console, program = make_console(), f"{step.__file__}:build"
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    for setup in setups:
        name = setup["application"]
        stem = output.removesuffix(".jsonl") if output else f"explain-{stamp}"
        path = Path(f"{stem}-{name}.jsonl" if len(setups) > 1 or not output else output)
        settings = {n: str(setup[n]) for n in ("application", "rung", "batch", "precision")}
        trace = read(program, settings, is_training=True)
        request = Request(program, settings, True, "none", setup["threads"])
        with Bar(console) as bar:
            found = forecast(
                [trace], [], library="torch", threads=setup["threads"], output=path, network=request,
                options=Options("steps"), progress=bar,
            )  # fmt: skip
        console.print(f"\n{name}, rung {setup['rung']}: one training step of {setup['batch']:,} samples", style="bold")
        prediction = found.predictions[0]
        for label, text in predictions.summary(prediction, found.measured, found.alternatives):
            print_labelled(console, label, text)
        if found.measured is not None and prediction.time is not None:
            share = prediction.measured_share * prediction.time.seconds / found.measured.seconds
            text = f"measured kernels are {units.percent(share)} of the measured step"
            print_labelled(console, "explained", text if prediction.is_trusted else predictions.WITHHELD)
        if left_out := find_application(name).outside_steps:
            print_labelled(console, "left out", left_out)
        console.print()
        predictions.table(prediction, None if show_all else predictions.MOST_ROWS).print(console)
        for line in predictions.faster_kernels(prediction):
            console.print(line, markup=False)
        say(f"{path} has the kernels and the step")
    return 0


def print_trained(console: Console, file: ResultFile) -> None:
    """What the runs of a file reached and how fast, and where their time went."""
    from deepbench.judge.trained import runs_of, trained
    from deepbench.report import training as tables

    found = trained(runs_of(file))
    console.print(tables.common(found), markup=False)
    tables.table(found).print(console)
    parts = tables.parts_table(found)
    if parts.rows:
        console.print()
        parts.print(console)
