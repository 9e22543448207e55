"""`deepbench serve`: models that were trained answer queries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deepbench.cli.console import make_console, print_head, print_served
from deepbench.cli.interrupts import EXIT_INTERRUPTED, interruptible
from deepbench.cli.options import seconds as seconds_of
from deepbench.cli.options import whole
from deepbench.cli.root import EXIT_WRONG, HELP, cli
from deepbench.cli.streams import go_on_without_output, say
from deepbench.core.errors import BadInput, Unavailable
from deepbench.core.shell import command

if TYPE_CHECKING:
    from deepbench.results.record import Scenario

ALL = "all"


@cli.command(context_settings=HELP, short_help="Let trained models answer queries.")
@click.argument("file", metavar="FILE")
@click.option("--scenario", default=ALL, metavar="NAME", help="single, multi, server, offline, or all (default).")
@click.option("--batch", metavar="N", help="Largest batch (default: 128).")
@click.option(
    "--seconds", metavar="S", help="Seconds per scenario (default: 5); server takes two to five times as long."
)
@click.option(
    "--latency-ms",
    metavar="T",
    help="Latency bound of the server scenario (default: 10 times the median latency of one sample, at least 15 ms).",
)
@click.option("--threads", metavar="N", help="Threads of the model (default: as in training).")
@click.option("--device", metavar="NAME", help="cpu, or cuda (default: as in training).")
@click.option(
    "--driver", default="deepbench", metavar="NAME", help="deepbench (default), or loadgen: also run MLPerf's LoadGen."
)
@click.option("--timeout", metavar="S", help="Stop a model that reports nothing for S seconds (default: 300).")
@click.option("-o", "--output", metavar="FILE", help="Write to this result file (default: append to FILE).")
def serve(
    file: str,
    scenario: str,
    batch: str | None,
    seconds: str | None,
    latency_ms: str | None,
    threads: str | None,
    device: str | None,
    driver: str,
    timeout: str | None,
    output: str | None,
) -> int:
    """Measure inference with the models of the result file FILE: latency, throughput and quality of the answers.

    \b
    single   one sample, the next when it is answered: 90th percentile of latency
    multi    the same with 8 samples: 99th percentile of latency
    server   samples at random times: the highest rate at which the 99th
             percentile of latency meets a bound
    offline  all test samples at once: samples per second

    \b
    Examples:
      deepbench serve mine.jsonl
      deepbench serve mine.jsonl --scenario server --latency-ms 20 -o server.jsonl
    """
    from deepbench.core.case import thread_count
    from deepbench.core.progress import Activity
    from deepbench.judge.serving import served
    from deepbench.report.progress import Bar
    from deepbench.training import inference

    if driver not in ("deepbench", "loadgen"):
        raise BadInput(f"--driver is deepbench or loadgen, found {driver!r:.40}")
    bound_ms = seconds_of("--latency-ms", latency_ms)
    options = inference.Options(
        _scenarios(scenario),
        whole("--batch", batch, 2**20) or inference.BATCH,
        seconds_of("--seconds", seconds) or inference.SECONDS,
        None if bound_ms is None else bound_ms / 1e3,
        "loadgen" if driver == "loadgen" else "deepbench",
        thread_count(threads) if threads else None,
        device,
        seconds_of("--timeout", timeout) or inference.TIMEOUT_S,
    )
    try:
        session = inference.InferenceSession.open(Path(file), options, Path(output) if output else None)
    except Unavailable as error:
        raise BadInput(str(error)) from None
    with session:
        before, console = len(session.file.serving), make_console()
        go_on_without_output(f"all results still go to {session.file.path}")
        print_head(console, session.file, os.environ)

        def step(at: inference.Progress) -> Activity:
            return Activity(f"{at.setup['application']}, {at.scenario}", at.done, at.total)

        code = 0
        try:
            with Bar(console) as bar, interruptible():
                session.run(lambda at: bar(step(at)))
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
        session.file.serving = session.file.serving[before:]
        found = served(session.file)
        print_served(found)
    if code:
        again = command("serve", Path(file), *(("-o", Path(output)) if output else ()))
        say(f"interrupted; {session.file.path} has what has ended. Again: {again}")
    elif any(one.line["status"] == "wrong" for one in found) or not any(one.line["status"] == "ok" for one in found):
        code = EXIT_WRONG
    return code


def _scenarios(name: str) -> tuple[Scenario, ...]:
    from deepbench.results.record import SCENARIOS

    if name == ALL:
        return SCENARIOS
    for scenario in SCENARIOS:
        if scenario == name and scenario != "batches":
            # How large a batch has to be is what offline answers, too.
            return ("batches", scenario) if scenario == "offline" else (scenario,)
    raise BadInput(f"--scenario is single, multi, server, offline or all, found {name!r:.40}")
