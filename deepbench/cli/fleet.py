"""`deepbench fleet`: the same cases on many hosts, and which of them stand out."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepbench.cli.console import make_console
from deepbench.cli.launch import hosts_of_file, launched
from deepbench.cli.options import case_options, choices_of, seconds, whole
from deepbench.cli.root import EXIT_INTERRUPTED, EXIT_WRONG, HELP, cli, interruptible
from deepbench.core.errors import BadInput
from deepbench.core.version import VERSION

if TYPE_CHECKING:
    from rich.console import Console

    from deepbench.measure.fleet import Engine
    from deepbench.results.file import Store
    from deepbench.results.fleet import FleetFile

# Runs of every host, and how many there may be while one of them could still be slow.
LEAST_RUNS, MOST_RUNS = 5, 30

# The message whose time tells a link: 16 MiB are limited by bandwidth on any network.
LINK_CASE = "all_reduce n=4194304 ranks=2 forward f32 {library} threads=1"


@cli.command(context_settings=HELP, short_help="Measure many hosts; name the slow, wrong and missing ones.")
@click.argument("words", nargs=-1, metavar="[SUITE|CASE]...")
@case_options
@click.option("--quick", is_flag=True, help="Short samples.")
@click.option("--hostfile", metavar="FILE", help="Hosts, one a line, reached by ssh.")
@click.option("--scheduler", metavar="ADDRESS", help="A Dask scheduler whose workers, one a host, are to be used.")
@click.option("--expect", metavar="FILE", help="With --scheduler: the hosts that should be there, one a line.")
@click.option("--runs", metavar="N", help=f"Exactly so many (default: {LEAST_RUNS}, up to {MOST_RUNS} when unsure).")
@click.option("--apart", is_flag=True, help="One host after the other, where hosts share hardware.")
@click.option("--links", metavar="LIBRARY", help="What times links, or none (default: mpich, else gloo).")
@click.option("--wait", metavar="S", help="Seconds that hosts have to join (default 60).")
@click.option("--timeout", metavar="S", help="Seconds without a sign of life that end a case (default 600).")
@click.option("-o", "--output", metavar="FILE", help="The fleet file (default: deepbench-fleet-<time>.jsonl).")
def fleet(
    words: tuple[str, ...],
    quick: bool,
    hostfile: str | None,
    scheduler: str | None,
    expect: str | None,
    runs: str | None,
    apart: bool,
    links: str | None,
    wait: str | None,
    timeout: str | None,
    output: str | None,
    **filters: Any,
) -> int:
    """Measure the same cases on many hosts and name those that are slow, wrong or missing.

    Hosts are those of a file, of a Dask scheduler, or of the srun or mpirun that started this command on them. Without
    words: the suite `fleet`. Exit code 1 when something stands out.

    \b
    Examples:
      deepbench fleet --hostfile hosts
      srun --ntasks-per-node=1 deepbench fleet deepbench/server --op gemm -o fleet.jsonl
      deepbench show fleet.jsonl --host node07
    """
    from deepbench.api import plan_cases
    from deepbench.measure.group import launcher
    from deepbench.results.file import Store, default_path

    words = words or ("fleet",)
    where = launched()
    if sum([where is not None, hostfile is not None, scheduler is not None]) != 1:
        raise BadInput(
            "wanted one source of hosts: --hostfile FILE, --scheduler ADDRESS, or a start by srun or mpirun "
            f"(found {'none' if where is None and hostfile is None and scheduler is None else 'several'})"
        )
    if where is not None and where.rank:
        with interruptible():
            launcher.serve_rank_zero(where)
        return 0
    plan_cases(words, choices_of(filters))  # reports bad words before any host is asked
    exactly = whole("--runs", runs, 1000)
    wait_s = seconds("--wait", wait) or 60.0
    payload = [*words, *_as_words(filters), "--rounds", "1", *(["--quick"] if quick else [])]
    if timeout is not None and seconds("--timeout", timeout):
        payload += ["--timeout", timeout]
    with ExitStack() as stack:
        if where is not None:
            hosts = stack.enter_context(launcher.gather_hosts(where)).hosts
        else:
            hosts = {h: h for h in hosts_of_file(hostfile)} if hostfile else {}
        expected = list(hosts) or (hosts_of_file(expect) if expect else [])
        if expected and len(expected) < 2:
            raise BadInput(f"a fleet is two hosts or more, found {expected[0]} alone")
        library = _link_library(links, len(hosts))
        path = Path(output) if output else default_path(Path(), _stamp())
        engine = _engine(hosts, scheduler, wait_s, len(expected) or None)
        stack.callback(engine.close)
        expected = expected or engine.hosts
        if len(set(expected) | set(engine.hosts)) < 2:
            raise BadInput(f"a fleet is two hosts or more, found {expected[0]} alone; wait longer for others: --wait S")
        header = _header(expected, payload, library, apart)
        kept = Store.create(path, header)
        stack.callback(kept.close)
        return _measure(_Fleet(engine, kept, path, header, hosts, library, payload, apart), exactly)


def _engine(hosts: dict[str, str], scheduler: str | None, wait_s: float, expected: int | None) -> Engine:
    from deepbench.measure import fleet as fleets
    from deepbench.measure.group import parent

    if scheduler is not None:
        return fleets.connect(scheduler, wait_s, expected)
    return fleets.start(hosts, parent.reachable_address(list(hosts.values())), wait_s)


def _header(expected: Sequence[str], payload: list[str], library: str | None, apart: bool) -> dict[str, Any]:
    from deepbench.core.json_lines import sanitized
    from deepbench.results.fleet import SCHEMA

    header: dict[str, Any] = sanitized(
        {
            "schema": SCHEMA,
            "tool": f"deepbench {VERSION}",
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": sys.argv[1:],
            "expected": list(expected),
            "words": payload,
            "links": library,
            "apart": apart,
        }
    )
    return header


class _Fleet:
    """One run of the command: what is known so far, and where it goes."""

    def __init__(
        self,
        engine: Engine,
        kept: Store,
        path: Path,
        header: dict[str, Any],
        addresses: dict[str, str],
        library: str | None,
        payload: list[str],
        apart: bool,
    ) -> None:
        from deepbench.results.fleet import FleetFile

        self.engine, self.kept, self.addresses = engine, kept, addresses
        self.library, self.payload, self.apart = library, payload, apart
        self.found = FleetFile(path, header)
        self.hosts = list(dict.fromkeys([*header["expected"], *engine.hosts]))

    def run(self, number: int) -> Iterator[str]:
        """One run on all hosts, then over all links; yields what has just ended."""
        from deepbench.core.case import parse_case
        from deepbench.measure import fleet as fleets

        hosts = random.sample(self.hosts, len(self.hosts))
        for result in fleets.run_once(self.engine, hosts, number, self.payload, self.apart):
            self.kept.append(result.as_line())
            self.found.runs.append(result)
            yield f"run {number}  {result.host} {result.status}"
        if self.library is None:
            return
        lost = {r.host for r in self.found.runs if r.run == number and r.status != "ok"}
        for pair, line in fleets.time_links(
            [h for h in hosts if h not in lost and h in self.addresses],
            self.addresses,
            parse_case(LINK_CASE.format(library=self.library)),
            number,
            self.apart,
        ):
            self.kept.append({"link": pair, "record": line})
            self.found.links.append((pair, line))
            yield f"run {number}  {pair[0]} – {pair[1]} {line['status']}"

    def steps(self) -> int:
        """How much one run yields, if nothing fails."""
        from deepbench.judge import outliers
        from deepbench.measure.fleet import MOST_ROUNDS

        pairs = outliers.tournament(self.hosts, MOST_ROUNDS) if self.library else []
        return len(self.hosts) + sum(map(len, pairs))


def _measure(fleet: _Fleet, exactly: int | None) -> int:
    from deepbench.judge.fleet import judge
    from deepbench.measure.session import Step
    from deepbench.report.progress import Bar

    console = make_console()
    missing = [h for h in fleet.hosts if h not in fleet.engine.hosts]
    joined = len(fleet.engine.hosts)
    console.print(f"hosts      {joined} joined{', missing: ' if missing else ''}{', '.join(missing)}", markup=False)
    console.print(f"each runs  deepbench run {' '.join(fleet.payload)}", markup=False, soft_wrap=True)
    console.print(f"links      {fleet.library or 'not timed'}", markup=False)
    code = 0
    try:
        with interruptible(), Bar(console) as bar:
            done = 0
            for number in range(1, (exactly or MOST_RUNS) + 1):
                for text in fleet.run(number):
                    done += 1
                    bar(Step(text, done, max(exactly or LEAST_RUNS, number) * fleet.steps()))
                if exactly is None and number >= LEAST_RUNS and not judge(fleet.found).needs_runs:
                    break
    except KeyboardInterrupt:
        console.print(f"interrupted; {fleet.found.path} has what was measured", markup=False)
        code = EXIT_INTERRUPTED
    print_fleet(console, fleet.found)
    console.print(f"\n{fleet.found.path} keeps everything. Next:", markup=False)
    console.print(f"  deepbench show {fleet.found.path} --host {fleet.hosts[0]}", markup=False)
    return code or (0 if stands_out(fleet.found) == [] else EXIT_WRONG)


def stands_out(found: FleetFile) -> list[str]:
    """The hosts and links with something to say of them."""
    from deepbench.judge.fleet import judge

    judged = judge(found)
    pairs = [f"{a} – {b}" for a, b in (*judged.slow_pairs, *judged.failed_pairs)]
    return [v.host for v in judged.hosts if not v.is_fine] + pairs


def print_fleet(console: Console, found: FleetFile) -> None:
    """The verdict, then hosts, kernels and links."""
    from deepbench.judge.fleet import judge
    from deepbench.report import fleet as report

    judged = judge(found)
    console.print()
    for sentence in report.sentences(found, judged):
        console.print(f"• {sentence}", markup=False, soft_wrap=True)
    for view in (report.by_host(found, judged), report.by_kernel(found), report.by_link(judged)):
        if view.rows:
            console.print()
            view.print(console)


def _link_library(wanted: str | None, hosts: int) -> str | None:
    """What times links: the one that was asked for, or the first that is here; None: none."""
    if wanted == "none" or hosts < 2:
        if hosts < 2 and wanted not in (None, "none"):
            raise BadInput("--links needs hosts that are reached from here: --hostfile, or a start by srun or mpirun")
        return None
    names = [wanted] if wanted else ["mpich", "gloo"]
    from deepbench.core.case import parse_case
    from deepbench.measure.session import open_libraries

    for name in names:
        parse_case(LINK_CASE.format(library=name))
    opened = open_libraries(names)
    here = next((n for n in names if "library" in opened[n]), None)
    if here is None and wanted:
        missing = opened[wanted]["unavailable"]
        raise BadInput(f"--links {wanted}: {missing['reason']}; {missing['remedy']}")
    return here


def _as_words(filters: dict[str, Any]) -> list[str]:
    """The options again, as they were typed."""
    words = []
    for name, values in filters.items():
        for value in values if isinstance(values, tuple) else [values] if values else []:
            words += [f"--{name}", str(value)]
    return words


def _stamp() -> str:
    return f"fleet-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
