"""Errors, and how numbers, paths and commands are written: what every program that prints results needs."""

from deepbench.core import units
from deepbench.core.aliases import did_you_mean
from deepbench.core.errors import BadInput, DeepBenchError, Unavailable, shorten
from deepbench.core.files import NotWritten, replacing, require_no_results
from deepbench.core.json_lines import printable, printable_lines, sanitized
from deepbench.core.shell import command
from deepbench.core.version import VERSION
from deepbench.core.words import count

__all__ = [
    "VERSION",
    "BadInput",
    "DeepBenchError",
    "NotWritten",
    "Unavailable",
    "command",
    "count",
    "did_you_mean",
    "printable",
    "printable_lines",
    "replacing",
    "require_no_results",
    "sanitized",
    "shorten",
    "units",
]
