"""The options of `deepbench fleet` that hand a fleet over to Slurm or Kubernetes instead of measuring now."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from deepbench.api.text import BadInput, command, shorten
from deepbench.cli.options import whole
from deepbench.cli.streams import say

# The names of arguments that the command in a batch script does not get, and of those that make a manifest.
NOT_IN_SCRIPT = ("submit", "nodes", "hosts", "hostfile", "through", "output")
OF_MANIFEST = ("manifest", "nodes", "image", "cpus", "memory", "gpus")


@dataclass(frozen=True)
class Job:
    """A fleet that Slurm runs later."""

    nodes: int | None
    words: list[str]
    """The words of its command."""


OPTIONS = (
    click.option("--submit", is_flag=True, help="Write a batch script, submit it to Slurm, and measure when it runs."),
    click.option("--manifest", metavar="KIND", help="Print the pods of a fleet for Kubernetes, as a job or daemonset."),
    click.option("--nodes", metavar="N", help="With --submit and --manifest job: on how many nodes."),
    click.option("--image", metavar="IMAGE", help="With --manifest: a container image that contains deepbench."),
    click.option("--cpus", metavar="N", help="With --manifest: CPUs of each pod."),
    click.option("--memory", metavar="SIZE", help="With --manifest: memory of each pod, such as 64Gi."),
    click.option("--gpus", metavar="N", help="With --manifest: GPUs of NVIDIA of each pod (default none)."),
)


def job_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options. The command gets a `Job` with --submit, else None; with --manifest, it is not called."""

    @wraps(function)
    def command_with_job(
        submit: bool,
        manifest: str | None,
        nodes: str | None,
        image: str | None,
        cpus: str | None,
        memory: str | None,
        gpus: str | None,
        **others: Any,
    ) -> int:
        if manifest is not None:
            if typed := _typed(OF_MANIFEST):
                raise BadInput(f"--manifest prints pods, and measures nothing; leave out {shorten(typed[0])}")
            _print_manifest(manifest, nodes, image, cpus, memory, gpus)
            return 0
        of_pods = {"--image": image, "--cpus": cpus, "--memory": memory, "--gpus": gpus}
        if unused := [name for name, value in of_pods.items() if value is not None]:
            raise BadInput(f"{unused[0]} belongs to --manifest job or --manifest daemonset")
        if not submit:
            if nodes is not None:
                raise BadInput("--nodes belongs to --submit and --manifest; hosts are named with --hosts")
            return function(job=None, **others)
        return function(job=Job(whole("--nodes", nodes, 100_000), _typed(NOT_IN_SCRIPT)), **others)

    added: Callable[..., int] = command_with_job
    for option in reversed(OPTIONS):
        added = option(added)
    return added


def _typed(leave_out: Collection[str]) -> list[str]:
    """The words and options of this command as they were typed, but those whose arguments have these names."""
    context, words = click.get_current_context(), list[str]()
    for parameter in context.command.params:
        name = str(parameter.name)
        value: Any = context.params.get(name)
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE or name in leave_out:
            continue
        if isinstance(parameter, click.Argument):
            words += value
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            words.append(parameter.opts[-1])
        else:
            several = isinstance(parameter, click.Option) and parameter.multiple
            words += [f"{parameter.opts[-1]}={one}" for one in (value if several else [value])]
    return words


def _print_manifest(
    kind: str, nodes: str | None, image: str | None, cpus: str | None, memory: str | None, gpus: str | None
) -> None:
    from deepbench.fleets.api import manifest

    count = whole("--cpus", cpus, 100_000)
    if image is None or count is None or memory is None:
        raise BadInput("a manifest has the form: deepbench fleet --manifest KIND --image IMAGE --cpus N --memory SIZE")
    text = manifest(
        kind,
        image=image,
        cpus=count,
        memory=memory,
        gpus=whole("--gpus", gpus, 1000) or 0,
        nodes=whole("--nodes", nodes, 100_000),
    )
    say(text.rstrip("\n"))


def submit_job(job: Job, path: Path, through: str | None, hosts: Sequence[str] | None) -> int:
    """Write the batch script of a fleet, print it, and submit it."""
    from deepbench.fleets import api

    if through not in (None, "slurm"):
        raise BadInput(f"--submit hands a fleet over to Slurm: --through slurm, found {shorten(through)}")
    if hosts is not None and job.nodes is not None:
        raise BadInput("--nodes lets Slurm choose nodes, and --hosts names them; choose one of them")
    count = job.nodes if hosts is None else len(hosts)
    if count is None or count < 2:
        raise BadInput(f"--submit wants two or more nodes: --nodes N, or --hosts NAMES; found {count or 'none'}")
    if path.exists():
        raise BadInput(f"{path} exists and is not replaced; choose another file (-o)")
    text = api.batch_script(job.words, path, nodes=count, hosts=hosts, environment=os.environ)
    script = path.with_suffix(".sbatch")
    api.write_script(script, text)
    say(text)
    number = api.submit(script)
    say(f"{script} is job {number}. When it has ended:\n  {command('fleet', path)}")
    return 0
