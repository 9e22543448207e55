"""Lines for a shell that would take the slow hosts of a fleet out of service. They are printed, and never run.

A fleet file may come from anyone, and a person may run these lines as root. So a host whose name is more than letters,
digits, dots, dashes and underscores is left out: `node[1-9]` would be nine hosts for Slurm. A reason has words of ours,
numbers, and the name of an operation that exists.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.core.op import all_ops
from deepbench.fleets.file import FleetFile
from deepbench.fleets.judge import HostVerdict, Judgement
from deepbench.judge.outliers import ALPHA, Deviation

MOST_CHARACTERS = 253

# Slurm takes `ALL` for every node. Kubernetes has lower-case names only.
NAMES = {
    "slurm": re.compile(r"(?!all\Z)[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.IGNORECASE | re.ASCII),
    "kubernetes": re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", re.ASCII),
}


def _slurm(host: str, reason: str) -> list[str]:
    return ["scontrol", "update", f"nodename={host}", "state=drain", f"reason={reason}"]


def _kubernetes(host: str, reason: str) -> list[str]:
    return ["kubectl", "taint", "nodes", host, "deepbench=slow:NoSchedule"]


COMMANDS: dict[str, Callable[[str, str], list[str]]] = {"slurm": _slurm, "kubernetes": _kubernetes}


def manager_of(file: FleetFile, wanted: str | None = None) -> str:
    """What manages the hosts: `slurm` or `kubernetes`, as `wanted`, or else as the file says; `BadInput` for others."""
    choose = f"choose one: --drain {' or --drain '.join(COMMANDS)}"
    if wanted is not None:
        if wanted not in COMMANDS:
            raise BadInput(f"--drain has lines for {' and '.join(COMMANDS)}, found {shorten(wanted)!r}; {choose}")
        return wanted
    through = file.header.get("through")
    if not isinstance(through, str) or through not in COMMANDS:
        found = "does not say how its hosts were reached"
        if isinstance(through, str):
            found = f"says that its hosts were reached through {shorten(printable(through))!r}"
        raise BadInput(
            f"--drain wants hosts of {' or '.join(COMMANDS)}, and {printable(str(file.path))} {found}; {choose}"
        )
    return through


def drain_lines(file: FleetFile, judged: Judgement, wanted: str | None = None) -> list[str]:
    """One line for each slow host, and comments about hosts that get none.

    `wanted` is `slurm` or `kubernetes`; None: what the file says. Raises `BadInput` where neither does.
    """
    manager = manager_of(file, wanted)
    return [printable(line) for line in _lines(judged, manager)]


def _lines(judged: Judgement, manager: str) -> Iterator[str]:
    slow = [v for v in judged.hosts if v.is_slow]
    yield "# DeepBench does not run these lines." if slow else "# No host is slow: there is nothing to drain."
    if slow and manager == "kubernetes":
        yield "# A name must be that of a node, not of a pod: kubectl get nodes"
    for v in slow:
        if len(v.host) <= MOST_CHARACTERS and NAMES[manager].fullmatch(v.host):
            reason = f"deepbench: {_what(v)}, p < {ALPHA}"
            if manager != "slurm":
                yield f"# {v.host}: {reason}"
            yield shlex.join(COMMANDS[manager](v.host, reason))
        else:
            yield f"# left out: {shorten(v.host)!r} is slow, but this is no name of a host of {manager}"
    for v in judged.hosts:
        if v.is_undecided:
            yield f"# undecided, so not drained: {shorten(v.host)!r}; more runs decide"
        elif not v.is_slow and not v.is_fine:
            yield f"# failed or wrong, but not slow, so not drained: {shorten(v.host)!r}"


def _what(v: HostVerdict) -> str:
    """In what a host is slow: all kernels, the slowest one of those that are slow, or its links."""
    if v.overall is not None and v.overall.slower:
        return f"{_name(v)} {_factor(v.overall)} the median"
    if v.slow_kernels:
        case, deviation = next(iter(v.slow_kernels.items()))
        return f"{_op_of(case)} {_factor(deviation)} the median"
    assert v.links is not None, "otherwise it is not slow"
    return f"links {_factor(v.links)} the median"


def _name(v: HostVerdict) -> str:
    """What all kernels together are called: the only kernel by its operation."""
    return _op_of(next(iter(v.kernels))) if len(v.kernels) == 1 else "all kernels"


def _op_of(case: str) -> str:
    """The operation of a case; of a case that this version does not know, the word `kernel`."""
    op = case.partition(" ")[0]
    return op if op in all_ops() else "kernel"


def _factor(s: Deviation) -> str:
    return f"{s.ratio:.2f} x" if s.ratio < 1e4 else f"{s.ratio:.0e} x"
