"""`deepbench train`: applications that are trained to a given accuracy."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from deepbench.cli.console import make_console, print_head
from deepbench.cli.interrupts import EXIT_INTERRUPTED, interruptible
from deepbench.cli.options import whole
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import go_on_without_output, say
from deepbench.core.errors import BadInput
from deepbench.core.shell import command

ALL = "all"


@cli.command(context_settings=HELP, short_help="Train applications to a given accuracy.")
@click.argument("applications", metavar="APPLICATION...", nargs=-1)
@click.option("--rung", default="mini", metavar="NAME", help="The size: mini (default) or small.")
@click.option("--seeds", default="5", metavar="N", help="How many runs of each, with different seeds (default: 5).")
@click.option("--framework", default="torch", metavar="NAME", help="torch (default), or jax.")
@click.option("--device", default="cpu", metavar="NAME", help="cpu (default), or cuda.")
@click.option("--precision", default="f32", metavar="P", help="f32 (default), or bf16: products in 16 bits.")
@click.option("--threads", metavar="N", help="Threads of each run (default: all cores).")
@click.option("--batch", metavar="N", help="Samples of a step, in place of those of the rung.")
@click.option("-o", "--output", metavar="FILE", help="The new result file (default: train-<date>-<time>.jsonl).")
@click.option("--resume", is_flag=True, help="Go on with the file of -o.")
def train(
    applications: tuple[str, ...],
    rung: str,
    seeds: str,
    framework: str,
    device: str,
    precision: str,
    threads: str | None,
    batch: str | None,
    output: str | None,
    resume: bool,
) -> int:
    """Train applications, and say how many samples they need to reach their target, and how fast they take them.

    Every run trains on the same number of samples, and all events are kept in a file. Data is not downloaded here:
    see `deepbench data`.

    \b
    Examples:
      deepbench train image
      deepbench train image --framework jax
      deepbench train all --seeds 3 -o mine.jsonl
      deepbench train --resume -o mine.jsonl
    """
    from deepbench.core.case import thread_count
    from deepbench.judge.trained import runs_of, trained
    from deepbench.machine import describe
    from deepbench.measure.session import Step
    from deepbench.report import training as tables
    from deepbench.report.progress import Bar
    from deepbench.training.application import Setup
    from deepbench.training.application import applications as known
    from deepbench.training.session import Progress, TrainingSession, resolved

    if resume:
        if output is None or applications:
            raise BadInput("--resume goes on with a file: deepbench train --resume -o FILE")
        session = TrainingSession.resume(Path(output))
    else:
        if not applications:
            raise BadInput(f"name an application: {', '.join([*known(), ALL])}")
        names = list(known()) if ALL in applications else list(dict.fromkeys(applications))
        count = thread_count(threads) if threads else describe.default_threads()
        samples = whole("--batch", batch, 2**20)
        runs = whole("--seeds", seeds, 1000) or 1
        setups = [
            resolved(Setup(name, rung, framework, device, precision, count, seed, samples))  # type: ignore[arg-type]
            for seed in range(runs)
            for name in names
        ]
        path = Path(output or f"train-{datetime.now().strftime('%Y%m%d-%H%M%S')}.jsonl")
        session = TrainingSession.create(path, setups)
    with session:
        path, console = session.file.path, make_console()
        go_on_without_output(f"all results still go to {path}")
        print_head(console, session.file)
        total = sum(s["samples"] for s in session.file.header["plan"]["training"])
        before = [0]
        for setup in session.file.header["plan"]["training"]:
            before.append(before[-1] + setup["samples"])

        def step(at: Progress) -> Step:
            quality = f", {at.setup['metric']} {tables.quality_text(at.setup, at.quality)}" if at.quality else ""
            text = f"{at.setup['application']}, seed {at.setup['seed']}{quality}"
            return Step(text, before[at.run] + at.samples, total)

        code = 0
        try:
            with Bar(console) as bar, interruptible():
                session.run(lambda at: bar(step(at)))
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
        console.print()
        tables.table(trained(runs_of(session.file))).print(console)
        if code:
            again = command("train", "--resume", "-o", path)
            say(f"interrupted; {path} has everything so far. To continue: {again}")
    return code
