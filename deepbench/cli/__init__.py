"""The command `deepbench`: one file per verb. Only this folder prints."""

from deepbench.cli import (
    compare,
    fleet,
    gate,
    import_file,
    info,
    list,
    published,
    report,
    roofline,
    run,
    scale,
    selftest,
    show,
    site,
)
from deepbench.cli.root import cli, main

__all__ = [
    "cli",
    "compare",
    "fleet",
    "gate",
    "import_file",
    "info",
    "list",
    "main",
    "published",
    "report",
    "roofline",
    "run",
    "scale",
    "selftest",
    "show",
    "site",
]
