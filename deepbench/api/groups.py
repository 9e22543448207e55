"""Where groups of processes run: the hosts of a file, or the processes that a launcher started."""

from __future__ import annotations

import os
import re
from pathlib import Path

from deepbench.core.errors import BadInput
from deepbench.measuring.carriers import HOST, REMOTE_SHELL
from deepbench.measuring.group import launcher, link
from deepbench.measuring.group.launcher import gather_hosts, serve_rank_zero
from deepbench.measuring.group.link import RankInfo
from deepbench.plan.suites import text_of

__all__ = ["RankInfo", "gather_hosts", "hosts_of_file", "launched", "serve_rank_zero"]


def launched() -> RankInfo | None:
    """Which of how many processes this is; None unless a launcher started several."""
    place = link.rank_info(os.environ)
    return place if place is not None and place.ranks > 1 else None


def hosts_of_file(path: str) -> list[str]:
    """One host per line. What follows the name, such as `slots=4`, is ignored."""
    lines = (line.partition("#")[0].split() for line in text_of(Path(path), "one host per line").splitlines())
    hosts = [re.split("[: ]", words[0])[0] for words in lines if words]
    wrong = next((h for h in hosts if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", h)), None)
    if not hosts or wrong is not None:
        raise BadInput(f"{path}: wanted one host per line, found {wrong[:60]!r}" if wrong else f"{path} names no host")
    if (shell := os.environ.get(REMOTE_SHELL)) and HOST not in shell:
        os.environ.update(launcher.remote_shell(shell))
    return list(dict.fromkeys(hosts))
