"""The door of the fleets: the same cases on many hosts, and which of them stand out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from deepbench.api.filters import Filters, What, make_choices, plan_cases, words_of
from deepbench.api.measuring import temporary_path
from deepbench.core.errors import BadInput
from deepbench.fleets import hosts as sources
from deepbench.fleets.asking import FANOUT, WAIT_S, Reach
from deepbench.fleets.check import check_host, write_prometheus
from deepbench.fleets.examination import HostCheck
from deepbench.fleets.make_references import sentences as reference_sentences
from deepbench.fleets.make_references import write_references
from deepbench.fleets.manifest import manifest
from deepbench.fleets.results import FleetResults
from deepbench.fleets.session import FleetSession
from deepbench.fleets.submit import batch_script, submit, write_script
from deepbench.measuring import carriers
from deepbench.reporting.progress import shown

if TYPE_CHECKING:
    from deepbench.core.progress import Progress

__all__ = [
    "FleetSession",
    "HostCheck",
    "Reach",
    "batch_script",
    "check_host",
    "find_hosts",
    "fleet",
    "make_reach",
    "manifest",
    "option_words",
    "reference_sentences",
    "run_fleet",
    "submit",
    "write_prometheus",
    "write_references",
    "write_script",
]


def fleet(
    what: What | Iterable[What] = "fleet",
    *,
    hosts: str | Sequence[str] | Mapping[str, str] | None = None,
    through: str | None = None,
    python: str | None = None,
    fanout: int | None = None,
    quick: bool = False,
    runs: int | None = None,
    rounds: int = 1,
    one_by_one: bool = False,
    links: str | None = None,
    wait_s: float | None = None,
    timeout_s: float | None = None,
    output: str | Path | None = None,
    progress: bool | Progress = False,
    **filters: Unpack[Filters],
) -> FleetResults:
    """Measure the same cases on many hosts, and say which of them are slow, wrong or missing.

    Args:
        what: what to measure, or several such things, as in `cases`.
        hosts: two or more hosts, such as `node[001-512]` or a list; or the address of each by its name. None: those of
            the allocation that this process is in, or of `through`.
        through: how hosts are reached: `ssh`, `slurm`, `kubernetes`, `flux`, `lsf`, `docker`, or a command with
            `{host}`. None: by the launcher of the allocation, else by ssh.
        python: the interpreter on the hosts; None: the same path as here.
        fanout: how many hosts measure at the same time; None: 64.
        quick: short samples.
        runs: exactly so many runs; None: 5, and up to 30 while a host is undecided.
        rounds: processes per case in each run, of which the lower quartile counts. Several help where other programs
            or virtual machines disturb single processes.
        one_by_one: one host after the other, for hosts that share hardware.
        links: the library that times the links between hosts, or `none`; None: mpich, else gloo.
        wait_s: seconds to wait for the answer of a host; None: 60.
        timeout_s: seconds without a sign of life that end a case; None: 600.
        output: the fleet file, which must not exist; by default a file in the folder for temporary files.
        progress: True shows a progress bar; a function is called with an `Activity` after each measurement.
        filters: which cases; see `Filters`.

    `judgement` of the results says what stands out. Raises `BadInput` for words that cannot be used. A host that does
    not answer raises nothing: the results say so.
    """
    plan_cases(what, make_choices(**filters))  # reports bad words before any host is asked
    reach = make_reach(through, python, fanout, wait_s)
    session = FleetSession(
        Path(output) if output is not None else temporary_path(),
        hosts if isinstance(hosts, Mapping) else find_hosts(hosts, None, reach),
        [*words_of(what), *option_words(_options(filters))],
        reach,
        quick=quick,
        rounds=rounds,
        one_by_one=one_by_one,
        links=links,
        timeout_s=timeout_s,
    )
    try:
        return run_fleet(session, runs, progress)
    finally:
        session.close()


def make_reach(
    through: str | None = None, python: str | None = None, fanout: int | None = None, wait_s: float | None = None
) -> Reach:
    """How hosts are reached; the arguments are those of `fleet`."""
    if python is not None and not (python.startswith("/") and python.isprintable()):
        raise BadInput(f"the Python of hosts must be a whole path such as /usr/bin/python3, found {python[:60]!r}")
    return Reach(carriers.choose(through, os.environ), python, fanout or FANOUT, wait_s or WAIT_S)


def find_hosts(hosts: str | Sequence[str] | None, hostfile: str | None, reach: Reach) -> dict[str, str]:
    """The address of each host by its name: named hosts, those of a file, or those of the site; `BadInput` for none."""
    if hostfile is not None:
        found = sources.of_file(hostfile)
    elif hosts is not None:
        found = sources.named(hosts if isinstance(hosts, str) else ",".join(hosts))
    else:
        return sources.of_site(reach.carrier)
    return {host: host for host in found}


def run_fleet(session: FleetSession, runs: int | None, progress: bool | Progress) -> FleetResults:
    """Measure what a session plans; `runs`: exactly so many, or None."""
    with shown(progress) as show:
        for step in session.measure(runs):
            show(step)
    return FleetResults(session.file)


def option_words(options: Mapping[str, Any]) -> list[str]:
    """The options of cases by their names in Python, as words for the hosts: these run the command."""
    return [
        f"--{name.replace('_', '-')}" + (f"={one}" if one is not True else "")
        for name, values in options.items()
        if values
        for one in ([values] if isinstance(values, str | int) else values)
    ]


def _options(filters: Filters) -> dict[str, Any]:
    """Filters by the names of the options of the command."""
    names = ("ops", "backends", "precisions", "directions", "applications")
    found: dict[str, Any] = {n.removesuffix("s") if n in names else n: v for n, v in filters.items() if n != "settings"}
    settings = (filters.get("settings") or {}).items()
    pairs = [(name, one) for name, v in settings for one in ([v] if isinstance(v, str) else v or ())]
    return {**found, "set": [f"{name}={one}" for name, one in pairs]}
