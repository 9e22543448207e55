"""What a result file must not decide by itself, because it may come from anyone: on which hosts programs start, and how
many at once. `NotTrusted` asks a person, who can name the hosts, or say that the file may do it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from deepbench.core.case import Case
from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.machine import describe
from deepbench.results.file import ResultFile


class NotTrusted(BadInput):
    """A file would start programs or load libraries, and nobody said that it may."""


def require_hosts(file: ResultFile, hosts: Sequence[str], remedy: str | None = None) -> None:
    """`NotTrusted` where a file names hosts of groups, and the user none; `remedy` says what to do about it."""
    named = file.header["plan"].get("hosts") or []
    if named and not hosts:
        remedy = remedy or f"name them yourself with --hostfile FILE, or {trusting(file.path)}"
        raise NotTrusted(
            f"{printable(str(file.path))} names hosts on which programs would be started: "
            f"{shorten(' '.join(named))}; {remedy}"
        )


def require_ranks(file: ResultFile, ranks: int, hosts: Sequence[str] = (), started: int = 0) -> None:
    """`NotTrusted` where a file has larger groups than a run would have that is not asked for more.

    Args:
        file: the file.
        ranks: processes of its largest group.
        hosts: that the user has named; none: this machine.
        started: how many ranks the user has started, through a launcher.
    """
    most = max(2, started, describe.default_threads() * max(1, len(hosts)))
    if ranks > most:
        where = f"{len(hosts)} hosts have" if hosts else "this machine has"
        raise NotTrusted(
            f"{printable(str(file.path))} starts {ranks:,} processes at once, and {where} cores for {most:,}; "
            f"{trusting(file.path)}"
        )


def ranks_of(cases: Iterable[Case]) -> int:
    """Processes of the largest group among these cases; 1 if there is none."""
    return max((case.problem.ranks for case in cases if case.operation.is_group), default=1)


def trusting(path: Path) -> str:
    """What to do where a file has to be trusted, as the end of a sentence."""
    return f"look at the file first; if you trust it, add --trust {shlex.quote(printable(str(path)))}"
