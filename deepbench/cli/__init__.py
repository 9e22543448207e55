"""The command `deepbench`: one file per verb, found by being here. Only this folder prints."""

from importlib import import_module
from pathlib import Path

from deepbench.cli.root import cli, main

__all__ = ["cli", "main"]

for _path in sorted(Path(__file__).parent.glob("[!_]*.py")):
    import_module(f"{__name__}.{_path.stem}")
