"""The door of the fleets: the same cases on many hosts, and which of them stand out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from deepbench.api.filters import Filters, What, make_choices, plan_cases, words_of
from deepbench.api.measuring import shown, temporary_path
from deepbench.core.errors import BadInput
from deepbench.fleets.results import FleetResults
from deepbench.fleets.session import FleetSession, link_library

if TYPE_CHECKING:
    from deepbench.core.progress import Progress

__all__ = ["WAIT_S", "FleetSession", "fleet", "fleet_session", "link_library", "run_fleet"]

WAIT_S = 60.0
"""How long a host may take to answer, in seconds."""

_OPTIONS = {
    "ops": "op",
    "backends": "backend",
    "precisions": "precision",
    "directions": "direction",
    "applications": "application",
    "threads": "threads",
    "ranks": "ranks",
    "device": "device",
    "fit": "fit",
}
"""The options of the command by filter. The hosts run the command."""


def fleet(
    what: What | Iterable[What] = "fleet",
    *,
    hosts: Sequence[str] | Mapping[str, str],
    quick: bool = False,
    runs: int | None = None,
    one_by_one: bool = False,
    links: str | None = None,
    wait_s: float = WAIT_S,
    timeout_s: float | None = None,
    output: str | Path | None = None,
    progress: bool | Progress = False,
    **filters: Unpack[Filters],
) -> FleetResults:
    """Measure the same cases on many hosts, and say which of them are slow, wrong or missing.

    Args:
        what: what to measure, or several such things, as in `cases`.
        hosts: two or more hosts, reached by ssh; or the address of each by its name.
        quick: short samples.
        runs: exactly so many runs; None: 5, and up to 30 while a host is undecided.
        one_by_one: one host after the other, for hosts that share hardware.
        links: the library that times the links between hosts, or `none`; None: mpich, else gloo.
        wait_s: seconds to wait for the answer of a host.
        timeout_s: seconds without a sign of life that end a case; None: 600.
        output: the fleet file, which must not exist; by default a file in the folder for temporary files.
        progress: True shows a progress bar; a function is called with an `Activity` after each measurement.
        filters: which cases; see `Filters`.

    `judgement` of the results says what stands out. Raises `BadInput` for words that cannot be used. A host that does
    not answer raises nothing: the results say so.
    """
    plan_cases(what, make_choices(**filters))  # reports bad words before any host is asked
    words = [*words_of(what), *_options(filters)]
    path = Path(output) if output is not None else temporary_path()
    session = fleet_session(
        path,
        hosts if isinstance(hosts, Mapping) else {host: host for host in hosts},
        words,
        quick=quick,
        one_by_one=one_by_one,
        links=links,
        wait_s=wait_s,
        timeout=None if timeout_s is None else str(timeout_s),
    )
    try:
        return run_fleet(session, runs, progress)
    finally:
        session.close()


def fleet_session(
    path: Path,
    addresses: Mapping[str, str],
    words: Sequence[str],
    *,
    quick: bool,
    one_by_one: bool,
    links: str | None,
    wait_s: float,
    timeout: str | None,
) -> FleetSession:
    """A session to be run step by step; `words` are arguments of `deepbench run`, the others as in `fleet`."""
    if len(addresses) < 2:
        raise BadInput(f"a fleet needs two or more hosts, found only {next(iter(addresses), 'none')}")
    payload = [*words, "--rounds", "1", *(["--quick"] if quick else [])]
    if timeout is not None:
        payload += ["--timeout", timeout]
    return FleetSession(
        path,
        addresses=dict(addresses),
        words=payload,
        library=link_library(links),
        one_by_one=one_by_one,
        wait_s=wait_s,
    )


def run_fleet(session: FleetSession, runs: int | None, progress: bool | Progress) -> FleetResults:
    """Measure what a session plans; `runs`: exactly so many, or None."""
    with shown(progress) as show:
        for step in session.measure(runs):
            show(step)
    return FleetResults(session.file)


def _options(filters: Filters) -> list[str]:
    """Filters as options of the command."""
    found = [
        f"--{_OPTIONS[name]}={one}"
        for name, values in filters.items()
        if name in _OPTIONS and values is not None
        for one in ([values] if isinstance(values, str | int) else list(values))  # type: ignore[call-overload]
    ]
    for name, values in (filters.get("settings") or {}).items():
        found += [f"--set={name}={one}" for one in ([values] if isinstance(values, str) else values or ())]
    return [*found, "--with-parts"] if filters.get("with_parts") else found
