"""Where the command runs: alone, as one of several processes of a launcher, or for the hosts of a file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deepbench.cli.interrupts import interruptible
from deepbench.cli.streams import warn
from deepbench.core.errors import BadInput

if TYPE_CHECKING:
    from deepbench.measuring.group.link import RankInfo


def launched() -> RankInfo | None:
    """Which of how many processes this is; None unless a launcher started several."""
    from deepbench.measuring.group import link

    place = link.rank_info(os.environ)
    return place if place is not None and place.ranks > 1 else None


@contextmanager
def taking_place(place: RankInfo | None, groups: bool) -> Iterator[list[str]]:
    """Yield the hosts of a launcher to its rank 0; the other ranks serve rank 0 and exit.

    `groups`: whether some case is measured by several processes together.
    """
    from deepbench.measuring.group import launcher

    if place is None:
        yield []
    elif not groups:
        if place.rank:
            raise click.exceptions.Exit(0)
        warn(
            f"{place.launcher} started {place.ranks} processes; this one measures and the others have ended "
            "(deepbench fleet measures on all hosts)"
        )
        yield []
    elif place.rank:
        with interruptible():
            launcher.serve_rank_zero(place)
        raise click.exceptions.Exit(0)
    else:
        with launcher.gather_hosts(place) as given:
            yield list(given.hosts.values()) if len(given.hosts) > 1 else []


def hosts_of_file(path: str) -> list[str]:
    """One host per line. What follows the name, such as `slots=4`, is ignored."""
    from deepbench.measuring import launch
    from deepbench.measuring.group import launcher
    from deepbench.plan.suites import text_of

    lines = (line.partition("#")[0].split() for line in text_of(Path(path), "one host per line").splitlines())
    hosts = [re.split("[: ]", words[0])[0] for words in lines if words]
    wrong = next((h for h in hosts if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", h)), None)
    if not hosts or wrong is not None:
        raise BadInput(f"{path}: wanted one host per line, found {wrong[:60]!r}" if wrong else f"{path} names no host")
    if shell := os.environ.get(launch.REMOTE_SHELL):
        os.environ.update(launcher.remote_shell(shell))
    return list(dict.fromkeys(hosts))


def check_environment() -> None:
    """Warn when the environment asks for a number of threads: it is a setting of the case."""
    text, place = os.environ.get("OMP_NUM_THREADS"), launched()
    if text is None or (place is not None and place.rank):
        return
    if not re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", text):
        raise BadInput(f"OMP_NUM_THREADS is {text[:60]!r}, wanted a whole number; unset it and use --threads N")
    warn(f"OMP_NUM_THREADS={text} is ignored; use --threads N")
