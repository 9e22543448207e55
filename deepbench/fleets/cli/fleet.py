"""`deepbench fleet`: the same cases on many hosts, and which of them stand out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepbench.api.text import BadInput, command
from deepbench.cli.console import make_console, progress_bar
from deepbench.cli.interrupts import EXIT_INTERRUPTED
from deepbench.cli.options import case_options, choices_of, seconds, whole
from deepbench.cli.root import EXIT_BAD_INPUT, EXIT_WRONG, HELP, cli
from deepbench.cli.streams import go_on_without_output
from deepbench.fleets.cli.jobs import Job, job_options, submit_job

if TYPE_CHECKING:
    from deepbench.fleets.api import FleetSession


def _group(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Options that belong together, as one decorator."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


host_options = _group(
    click.option("--hosts", metavar="NAMES", help="Hosts: a,b or node[001-512] or @group."),
    click.option("--hostfile", metavar="FILE", help="Hosts, one name or set per line."),
    click.option(
        "--through",
        metavar="CARRIER",
        help="How hosts are reached: ssh, slurm, kubernetes, flux, lsf, docker, or a command with {host} "
        "(default: the launcher of the allocation, else ssh).",
    ),
    click.option("--python", metavar="PATH", help="Python on the hosts (default: the same path as here)."),
    click.option("--fanout", metavar="N", help="How many hosts measure at the same time (default 64)."),
    click.option("--wait", metavar="S", help="Seconds to wait for the answer of a host (default 60)."),
)

run_options = _group(
    click.option("--quick", is_flag=True, help="Short samples."),
    click.option("--runs", metavar="N", help="Number of runs (default: 5, and up to 30 while a host is undecided)."),
    click.option("--one-by-one", is_flag=True, help="One host after the other, for hosts that share hardware."),
    click.option(
        "--links",
        metavar="LIBRARY",
        help="Library that times links, or none (default: mpich, else gloo; without ssh none).",
    ),
    click.option("--timeout", metavar="S", help="Seconds without a sign of life that end a case (default 600)."),
    click.option("-o", "--output", metavar="FILE", help="The fleet file (default: deepbench-fleet-<time>.jsonl)."),
)


@cli.command(context_settings=HELP, short_help="Measure many hosts; name the slow, wrong and missing ones.")
@click.argument("words", nargs=-1, metavar="[SUITE|CASE]...")
@case_options
@host_options
@run_options
@job_options
def fleet(
    words: tuple[str, ...],
    job: Job | None,
    hosts: str | None,
    hostfile: str | None,
    through: str | None,
    python: str | None,
    fanout: str | None,
    wait: str | None,
    quick: bool,
    runs: str | None,
    one_by_one: bool,
    links: str | None,
    timeout: str | None,
    output: str | None,
    **filters: Any,
) -> int:
    """Measure the same cases on many hosts and name those that are slow, wrong or missing.

    Hosts are named, or are those of the allocation of Slurm or LSF in which the command runs. The default suite is
    `fleet`. The exit code is 1 if a host or a link stands out.

    \b
    Examples:
      deepbench fleet --hosts 'node[001-016]'
      salloc -N 16 --exclusive deepbench fleet deepbench/server -o fleet.jsonl
      deepbench fleet --through kubernetes --python /usr/bin/python3
      deepbench fleet --submit --nodes 16 -o fleet.jsonl
      deepbench show fleet.jsonl --host node07
    """
    from deepbench.api.filters import plan_cases
    from deepbench.api.measuring import default_path
    from deepbench.fleets import api

    words = words or ("fleet",)
    _require_one_process()
    if hosts is not None and hostfile is not None:
        raise BadInput("--hosts and --hostfile exclude each other; choose one of them")
    plan_cases(words, choices_of(filters))  # reports bad words before any host is asked
    exactly, timeout_s = whole("--runs", runs, 1000), seconds("--timeout", timeout)
    reach = api.make_reach(through, python, whole("--fanout", fanout, 100_000), seconds("--wait", wait))
    path = Path(output) if output else default_path(Path(), f"fleet-{datetime.now():%Y%m%d-%H%M%S}")
    if job is not None:
        named = None if hosts is None and hostfile is None else list(api.find_hosts(hosts, hostfile, reach))
        return submit_job(job, path, through, named)
    session = api.FleetSession(
        path,
        api.find_hosts(hosts, hostfile, reach),
        [*words, *api.option_words(filters)],
        reach,
        quick=quick,
        one_by_one=one_by_one,
        links=links,
        timeout_s=timeout_s,
    )
    with closing(session):
        go_on_without_output(f"all results still go to {path}")
        return _measure(session, exactly)


def _require_one_process() -> None:
    """`BadInput` where a launcher has started this command several times."""
    from deepbench.api.groups import launched

    place = launched()
    if place is None:
        return
    if place.rank:  # the first one says it
        raise click.exceptions.Exit(EXIT_BAD_INPUT)
    found = f"{place.launcher} has started this command {place.ranks} times"
    if place.launcher == "slurm":
        raise BadInput(f"{found}; start it once inside the allocation, without srun: salloc -N 16 deepbench fleet")
    raise BadInput(f"{found}; start it once, and name the hosts: deepbench fleet --hostfile FILE")


def _measure(session: FleetSession, exactly: int | None) -> int:
    from deepbench.fleets.api import run_fleet
    from deepbench.fleets.results import FleetResults

    console, path, header, code = make_console(), session.file.path, session.file.header, 0
    console.print(f"hosts      {len(session.hosts)}, through {header['through']}", markup=False)
    console.print(f"each runs  {command('run', *header['words'])}", markup=False, soft_wrap=True)
    console.print(f"links      {header['links'] or 'not timed'}", markup=False)
    try:
        with progress_bar(console) as bar:
            run_fleet(session, exactly, bar)
    except KeyboardInterrupt:
        console.print(f"interrupted; {path} has what was measured", markup=False)
        code = EXIT_INTERRUPTED
    results = FleetResults(session.file)
    results.report().print(console)
    console.print(f"\n{path} has all results. Next:", markup=False)
    console.print(f"  {command('show', path, '--host', session.hosts[0])}", markup=False, soft_wrap=True)
    return code or (EXIT_WRONG if results.judgement.stands_out else 0)
