"""The options of `deepbench fleet` that check this host, or make the references for such checks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from deepbench.api.text import BadInput, DeepBenchError, require_no_results, shorten
from deepbench.cli.streams import say, warn


def check_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options. Must be the decorator next to the function: with one of them, it is not called."""

    @wraps(command)
    def checked(
        words: tuple[str, ...],
        check: bool,
        reference: str | None,
        history: str | None,
        prometheus: str | None,
        write_references: str | None,
        **others: Any,
    ) -> int:
        if not check and write_references is None:
            if unused := _first(reference=reference, history=history):
                raise BadInput(f"--{unused} belongs to --check, which checks this host")
            return command(words=words, prometheus=prometheus, **others)
        both = "--check" if check else "--write-references"
        if other := _first(**others):
            raise BadInput(f"{both} measures on no other host and chooses no cases; leave out --{other}")
        if check:
            if words or write_references is not None or reference is None:
                raise BadInput("a check has the form: deepbench fleet --check --reference FILE")
            return _check(Path(reference), history, prometheus)
        if len(words) != 1 or reference or history or prometheus:
            raise BadInput("references are made by: deepbench fleet FILE --write-references FOLDER")
        return _write_references(words[0], str(write_references))

    for option in (
        click.option(
            "--write-references", metavar="FOLDER", help="Of a fleet FILE: what its healthy hosts reach, by type."
        ),
        click.option("--history", metavar="FOLDER", help="With --check: add a result file to this folder."),
        click.option(
            "--reference", metavar="FILE", help="With --check: what healthy hosts reach (a file, or a folder of them)."
        ),
        click.option("--check", is_flag=True, help="Check this host alone, as in a prolog: at most 60 s."),
    ):
        checked = option(checked)
    return checked


def _first(**options: Any) -> str | None:
    """The first option that has a value, as it is typed."""
    return next((name.replace("_", "-") for name, value in options.items() if value), None)


def _check(reference: Path, history: str | None, prometheus: str | None) -> int:
    from deepbench.fleets.api import check_host, write_prometheus

    if prometheus:
        require_no_results(Path(prometheus))
    found = check_host(reference, Path(history) if history else None, sys.argv[1:])
    line = found.line
    if prometheus:
        try:
            write_prometheus(Path(prometheus), found)
        except DeepBenchError as error:  # the verdict is known all the same
            line += f"; {error}"
    warn(line)
    return found.exit_code


def _write_references(path: str, folder: str) -> int:
    from deepbench.fleets.api import reference_sentences, write_references
    from deepbench.fleets.results import FleetResults

    if not Path(path).is_file():
        raise BadInput(f"{shorten(path)} does not exist; expected a file that `deepbench fleet` wrote")
    for sentence in reference_sentences(*write_references(FleetResults.read(Path(path)).file, Path(folder))):
        say(sentence)
    return 0
