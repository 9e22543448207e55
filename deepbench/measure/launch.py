"""What a process that measures a case is started with: its command, its environment and its request."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from deepbench.core.backend import Backend, find_backend
from deepbench.core.case import Case, parse_case
from deepbench.core.op import Op, find_op
from deepbench.core.variables import fixed_variables, is_tuning, override_variables, thread_variables
from deepbench.plan.modes import Rules

# Variables that a command on another host needs, besides those that tune libraries.
CARRIED_PREFIXES = (
    *("DEEPBENCH_", "PYTHON", "LD_LIBRARY_PATH", "MPI4PY_", "DASK_"),
    *("CUDA_HOME", "FI_PROVIDER_PATH", "I_MPI_ROOT"),
)

PARENT = "DEEPBENCH_PARENT"
"""The process number of the parent: a worker ends with it."""

REMOTE_SHELL = "DEEPBENCH_REMOTE_SHELL"
"""Names a program to call instead of ssh: `PROGRAM HOST COMMAND`."""

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

    @property
    def op(self) -> Op:
        """The operation that the case names."""
        return find_op(self.case.op)

    @property
    def backend(self) -> Backend:
        """The library that the case names."""
        return find_backend(self.case.backend)

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


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this package; -P: files in the current folder replace no module."""
    return [sys.executable, "-P", "-m", module, *arguments]


def on_host(host: str, environment: Mapping[str, str], command: Sequence[str]) -> list[str]:
    """The command that runs another command on a host, with the variables that it needs."""
    carried = {k: v for k, v in environment.items() if k.startswith(CARRIED_PREFIXES) or is_tuning(k)}
    variables = [f"{k}={v}" for k, v in sorted(carried.items()) if k not in (REMOTE_SHELL, SECRET)]
    shell = environment.get(REMOTE_SHELL) or "ssh"
    return [shell, host, shlex.join(["env", *variables, *command])]


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
