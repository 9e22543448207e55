"""`deepbench submit`: check a result by the rules of a round, and write the folder to send."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deepbench.api.text import BadInput
from deepbench.cli.console import print_text
from deepbench.cli.options import form_options
from deepbench.cli.root import EXIT_WRONG, HELP, cli
from deepbench.cli.streams import say

if TYPE_CHECKING:
    from deepbench.api.submitting import Submission


@cli.command(context_settings=HELP, short_help="Check a result, and write the folder to send.")
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option("--round", "round_", metavar="NAME", help="A round, or a TOML file (default: the newest that fits).")
@click.option("--machine", metavar="TITLE", help="A title of the machine, instead of its processor and host name.")
@click.option("-o", "--output", metavar="DIR", default="results", help="Folder of all results (default: results).")
@click.option("--check", is_flag=True, help="Write nothing. FILE may be a folder that was submitted.")
@click.option("--replace", is_flag=True, help="Write in place of an earlier folder of this machine.")
@click.option("--rounds", is_flag=True, help="Print the rounds with their suites and rules.")
@form_options
def submit(
    files: tuple[str, ...],
    round_: str | None,
    machine: str | None,
    output: str,
    check: bool,
    replace: bool,
    rounds: bool,
    form: str | None,
) -> int:
    """Check a result file as strictly as a results repository does, and write the folder for a pull request.

    The folder has the data without host names, users and home folders, a README, and submission.json. FILE does not
    change. Exit code 0: it passes; 1: it lacks something, which is printed with what to do; 64: bad input.

    \b
    Examples:
      deepbench submit mine.jsonl --machine "Ryzen 9950X, 64 GB"
      deepbench submit mine.jsonl --check --round 2026
      deepbench submit --check results/2026/*
      deepbench submit --rounds
    """
    from deepbench.api.submitting import rounds_report
    from deepbench.api.submitting import submit as submit_file

    if rounds:
        print_text(rounds_report(), form)
        return 0
    if form is not None:
        raise BadInput(f"--{form} is for --rounds; the form of a submission for programs is its submission.json")
    if not files:
        raise BadInput("name a result file, such as: deepbench submit mine.jsonl; --rounds prints the rules")
    if machine is not None and len(files) > 1:
        raise BadInput("--machine is for one file; submit the files one by one")
    code = 0
    for file in files:
        found = submit_file(file, output, round=round_, machine=machine, check=check, replace=replace)
        _print(found)
        code = code if found.passes else EXIT_WRONG
    return code


def _print(found: Submission) -> None:
    verdict = "passes" if found.passes else "does not pass"
    say(f"{found.path}: {verdict} the round {found.round} as {found.mark}")
    for text in found.lacks:
        say(f"- {text}")
    if not found.passes:
        return
    for suite, precisions in found.suites.items():
        say(f"{suite}: {', '.join(precisions)}")
    for text in found.findings:
        say(f"note: {text}")
    for text in found.replaced:
        say(f"replaced: {text}")
    if found.folder is not None:
        say(f"wrote {Path(found.folder)}; look at its README.md, then send it as a pull request")
