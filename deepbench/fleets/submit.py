"""A fleet that Slurm runs later: its batch script, and the submission.

The script says everything: options of sbatch, variables, and the command. People can keep it, change it, and submit it
again with `sbatch`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from deepbench.core.errors import BadInput
from deepbench.core.json_lines import printable
from deepbench.core.variables import is_secret
from deepbench.measuring import launch
from deepbench.measuring.process import LONGEST_QUOTE

# The job has its nodes alone, and goes on when some of them fail. It is not run again, because the file exists then.
# sbatch gives the script no variable but its own. A minute before the time limit, the command is asked to end.
OPTIONS = (
    *("--exclusive", "--no-requeue", "--no-kill", "--mem=0", "--ntasks-per-node=1"),
    *("--export=NONE", "--signal=B:TERM@60"),
)

# sbatch answers, or its controller is away.
SUBMIT_S = 60.0


def batch_script(
    words: Sequence[str],
    output: Path,
    *,
    nodes: int,
    hosts: Sequence[str] | None,
    environment: Mapping[str, str],
) -> str:
    """The text of a batch script that runs `deepbench fleet` with these words and writes the fleet file `output`.

    It runs on `nodes` nodes: `hosts`, or those that Slurm chooses. The variables that a measurement on another host
    needs are in the script; those that may be secrets are not.
    """
    folder = output.absolute().parent
    paths = {"output": output.with_suffix(".log").name, "chdir": str(folder)}
    for text in (*paths.values(), output.name):
        if not text.isprintable() or set('"%\\') & set(text):
            raise BadInput(f"a batch script cannot name {text[:60]!r}; choose another folder or name (-o)")
    where = [f"--nodes={nodes}", *([] if hosts is None else [f"--nodelist={','.join(hosts)}"])]
    options = ["--job-name=deepbench-fleet", *where, *OPTIONS, *(f'--{n}="{path}"' for n, path in paths.items())]
    variables = {n: v for n, v in launch.carried(launch.package_path(environment)).items() if not is_secret(n)}
    command = launch.module_command("deepbench", "fleet", *words, "--through", "slurm", "-o", output.name)
    lines = [
        "#!/bin/sh",
        *(f"#SBATCH {option}" for option in options),
        *(f"export {name}={shlex.quote(value)}" for name, value in sorted(variables.items())),
        f"exec {shlex.join(command)}",
    ]
    return "\n".join(lines) + "\n"


def write_script(path: Path, text: str) -> None:
    """Write a batch script; `BadInput` if a file of this name exists."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "w") as file:
            file.write(text)
    except FileExistsError:
        raise BadInput(
            f"{path} exists and is not replaced; submit it with sbatch, or choose another file (-o)"
        ) from None
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; choose another file (-o)") from None


def submit(path: Path) -> str:
    """Submit a batch script; the number of the job. `BadInput` says why Slurm does not take it."""
    advice = f"the script {path} is written; change it where needed, and submit it with sbatch {shlex.quote(str(path))}"
    try:
        done = subprocess.run(
            ["sbatch", "--parsable", str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SUBMIT_S,
        )
    except FileNotFoundError:
        raise BadInput(f"sbatch is not installed here; {advice} on a host of the cluster") from None
    except subprocess.TimeoutExpired:
        raise BadInput(f"sbatch did not answer within {SUBMIT_S:g} s; {advice}") from None
    said = printable(_last_line(done.stderr or done.stdout))
    if done.returncode:
        raise BadInput(f"sbatch refused the job: {said}; {advice}")
    number = _last_line(done.stdout).partition(";")[0]  # the name of the cluster may follow
    if not number.isdecimal():
        raise BadInput(f"expected the number of a job from sbatch, found {said!r}; {advice}")
    return number


def _last_line(output: bytes) -> str:
    *_, line = output.decode(errors="replace").strip().splitlines() or [""]
    return line[:LONGEST_QUOTE]
