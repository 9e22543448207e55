"""`deepbench train`: applications that are trained to a given accuracy."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from deepbench.api.text import BadInput, NotWritten, command
from deepbench.cli.console import make_console, print_head, print_summary, progress_bar
from deepbench.cli.interrupts import EXIT_INTERRUPTED
from deepbench.cli.launch import resumed_place, taking_place
from deepbench.cli.options import is_trusted, whole
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import go_on_without_output, say, warn

if TYPE_CHECKING:
    from deepbench.applications.api import Setting, TrainingSession, TrainingSetup

# No run trained to its end.
EXIT_FAILED = 1


@cli.command(context_settings=HELP, short_help="Train applications to a given accuracy.")
@click.argument("applications", metavar="APPLICATION...", nargs=-1)
@click.option("--rung", default="mini", metavar="NAME", help="The size: mini (default), small, or full.")
@click.option("--seeds", default="5", metavar="N", help="Runs of each application, with seeds 0 to N-1 (default: 5).")
@click.option("--seed", metavar="N[,N...]", help="One run of each application for each of these seeds.")
@click.option("--framework", default="torch", metavar="NAME", help="torch (default), or jax.")
@click.option("--device", default="cpu", metavar="NAME", help="cpu (default), or cuda.")
@click.option("--precision", default="f32", metavar="P", help="f32 (default), or bf16: products in 16 bits.")
@click.option("--ranks", metavar="N", help="Processes that share each batch (default: 1, or those of a launcher).")
@click.option("--hostfile", metavar="FILE", help="Hosts of the ranks, one per line.")
@click.option("--trust", metavar="FILE", help="With --resume: start as many ranks as FILE says, on the hosts it names.")
@click.option("--threads", metavar="N", help="Threads of each rank (default: all cores, shared by the ranks).")
@click.option("--batch", metavar="N", help="Samples per step (default: that of the rung).")
@click.option("--sweep", metavar="NAME=A,B,...", help="Train with each value of batch, threads, ranks or precision.")
@click.option("--explain", is_flag=True, help="Do not train; explain the time of one step by its kernels.")
@click.option("--all", "show_all", is_flag=True, help="With --explain: print every kernel.")
@click.option("-o", "--output", metavar="FILE", help="The new result file (default: train-<date>-<time>.jsonl).")
@click.option("--resume", is_flag=True, help="Continue the runs of the file that -o names.")
def train(applications: tuple[str, ...], **words: Any) -> int:
    """Train applications to a target quality, and report the samples to the target and the samples per second.

    APPLICATION is image, detection, speech, translation, sentiment, recommendation, go, or all. Every run of a rung
    trains on the same number of samples. All events are stored in the result file. This command downloads no data:
    see `deepbench data`.

    \b
    Examples:
      deepbench train image
      deepbench train image --framework jax
      deepbench train image --seed 7,11
      deepbench train all --seeds 3 -o mine.jsonl
      deepbench train image --sweep batch=128,256,512,1024
      deepbench train image --sweep ranks=1,2 --threads 1
      torchrun --nproc-per-node 2 -m deepbench train image
      deepbench train --resume -o mine.jsonl
    """
    from deepbench.api.groups import hosts_of_file, launched
    from deepbench.applications import api

    place = launched()
    given = _given()
    if words["resume"]:
        return _resume(words, given)
    if words["trust"] is not None:
        raise BadInput("--trust FILE belongs to --resume -o FILE")
    if not applications:
        raise BadInput(f"name an application: {', '.join([*api.known_applications(), api.ALL])}")
    if place is not None and (words["ranks"] or words["hostfile"]):
        raise BadInput(f"leave out --ranks and --hostfile: {place.launcher} has started {place.ranks} ranks")
    if place is not None:
        words["ranks"] = str(place.ranks)
    setups = api.plan_training(applications, **_setting(words))
    if words["explain"]:
        allowed = {"applications", "explain", "show_all", "rung", "threads", "batch", "precision", "output"}
        if given - allowed or place is not None:
            raise BadInput("--explain takes --rung, --threads, --batch and --precision, for PyTorch on CPUs")
        return _explain([setup for setup in setups if setup["seed"] == 0], words["output"], words["show_all"])
    if words["show_all"]:
        raise BadInput("--all goes with --explain; for all applications, the command is deepbench train all")
    with taking_place(place, True) as hosts:
        if hostfile := words["hostfile"]:
            hosts = hosts_of_file(hostfile)
            _require_here(hostfile, hosts)
        path = Path(words["output"] or f"train-{datetime.now().strftime('%Y%m%d-%H%M%S')}.jsonl")
        with api.TrainingSession.create(path, setups, sys.argv[1:], hosts) as session:
            return _train(session)


def _resume(words: Mapping[str, Any], given: set[str | None]) -> int:
    """Continue the runs of a file."""
    from deepbench.applications import api

    output, hostfile = words["output"], words["hostfile"]
    if output is None or given - {"resume", "output", "hostfile", "trust"}:
        raise BadInput("--resume takes everything from the file; the command is deepbench train --resume -o FILE")
    trusted = is_trusted(output, words["trust"])
    with resumed_place(hostfile) as (hosts, ranks):
        if hostfile:
            _require_here(hostfile, hosts)
        session = api.TrainingSession.resume(Path(output), hosts, trusted=trusted, started=ranks)
        with session:
            return _train(session)


def _require_here(hostfile: str, hosts: Sequence[str]) -> None:
    if hosts[0] not in ("localhost", socket.gethostname()) and not hosts[0].startswith("127."):
        raise BadInput(f"the first host of {hostfile} must be this machine, which stores the checkpoints")


def _given() -> set[str | None]:
    """The names of the options that the command line has."""
    context = click.get_current_context()
    names = (parameter.name for parameter in context.command.params)
    return {name for name in names if context.get_parameter_source(name or "") is ParameterSource.COMMANDLINE}


def _setting(words: Mapping[str, Any]) -> Setting:
    """How to train, from the words of the options."""
    from deepbench.applications.api import SWEPT

    setting, _, values = (words["sweep"] or "").partition("=")
    chosen = [value.strip() for value in values.split(",")]
    if (sweep := words["sweep"]) is not None:
        if setting not in SWEPT or not all(chosen):
            raise BadInput(f"--sweep is {sweep!r:.60}, wanted NAME=A,B,... with one of {', '.join(SWEPT)}")
        if len(set(chosen)) < len(chosen):
            raise BadInput(f"--sweep is {sweep!r:.60}, and has a value twice")
        if words[setting] not in (None, "f32"):
            raise BadInput(f"leave out --{setting}: --sweep gives its values")
    return {
        "rung": words["rung"],
        "seeds": _seeds(words),
        "framework": words["framework"],
        "device": words["device"],
        "precision": words["precision"],
        "ranks": _value("ranks", words["ranks"]) or 1,
        "threads": _value("threads", words["threads"]),
        "batch": _value("batch", words["batch"]),
        "sweep": {setting: [_value(setting, value) for value in chosen]} if sweep is not None else None,
    }


def _seeds(words: Mapping[str, Any]) -> int | list[int]:
    """How many seeds, from 0 up; or those that are named."""
    from deepbench.api.filters import whole_number

    if words["seed"] is None:
        return whole("--seeds", words["seeds"], 1000) or 1
    if "seeds" in _given():
        raise BadInput("--seed names the seeds and --seeds their number; leave out one")
    return [whole_number("--seed", text.strip()) for text in words["seed"].split(",")]


def _value(name: str, text: str | None) -> Any:
    """The value of an option that a sweep can change."""
    from deepbench.api.filters import thread_count

    if name == "threads":
        return thread_count(text) if text else None
    return text if name == "precision" else whole(f"--{name}", text, {"ranks": 4096, "batch": 2**20}[name])


def _train(session: TrainingSession) -> int:
    """Train what the session plans, and print the table; the exit code of the command."""
    from deepbench.applications.api import Stopped, run_training
    from deepbench.applications.results import TrainingResults

    path, console = session.file.path, make_console()
    go_on = f"{path} has everything so far. To continue: {command('train', '--resume', '-o', path)}"
    go_on_without_output(f"all results still go to {path}")
    results = TrainingResults(session.file)
    print_head(console, results, os.environ)
    code = 0
    try:
        with progress_bar(console) as bar:
            run_training(session, bar)
    except (NotWritten, Stopped) as error:
        raise BadInput(f"{error}. {go_on}") from None
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    finally:
        for note in session.notes:
            warn(note)
    results = TrainingResults(session.file)
    results.report().print(console)
    if code:
        say(f"interrupted; {go_on}")
    return code or (0 if any(run.status == "ok" for one in results.trained for run in one.runs) else EXIT_FAILED)


def _explain(setups: Sequence[TrainingSetup], output: str | None, show_all: bool) -> int:
    """The kernels of one step of each application, what they explain of it, and what a faster one would change."""
    from deepbench.applications.api import explain_step

    console = make_console()
    stem = output.removesuffix(".jsonl") if output else f"explain-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
    for setup in setups:
        path = output if output and len(setups) == 1 else f"{stem}-{setup['application']}.jsonl"
        with progress_bar(console) as bar:
            found = explain_step(setup, path, bar)
        console.print(f"\n{found.title}", style="bold")
        print_summary(found.summary())
        found.predicted.report(full=show_all).print(console)
        for line in found.faster_kernels():
            console.print(line, markup=False)
        say(f"{found.path} has the kernels and the step")
    return 0
