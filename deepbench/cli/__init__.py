"""The command `deepbench`, a file a verb or two; the only part that talks to a person."""

from deepbench.cli import choose, compare, fleet, importing, info, reference, report, roofline, run, selftest, show
from deepbench.cli.root import cli, main

__all__ = [
    "choose",
    "cli",
    "compare",
    "fleet",
    "importing",
    "info",
    "main",
    "reference",
    "report",
    "roofline",
    "run",
    "selftest",
    "show",
]
