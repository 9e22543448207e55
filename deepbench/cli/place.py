"""Where the command runs: alone, as one of many, or for hosts of a file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deepbench.cli.root import interruptible
from deepbench.core.errors import BadInput

if TYPE_CHECKING:
    from deepbench.measure.group.link import RankInfo
    from deepbench.plan.cases import Planned


def launched() -> RankInfo | None:
    """Which of how many processes this is, None where no launcher has started several."""
    from deepbench.measure.group import link

    where = link.rank_info(os.environ)
    return where if where is not None and where.ranks > 1 else None


def any_group(planned: list[Planned]) -> bool:
    """Whether some case is one in which several processes take part."""
    from deepbench.core.op import find_op

    return any(find_op(p.case.op).is_group for p in planned)


@contextmanager
def taking_place(where: RankInfo | None, groups: bool) -> Iterator[list[str]]:
    """Take the place that a launcher gave: rank 0 goes on, with the hosts of all; the others serve it, and leave."""
    from deepbench.measure.group import launcher

    if where is None:
        yield []
    elif not groups:
        if where.rank:
            raise click.exceptions.Exit(0)
        print(
            f"deepbench: started {where.ranks} times by {where.launcher}: this one measures, the others have ended; "
            "deepbench fleet measures on all hosts",
            file=sys.stderr,
        )
        yield []
    elif where.rank:
        with interruptible():
            launcher.serve_rank_zero(where)
        raise click.exceptions.Exit(0)
    else:
        with launcher.gather_hosts(where) as given:
            yield list(given.hosts.values()) if len(given.hosts) > 1 else []


def read_hosts(path: str, planned: list[Planned]) -> list[str]:
    """The hosts of a file, for groups."""
    if not any_group(planned):
        raise BadInput("--hostfile is for ops in which several processes take part, such as all_reduce")
    return hosts_of_file(path)


def hosts_of_file(path: str) -> list[str]:
    """Hosts, one a line; what stands behind the name, such as `slots=4`, is left to launchers."""
    from deepbench.measure import launch
    from deepbench.measure.group import launcher
    from deepbench.plan.suites import text_of

    lines = (line.partition("#")[0].split() for line in text_of(Path(path)).splitlines())
    hosts = [re.split("[: ]", words[0])[0] for words in lines if words]
    wrong = next((h for h in hosts if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", h)), None)
    if not hosts or wrong is not None:
        raise BadInput(f"{path}: wanted a host a line, found {wrong[:60]!r}" if wrong else f"{path} names no host")
    if shell := os.environ.get(launch.REMOTE_SHELL):
        os.environ.update(launcher.remote_shell(shell))
    return list(dict.fromkeys(hosts))


def check_environment() -> None:
    """Say it when the environment asks for threads that the settings decide."""
    text, where = os.environ.get("OMP_NUM_THREADS"), launched()
    if text is None or (where is not None and where.rank):
        return
    if not re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", text):
        raise BadInput(f"OMP_NUM_THREADS is {text[:60]!r}, wanted a whole number; unset it, and say --threads N")
    print(f"deepbench: OMP_NUM_THREADS={text} is not used; threads are a setting, --threads N", file=sys.stderr)
