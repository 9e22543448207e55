"""The command `deepbench`: one file per verb, found by being here or in the folder `cli` of a wing."""

from importlib import import_module
from pathlib import Path

from deepbench.cli.root import cli, main

__all__ = ["cli", "main"]

_PACKAGE = Path(__file__).parents[1]
for _path in sorted([*_PACKAGE.glob("cli/[!_]*.py"), *_PACKAGE.glob("*/cli/[!_]*.py")]):
    import_module(".".join(("deepbench", *_path.relative_to(_PACKAGE).with_suffix("").parts)))
