"""Where the command runs: alone, as one of several processes of a launcher, or for the hosts of a file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from deepbench.api.text import BadInput
from deepbench.cli.streams import warn

if TYPE_CHECKING:
    from deepbench.api.groups import RankInfo


@contextmanager
def taking_place(place: RankInfo | None, groups: bool) -> Iterator[list[str]]:
    """Yield the hosts of a launcher to its rank 0; the other ranks serve rank 0 and exit.

    `groups`: whether some case is measured by several processes together.
    """
    from deepbench.api import groups as groups_of_ranks

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
        groups_of_ranks.serve_rank_zero(place)
        raise click.exceptions.Exit(0)
    else:
        with groups_of_ranks.gather_hosts(place) as given:
            yield given if len(given) > 1 else []


@contextmanager
def resumed_place(hostfile: str | None) -> Iterator[tuple[list[str], int]]:
    """For `--resume`: the hosts that the user has named, and how many ranks a launcher has started; see `taking_place`.

    Neither ever comes from the file that is resumed.
    """
    from deepbench.api.groups import hosts_of_file, launched

    place = launched()
    if hostfile and place is not None:
        raise BadInput(f"leave out --hostfile: {place.launcher} has started {place.ranks} ranks")
    with taking_place(place, True) as hosts:
        yield hosts_of_file(hostfile) if hostfile else hosts, place.ranks if place is not None else 0


def check_environment() -> None:
    """Warn when the environment asks for a number of threads: it is a setting of the case."""
    from deepbench.api.groups import launched

    text, place = os.environ.get("OMP_NUM_THREADS"), launched()
    if text is None or (place is not None and place.rank):
        return
    if not re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", text):
        raise BadInput(f"OMP_NUM_THREADS is {text[:60]!r}, wanted a whole number; unset it and use --threads N")
    warn(f"OMP_NUM_THREADS={text} is ignored; use --threads N")
