"""What a process that measures a case is started with: its command, its environment and its request."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from deepbench.core.backend import Backend
from deepbench.core.case import Case, parse_case
from deepbench.core.op import Op
from deepbench.core.variables import fixed_variables, is_tuning, override_variables, thread_variables
from deepbench.measuring import carriers
from deepbench.measuring.carriers import REMOTE_SHELL, Carrier
from deepbench.plan.modes import Rules

# Variables that a command on another host needs, besides those that tune libraries.
CARRIED_PREFIXES = (
    *("DEEPBENCH_", "PYTHON", "LD_LIBRARY_PATH", "MPI4PY_"),
    *("CUDA_HOME", "FI_PROVIDER_PATH", "I_MPI_ROOT"),
)

# What Python needs to start there. Only these are in the command line, which every user of the host can read.
START_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH")

PARENT = "DEEPBENCH_PARENT"
"""The process number of the parent: a worker ends with it."""

# Settings of the C library under which the memory of freed arrays stays in the process, so that the next array does not
# wait for the system to clear its pages, and lies in huge pages. Allocators that frameworks recommend do the same.
KEEPS_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}

SECRET = "DEEPBENCH_SECRET"
"""What the ranks of a launcher know and nobody else. Never part of a command line, which every user can read."""


@dataclass(frozen=True)
class Request:
    """What a worker, or every rank of a group, is asked to measure: one round of a case."""

    case: Case
    round_number: int
    rules: Rules
    timeout_s: float
    cpus: list[int] | None = None
    """Of a pinned worker the CPUs it may use, of a pinned group one per rank. None: the affinity stays as it is."""
    choice: str | None = None
    """The algorithm that an earlier search chose for this case; see `choices.py`."""
    rivals: int = 0
    """How many other processes of its heat use the same device, which are stopped while this one is sampled."""

    @property
    def op(self) -> Op:
        """The operation that the case names."""
        return self.case.operation

    @property
    def backend(self) -> Backend:
        """The library that the case names."""
        return self.case.library

    @property
    def sampling_rules(self) -> Rules:
        """The rules, but a long first call is the only sample only if the library loads next to nothing in it."""
        return self.rules if self.backend.loads_at_once else replace(self.rules, first_call_counts_s=None)

    @property
    def message(self) -> dict[str, Any]:
        """As JSON carries it; `of` is the inverse."""
        return {**vars(self), "case": self.case.text, "rules": asdict(self.rules)}

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Request:
        """Read a message."""
        return cls(**{**message, "case": parse_case(message["case"]), "rules": Rules(**message["rules"])})


def module_command(module: str, *arguments: str, python: str | None = None) -> list[str]:
    """The command that runs a module of this package; -P: files in the current folder replace no module.

    `python` is the interpreter of another host; None: the same path as here.
    """
    return [python or sys.executable, "-P", "-m", module, *arguments]


def on_host(
    host: str,
    environment: Mapping[str, str],
    command: Sequence[str],
    *,
    carrier: Carrier | None = None,
    python: str | None = None,
    returns_file: bool = False,
) -> tuple[list[str], bytes]:
    """The command that runs another command on a host, and what to write to its standard input.

    `remote.py` reads it there. The command gets the variables that it needs, and ends with this standard input. With
    `returns_file` the path of a new file becomes its last argument, and the content of the file is sent back; then the
    standard input must give signs of life. `carrier` reaches the host, None: the one of the environment. `python` is
    the interpreter there. `BadInput` for what is no name of a host.
    """
    variables = carried(environment)
    start = [f"{name}={variables[name]}" for name in START_VARIABLES if name in variables]
    # Whole paths: a launcher may start its tasks without PATH.
    far_end = ["/usr/bin/env", *start, *module_command("deepbench.measuring.remote", python=python)]
    request = {"environment": variables, "command": list(command), "returns_file": returns_file}
    words = (carrier or carriers.of_environment(environment)).command(host, far_end)
    # `json` rather than `to_line`: it also carries values that are not UTF-8.
    return words, json.dumps(request).encode() + b"\n"


def carried(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a command on another host gets."""
    others = (REMOTE_SHELL, SECRET)
    return {
        k: v for k, v in environment.items() if (k.startswith(CARRIED_PREFIXES) or is_tuning(k)) and k not in others
    }


def with_variables(environment: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """The environment with these variables; an empty value removes one."""
    return {k: v for k, v in {**environment, **variables}.items() if v or k not in variables}


def package_path(inherited: Mapping[str, str]) -> dict[str, str]:
    """An environment in which processes find this package although they ignore their current folder (-P).

    That folder may contain files such as random.py.
    """
    here = str(Path(__file__).parents[2])
    return {**inherited, "PYTHONPATH": os.pathsep.join(filter(None, (here, inherited.get("PYTHONPATH"))))}


def worker_environment(threads: int, pin: str, cpus: list[int], inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of the parent with the number of threads of the case, pinned to cores if the case says so."""
    overrides = override_variables()
    environment = {k: v for k, v in package_path(inherited).items() if k not in overrides}
    environment.update(dict.fromkeys(thread_variables(), str(threads)))
    environment.update(fixed_variables(), PYTHONUNBUFFERED="1")
    if pin == "cores":
        places = ",".join(f"{{{cpu}}}" for cpu in cpus[:threads])
        environment.update(OMP_PROC_BIND="true", OMP_PLACES=places)
    return environment
