"""Carriers: the programs with which a site runs a command on one of its hosts.

The standard input and output of a carrier are those of the command. Placement, authentication, queues and accounting
are the site's. `launch.on_host` writes the request, and `remote.py` reads it on the host.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepbench.core.errors import BadInput
from deepbench.core.json_lines import printable

REMOTE_SHELL = "DEEPBENCH_REMOTE_SHELL"
"""Names a program to call instead of ssh, `PROGRAM HOST COMMAND`, or is a command with `{host}`.

Its standard input goes to the command.
"""

HOST = "{host}"
"""Stands for the host in the words of a carrier."""

SSH_OPTIONS = (
    "-T",
    *("-o", "BatchMode=yes"),  # never asks for a password
    *("-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),  # ends with its link
    *("-o", "ControlPath=none"),  # a connection of its own: a shared one outlives this process
    *("-o", "LogLevel=INFO"),  # more would mix with the output of the command
)

SRUN_OPTIONS = (
    *("--overlap", "--quiet", "--nodes=1", "--ntasks=1", f"--nodelist={HOST}"),
    "--export=NONE",  # else the whole environment of this process goes to the host
    *("--cpu-bind=none", "--mem=0"),  # all that the job has there
)

# No name in DNS is longer.
MOST_HOST_CHARACTERS = 253

# A carrier may read the name of a host as an option, or give it to a shell.
HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]*")

MOST_LINE_CHARACTERS = 4096


@dataclass(frozen=True)
class Carrier:
    """How a command reaches a host."""

    name: str
    words: tuple[str, ...]
    """`{host}` in them stands for the host; the command follows."""
    uses_shell: bool = False
    """Whether a shell there reads the command, as a single word. Else its words are arguments."""

    def command(self, host: str, words: Sequence[str]) -> list[str]:
        """The command that runs `words` on a host; `BadInput` for what is no name of a host."""
        require_host(host)
        carrier = [word.replace(HOST, host) for word in self.words]
        return [*carrier, shlex.join(words)] if self.uses_shell else [*carrier, *words]

    def require_program(self) -> None:
        """`BadInput` where its program is not here."""
        program = self.words[0]
        if shutil.which(program) is None:
            others = ", ".join(name for name in CARRIERS if name != self.name)
            raise BadInput(
                f"hosts are reached by {printable(program[:60])}, which was not found on this machine; install it, add "
                f"its folder to PATH, or choose another way with --through ({others})"
            )


CARRIERS = {
    carrier.name: carrier
    for carrier in (
        Carrier("ssh", ("ssh", *SSH_OPTIONS, HOST), uses_shell=True),
        Carrier("slurm", ("srun", *SRUN_OPTIONS)),
        Carrier("kubernetes", ("kubectl", "exec", "--stdin", HOST, "--")),  # a host is a pod
        Carrier("flux", ("flux", "exec", f"--rank={HOST}")),  # a host is the rank of a broker
        Carrier("lsf", ("blaunch", "-z", HOST)),
        Carrier("docker", ("docker", "exec", "--interactive", HOST)),  # a host is a container
    )
}

# Programs that give their arguments to a shell on the host.
SHELLS = ("ssh", "rsh", "dbclient", "pdsh")


def is_host(name: str) -> bool:
    """Whether a carrier gets this as the name of a host."""
    return len(name) <= MOST_HOST_CHARACTERS and HOST_NAME.fullmatch(name) is not None


def require_host(name: str) -> None:
    """`BadInput` for what is no name of a host."""
    if not is_host(name):
        raise BadInput(
            f"{printable(name[:60])!r} is no name of a host; wanted up to {MOST_HOST_CHARACTERS} letters, digits and "
            "any of . _ - : @, the first a letter, a digit or _"
        )


def of_environment(environment: Mapping[str, str]) -> Carrier:
    """The carrier that `DEEPBENCH_REMOTE_SHELL` names, else ssh."""
    shell = environment.get(REMOTE_SHELL)
    if not shell:
        return CARRIERS["ssh"]
    if HOST in shell:
        return _of_line(REMOTE_SHELL, shell)
    options = SSH_OPTIONS if Path(shell).name == "ssh" else ()
    return Carrier("own", (shell, *options, HOST), uses_shell=True)


def choose(through: str | None, environment: Mapping[str, str]) -> Carrier:
    """The carrier that a person has named, by its name or as a command with `{host}`; None: what this machine offers.

    That is `DEEPBENCH_REMOTE_SHELL`, then the launcher of the allocation that this process is in, then ssh.
    """
    if through is None and not environment.get(REMOTE_SHELL):
        return CARRIERS[allocation(environment) or "ssh"]
    if through in (None, "ssh"):
        return of_environment(environment)
    return CARRIERS.get(str(through)) or _of_line("--through", str(through))


def allocation(environment: Mapping[str, str]) -> str | None:
    """The carrier of the allocation that this process is in; None outside of any."""
    for name, variable in (("slurm", "SLURM_JOB_ID"), ("lsf", "LSB_JOBID")):
        if environment.get(variable) and shutil.which(CARRIERS[name].words[0]) is not None:
            return name
    return None


def _of_line(option: str, line: str) -> Carrier:
    """A carrier as a person writes it: a command with `{host}`."""
    found = printable(line[:60])
    wanted = f"{option} wants one of {', '.join(CARRIERS)}, or a command with {HOST}, such as 'mytool {HOST} --'"
    if len(line) > MOST_LINE_CHARACTERS or not line.isprintable():
        raise BadInput(f"{wanted}; found {len(line)} characters: {found!r}")
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise BadInput(f"{wanted}; found {found!r}: {str(error).lower()}") from None
    if not any(HOST in word for word in words[1:]):
        raise BadInput(f"{wanted}; found {found!r}")
    if HOST in words[0]:
        raise BadInput(f"{option} starts with a program, and a host must not choose it; found {found!r}")
    return Carrier("own", words, uses_shell=Path(words[0]).name in SHELLS)
