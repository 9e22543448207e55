"""Where the hosts of a fleet come from: words, a file, or the site's own engine.

Sets of hosts such as `node[001-512]`, and groups, are read by ClusterShell, and only after they were counted.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.core.json_lines import from_line, printable
from deepbench.measuring.carriers import Carrier, require_host
from deepbench.plan.suites import text_of

# More hosts, and longer texts that name them, are a mistake.
MOST_HOSTS, MOST_CHARACTERS = 100_000, 2**21

# What only a set of hosts has: ranges, groups, and operators.
OF_SETS = re.compile(r"[][!&^*]|^@|[,\s]@")

# Every character that a set of hosts may have.
CHARACTERS = re.compile(r"[]A-Za-z0-9_.:@,/[!&^*\s-]+")

# The parts of a range in brackets: `7`, `001-512` or `0-9/2`.
RANGE = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15})(?:/([0-9]{1,15}))?)?")

# How long Slurm or Kubernetes may take to list hosts.
LISTING_S = 60.0

# The label of the pods that are the hosts of a fleet.
POD_LABEL = "app=deepbench"


def named(text: str) -> list[str]:
    """The hosts that words name: `a,b`, `node[001-512]`, `@group`; `BadInput` for other words and for too many."""
    if len(text) <= MOST_CHARACTERS:
        text = " ".join(text.split())
    if len(text) > MOST_CHARACTERS or not text.isprintable():
        raise BadInput(f"hosts must be named by up to {MOST_CHARACTERS} printable characters, found {len(text)}")
    names = _expanded(text) if OF_SETS.search(text) else re.split(r"[,\s]+", text.strip(", "))
    return _checked(names, "no host is named: wanted names with commas between, or node[001-016]")


def of_file(path: str) -> list[str]:
    """The hosts of a file, one name or set per line. What follows, such as `slots=4`, is ignored."""
    names: list[str] = []
    for line in text_of(Path(path), "one host per line").splitlines():
        words = line.partition("#")[0].split()
        if words and OF_SETS.search(words[0]):
            names += named(words[0])
        elif words:
            names.append(words[0].partition(":")[0])
        if len(names) > MOST_HOSTS:
            break
    return _checked(names, f"{path} names no host")


def of_site(carrier: Carrier) -> dict[str, str]:
    """The hosts that the engine of the site has given to us: the address of each by its name."""
    if carrier.name == "slurm" and (nodes := os.environ.get("SLURM_JOB_NODELIST")):
        names = _output("scontrol", "show", "hostnames", nodes).split()
    elif carrier.name == "lsf" and (listed := os.environ.get("LSB_HOSTS")):
        names = listed.split()
    elif carrier.name == "lsf" and (file := os.environ.get("LSB_DJOB_HOSTFILE")):
        return {host: host for host in of_file(file)}
    elif carrier.name == "kubernetes":
        return _pods(_output("kubectl", "get", "pods", "--selector", POD_LABEL, "--output", "json"))
    else:
        raise BadInput(
            "expected hosts, found none: name them (--hosts 'node[001-016]' or --hostfile FILE), start this command "
            "inside an allocation of Slurm or LSF, or say --through kubernetes"
        )
    return {host: host for host in _checked(names, f"the allocation of {carrier.name} names no host")}


def _expanded(text: str) -> Iterable[str]:
    """The names in a set of hosts, which is counted before."""
    if not CHARACTERS.fullmatch(text):
        raise BadInput(f"{printable(text[:60])!r} is no set of hosts; wanted one such as node[001-512],login1")
    most = _count(text)
    if most > MOST_HOSTS:
        raise BadInput(f"{printable(text[:60])} names up to {most} hosts; a fleet has at most {MOST_HOSTS}")
    try:
        from ClusterShell.NodeSet import NodeSet, NodeSetException
        from ClusterShell.NodeUtils import GroupResolverError
    except ImportError:
        raise BadInput(
            f"{printable(text[:60])} is a set of hosts, which needs ClusterShell: pip install ClusterShell; or name "
            "each host, with commas between"
        ) from None
    try:
        names = list(NodeSet(text))
    except (NodeSetException, GroupResolverError, OSError) as error:
        raise BadInput(f"{printable(text[:60])} is no set of hosts: {printable(str(error)[:200])}") from None
    if not names:  # as for an unknown group
        raise BadInput(f"{printable(text[:60])} is no set of hosts: it names none")
    return names


def _count(text: str) -> int:
    """The most hosts that a set can have, groups aside. `BadInput` for ranges that are none."""
    counted = re.sub(r"\[([^][]*)\]", lambda match: f"#{sum(map(_length, match[1].split(',')))}#", text)
    total = 0
    for part in re.split(r"[,!&^\s]", counted):
        product = 1
        for number in re.findall("#([0-9]+)#", part):
            product = min(product * int(number), 10**18)
        total += product
    return total


def _length(part: str) -> int:
    """The numbers in one part of a range."""
    match = RANGE.fullmatch(part)
    if match is None or match[3] == "0":
        raise BadInput(f"{printable(part[:60])!r} is no range of hosts; wanted one such as 001-512")
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    return max(0, last - first) // step + 1


def _checked(names: Iterable[str], none: str) -> list[str]:
    """Each name once; `BadInput` for what is no name, for none, and for too many."""
    hosts = list(dict.fromkeys(filter(None, names)))
    if not hosts:
        raise BadInput(none)
    if len(hosts) > MOST_HOSTS:
        raise BadInput(f"a fleet has at most {MOST_HOSTS} hosts, found {len(hosts)} or more")
    for host in hosts:
        require_host(host)
    return hosts


def _pods(text: str) -> dict[str, str]:
    """The pods that `kubectl` lists, each by the name of its node, or by its own where several share a node."""
    try:
        found = [(item["metadata"]["name"], item["spec"].get("nodeName")) for item in from_line(text)["items"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadInput(f"expected a list of pods from kubectl, found {printable(text[:60])!r}") from None
    nodes: dict[Any, int] = {}
    for _, node in found:
        nodes[node] = nodes.get(node, 0) + 1
    pods = {str(node) if node and nodes[node] == 1 else str(pod): str(pod) for pod, node in found}
    _checked([*pods, *pods.values()], f"no pod has the label {POD_LABEL}; start some, or name pods with --hosts")
    return pods


def _output(*command: str) -> str:
    """What a program of the site prints; `BadInput` says why it does not."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LISTING_S)
    except OSError as error:
        raise BadInput(f"cannot list hosts with {command[0]}: {error.strerror}; name them with --hosts") from None
    except subprocess.TimeoutExpired:
        raise BadInput(f"{command[0]} did not list hosts within {LISTING_S:g} s; name them with --hosts") from None
    if done.returncode:
        said = printable(done.stderr.decode(errors="replace").strip()[:200]) or f"exit code {done.returncode}"
        raise BadInput(f"{' '.join(command[:3])} lists no hosts: {said}; name them with --hosts")
    return done.stdout.decode(errors="replace")
