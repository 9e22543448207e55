"""The links between the hosts of a fleet: messages between pairs, in the rounds of a tournament.

A message needs connections between hosts, and MPI or Gloo open ports for it. Nothing else of a fleet does.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from deepbench.core.case import Case, parse_case
from deepbench.core.errors import BadInput
from deepbench.fleets.asking import Reach
from deepbench.fleets.file import Pair
from deepbench.judge.outliers import tournament
from deepbench.measuring.carriers import HOST, REMOTE_SHELL, Carrier, of_environment
from deepbench.measuring.group.launcher import remote_shell
from deepbench.measuring.heat import measure_case
from deepbench.measuring.session import open_libraries
from deepbench.plan.modes import QUICK
from deepbench.results.record import Record

# The message that times a link: 16 MiB are limited by bandwidth on any network.
LINK_CASE = "all_reduce n=4194304 ranks=2 forward f32 {library} threads=1"

# Rounds of pairs per run. With more hosts than this plus one, not every pair is timed.
MOST_ROUNDS = 15

# The messages of a pair take about a second; a link that does not carry them is found soon.
LINK_TIMEOUT_S = 30.0


def link_library(wanted: str | None, carrier: Carrier) -> str | None:
    """The library that times links between hosts, or None.

    `wanted` names it, or is `none`. By default it is the first of MPICH and Gloo that is installed, and none where
    hosts are not reached by ssh: they may not reach each other.
    """
    if wanted == "none" or (wanted is None and carrier != of_environment(os.environ)):
        return None
    names = [wanted] if wanted else ["mpich", "gloo"]
    for name in names:
        parse_case(LINK_CASE.format(library=name))  # reports an unknown library, or one without all-reduce
    opened = open_libraries(names)
    available = next((name for name in names if "library" in opened[name]), None)
    if available is None and wanted:
        missing = opened[wanted]["unavailable"]
        raise BadInput(f"--links {wanted}: {missing['reason']}; {missing['remedy']}")
    return available


def link_case(library: str | None) -> Case | None:
    """The case that times a link with this library."""
    return parse_case(LINK_CASE.format(library=library)) if library else None


def time_links(
    hosts: Sequence[str], addresses: Mapping[str, str], case: Case, run: int, reach: Reach
) -> Iterator[tuple[Pair, Record]]:
    """Time messages between pairs of hosts, up to `fanout` disjoint pairs at the same time."""
    variables = _variables(reach.carrier)

    def measure(pair: Pair) -> tuple[Pair, Record]:
        used = [addresses[host] for host in pair]
        return pair, measure_case(case, run, QUICK.rules, LINK_TIMEOUT_S, used, variables)

    for pairs in tournament(hosts, MOST_ROUNDS):
        ordered = [(a, b) if a < b else (b, a) for a, b in pairs]
        with ThreadPoolExecutor(max_workers=max(1, min(len(ordered), reach.fanout))) as threads:
            for future in as_completed([threads.submit(measure, pair) for pair in ordered]):
                yield future.result()


def _variables(carrier: Carrier) -> dict[str, str]:
    """The variables that make groups start their ranks through a carrier, as far as launchers of MPI can be told."""
    if carrier != of_environment(os.environ):
        return {REMOTE_SHELL: shlex.join(carrier.words)}
    shell = os.environ.get(REMOTE_SHELL)
    return remote_shell(shell) if shell and HOST not in shell else {}
