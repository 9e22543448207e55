"""Case → the words and the environment of the worker process that measures it. Pure."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from deepbench.core.variables import fixed_variables, override_variables, thread_variables, tuning_prefixes

# What a command on another host needs beside these.
CARRIED_PREFIXES = ("DEEPBENCH_", "PYTHON", "LD_LIBRARY_PATH", "MPI4PY_", "DASK_")


def worker_command(descriptor: int) -> list[str]:
    """The worker reads a request on standard input and answers on this descriptor."""
    return [sys.executable, "-P", "-m", "deepbench.measure.worker", str(descriptor)]


def rank_command() -> list[str]:
    """A rank finds its hub in its environment."""
    return [sys.executable, "-P", "-m", "deepbench.measure.group.rank"]


REMOTE_SHELL = "DEEPBENCH_REMOTE_SHELL"
"""Names what is called in the place of ssh: `PROGRAM HOST COMMAND`."""


def on_host(host: str, environment: Mapping[str, str], command: Sequence[str]) -> list[str]:
    """The words that run a command on another host, with the part of an environment that it needs."""
    known = {k: v for k, v in environment.items() if k.startswith(CARRIED_PREFIXES + tuning_prefixes())}
    variables = [f"{k}={v}" for k, v in sorted(known.items()) if k != REMOTE_SHELL]
    shell = environment.get(REMOTE_SHELL) or "ssh"
    return [shell, host, shlex.join(["env", *variables, *command])]


def package_path(inherited: Mapping[str, str]) -> dict[str, str]:
    """An environment in which this package is found by processes that ignore the folder they start in (-P).

    There a user may have a random.py.
    """
    here = str(Path(__file__).parents[2])
    return {**inherited, "PYTHONPATH": os.pathsep.join(filter(None, (here, inherited.get("PYTHONPATH"))))}


def worker_environment(threads: int, pin: str, cpus: list[int], inherited: Mapping[str, str]) -> dict[str, str]:
    """The parent's environment, with as many threads as the case says and, if it says so, bound to cores."""
    overrides = override_variables()
    environment = {k: v for k, v in package_path(inherited).items() if k not in overrides}
    environment.update(dict.fromkeys(thread_variables(), str(threads)))
    environment.update(fixed_variables(), PYTHONUNBUFFERED="1")
    if pin == "cores":
        places = ",".join(f"{{{cpu}}}" for cpu in cpus[:threads])
        environment.update(OMP_PROC_BIND="true", OMP_PLACES=places)
    return environment


def worker_cpus(threads: int, pin: str, cpus: list[int]) -> list[int] | None:
    """The CPUs a pinned worker may use; None leaves the mask alone."""
    return cpus[:threads] if pin == "cores" else None
