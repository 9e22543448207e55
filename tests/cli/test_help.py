"""The help of every command fits a terminal of 80 columns."""

import click
import pytest

from deepbench.cli import cli


def commands(command, path):
    """Every command with the words that call it, also those of groups."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}")


@pytest.mark.parametrize(("path", "command"), [pytest.param(*c, id=c[0]) for c in commands(cli, "deepbench")])
def test_help_fits_80_columns(monkeypatch, path, command):
    monkeypatch.setenv("COLUMNS", "80")
    with click.Context(command, info_name=path, **command.context_settings) as context:
        lines = command.get_help(context).splitlines()

    assert len(lines) > 3
    assert [] == [line for line in lines if len(line) > 80]
