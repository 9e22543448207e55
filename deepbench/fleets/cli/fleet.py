"""`deepbench fleet`: the same cases on many hosts, and which of them stand out."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepbench.api.text import BadInput, command
from deepbench.cli.console import make_console, progress_bar
from deepbench.cli.interrupts import EXIT_INTERRUPTED
from deepbench.cli.options import case_options, choices_of, seconds, whole
from deepbench.cli.root import EXIT_WRONG, HELP, cli
from deepbench.cli.streams import go_on_without_output
from deepbench.fleets.cli.checking import check_options

if TYPE_CHECKING:
    from deepbench.fleets.api import FleetSession


@cli.command(context_settings=HELP, short_help="Measure many hosts; name the slow, wrong and missing ones.")
@click.argument("words", nargs=-1, metavar="[SUITE|CASE]...")
@case_options
@click.option("--quick", is_flag=True, help="Short samples.")
@click.option("--hostfile", metavar="FILE", help="Hosts, one per line, reached by ssh.")
@click.option("--runs", metavar="N", help="Number of runs (default: 5, and up to 30 while a host is undecided).")
@click.option("--one-by-one", is_flag=True, help="One host after the other, for hosts that share hardware.")
@click.option("--links", metavar="LIBRARY", help="Library that times links, or none (default: mpich, else gloo).")
@click.option("--wait", metavar="S", help="Seconds to wait for the answer of a host (default 60).")
@click.option("--timeout", metavar="S", help="Seconds without a sign of life that end a case (default 600).")
@click.option("-o", "--output", metavar="FILE", help="The fleet file (default: deepbench-fleet-<time>.jsonl).")
@check_options
def fleet(
    words: tuple[str, ...],
    quick: bool,
    hostfile: str | None,
    runs: str | None,
    one_by_one: bool,
    links: str | None,
    wait: str | None,
    timeout: str | None,
    output: str | None,
    **filters: Any,
) -> int:
    """Measure the same cases on many hosts and name those that are slow, wrong or missing.

    The hosts come from a file, or from the srun or mpirun that started this command on them. The default suite is
    `fleet`. The exit code is 1 if a host or a link stands out.

    \b
    Examples:
      deepbench fleet --hostfile hosts
      srun --ntasks-per-node=1 deepbench fleet deepbench/server -o fleet.jsonl
      deepbench show fleet.jsonl --host node07
      deepbench fleet fleet.jsonl --write-references references
      deepbench fleet --check --reference references --history checks
    """
    from deepbench.api.filters import plan_cases
    from deepbench.api.groups import gather_hosts, hosts_of_file, launched, serve_rank_zero
    from deepbench.api.measuring import default_path
    from deepbench.fleets import api

    words = words or ("fleet",)
    where = launched()
    if (where is None) == (hostfile is None):
        found = "both" if hostfile else "neither"
        raise BadInput(f"expected one source of hosts: --hostfile FILE, or a start by srun or mpirun (found {found})")
    if where is not None and where.rank:
        serve_rank_zero(where)
        return 0
    plan_cases(words, choices_of(filters))  # reports bad words before any host is asked
    exactly, wait_s, timeout_s = whole("--runs", runs, 1000), seconds("--wait", wait), seconds("--timeout", timeout)
    with ExitStack() as stack:
        if where is not None:
            addresses = stack.enter_context(gather_hosts(where)).hosts
        else:
            addresses = {h: h for h in hosts_of_file(hostfile)} if hostfile else {}
        path = Path(output) if output else default_path(Path(), f"fleet-{datetime.now():%Y%m%d-%H%M%S}")
        session = api.FleetSession(
            path,
            addresses,
            [*words, *api.option_words(filters)],
            quick=quick,
            one_by_one=one_by_one,
            links=links,
            wait_s=wait_s,
            timeout_s=timeout_s,
        )
        stack.callback(session.close)
        go_on_without_output(f"all results still go to {path}")
        return _measure(session, exactly)


def _measure(session: FleetSession, exactly: int | None) -> int:
    from deepbench.fleets.api import run_fleet
    from deepbench.fleets.results import FleetResults

    console, path, header, code = make_console(), session.file.path, session.file.header, 0
    console.print(f"hosts      {len(session.hosts)}", markup=False)
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
