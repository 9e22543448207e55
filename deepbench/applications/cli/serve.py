"""`deepbench serve`: models that were trained answer queries."""

from __future__ import annotations

import os
from pathlib import Path

import click

from deepbench.api.text import command
from deepbench.cli.console import make_console, print_head, progress_bar
from deepbench.cli.interrupts import EXIT_INTERRUPTED
from deepbench.cli.options import seconds as seconds_of
from deepbench.cli.options import whole
from deepbench.cli.root import EXIT_WRONG, HELP, cli
from deepbench.cli.streams import go_on_without_output, say

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
    from deepbench.api.filters import thread_count
    from deepbench.applications import api
    from deepbench.applications.results import ServingResults

    bound_ms = seconds_of("--latency-ms", latency_ms)
    session = api.serving_session(
        file,
        scenario=scenario,
        batch=whole("--batch", batch, 2**20),
        seconds=seconds_of("--seconds", seconds),
        latency_s=None if bound_ms is None else bound_ms / 1e3,
        driver=driver,
        threads=thread_count(threads) if threads else None,
        device=device,
        timeout_s=seconds_of("--timeout", timeout),
        output=output,
    )
    with session:
        path, console, code = session.file.path, make_console(), 0
        go_on_without_output(f"all results still go to {path}")
        print_head(console, ServingResults(session.file), os.environ)
        try:
            with progress_bar(console) as bar:
                api.run_serving(session, bar)
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
        found = ServingResults(session.added)
        found.report().print(console)
    states = [one.line["status"] for one in found.served]
    if code:
        again = command("serve", Path(file), *(("-o", Path(output)) if output else ()))
        say(f"interrupted; {path} has what has ended. Again: {again}")
    elif "wrong" in states or "ok" not in states:
        code = EXIT_WRONG
    return code
