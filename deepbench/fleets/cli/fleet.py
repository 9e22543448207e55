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
from deepbench.cli.options import case_options, choices_of, require_suffix, seconds, whole
from deepbench.cli.root import EXIT_BAD_INPUT, HELP, cli
from deepbench.cli.streams import go_on_without_output, say, warn
from deepbench.fleets.cli.checking import check_options
from deepbench.fleets.cli.jobs import Job, job_options, submit_job

if TYPE_CHECKING:
    from deepbench.fleets.api import FleetSession
    from deepbench.fleets.results import FleetResults


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
    click.option("--rounds", metavar="N", help="Processes per case in each run (default 1); several on noisy hosts."),
    click.option("--one-by-one", is_flag=True, help="One host after the other, for hosts that share hardware."),
    click.option(
        "--links",
        metavar="LIBRARY",
        help="Library that times links, or none (default: mpich, else gloo; without ssh none).",
    ),
    click.option("--timeout", metavar="S", help="Seconds without a sign of life that end a case (default 600)."),
    click.option("-o", "--output", metavar="FILE", help="The fleet file (default: deepbench-fleet-<time>.jsonl)."),
)

verdict_options = _group(
    click.option(
        "--drain",
        is_flag=False,
        flag_value="",
        metavar="[slurm|kubernetes]",
        help="Also print lines that would drain the slow hosts (default: of what reached them). Nothing is run.",
    ),
    click.option(
        "--prometheus", metavar="FILE", help="Also write the verdict on each host for the node exporter (.prom)."
    ),
)


@cli.command(context_settings=HELP, short_help="Measure many hosts; name the slow, wrong and missing ones.")
@click.argument("words", nargs=-1, metavar="[SUITE|CASE]...")
@case_options
@host_options
@run_options
@verdict_options
@job_options
@check_options
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
    rounds: str | None,
    one_by_one: bool,
    links: str | None,
    timeout: str | None,
    output: str | None,
    drain: str | None,
    prometheus: str | None,
    **filters: Any,
) -> int:
    """Measure the same cases on many hosts and name those that are slow, wrong or missing.

    Hosts are named, or are those of the allocation of Slurm or LSF in which the command runs. The default suite is
    `fleet`. Exit code 0: nothing stands out; 1: a host or a link stands out; 2: undecided. A fleet file is shown, and
    nothing is measured.

    \b
    Examples:
      deepbench fleet --hosts 'node[001-016]'
      salloc -N 16 --exclusive deepbench fleet deepbench/server -o fleet.jsonl
      deepbench fleet --through kubernetes --python /usr/bin/python3
      deepbench fleet --submit --nodes 16 -o fleet.jsonl
      deepbench show fleet.jsonl --host node07
      deepbench fleet fleet.jsonl --drain slurm
      deepbench fleet fleet.jsonl --write-references references
      deepbench fleet --check --reference references --history checks
    """
    from deepbench.api.filters import plan_cases
    from deepbench.api.measuring import default_path
    from deepbench.fleets import api

    if prometheus is not None:
        require_suffix("--prometheus", prometheus, (".prom",))
    if (results := _read(words)) is not None:
        if drain is None and prometheus is None:
            results.report().print(make_console())
        return _hand_over(results, drain, prometheus)
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
        rounds=whole("--rounds", rounds, 100) or 1,
        one_by_one=one_by_one,
        links=links,
        timeout_s=timeout_s,
    )
    with closing(session):
        go_on_without_output(f"all results still go to {path}")
        return _measure(session, exactly, drain, prometheus)


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


def _read(words: tuple[str, ...]) -> FleetResults | None:
    """The fleet file that the only word names; None for all other words."""
    from deepbench.api.results import kind_of, load
    from deepbench.fleets.results import FleetResults

    is_file = len(words) == 1 and Path(words[0]).is_file() and kind_of(words[0]).results_class() is FleetResults
    found: FleetResults | None = load(words[0]) if is_file else None
    return found


def _hand_over(results: FleetResults, drain: str | None, prometheus: str | None) -> int:
    """Print and write what other programs take; the exit code of the verdict."""
    if prometheus is not None:
        results.write_prometheus(prometheus)
    if drain is not None:
        say("\n".join(results.drain_lines(drain or None)))
    return results.judgement.exit_code


def _measure(session: FleetSession, exactly: int | None, drain: str | None, prometheus: str | None) -> int:
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
    if drain is not None or prometheus is not None:
        console.print()
        try:
            _hand_over(results, drain, prometheus)
        except BadInput as error:  # after hours of measuring, this must not hide the verdict
            warn(str(error))
    return code or results.judgement.exit_code
