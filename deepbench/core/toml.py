"""TOML that may come from anyone: its size is limited before it is parsed, and its numbers afterwards."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable

# Names with their parts, values of lists, lists and tables, outside of texts.
MOST_PARTS = 100_000

# Outside of texts, in one line: a name of many parts makes a table for each, and takes time for each pair of them.
MOST_DOTS = 20

# Whole numbers of 64 bits, with or without a sign. Python does not even print those of thousands of digits.
SMALLEST, LARGEST = -(2**63), 2**64 - 1

# Texts and comments. One without its end goes on to the end of the line, or of the file: there TOML is not valid. Each
# alternative matches whatever follows its first characters, so nothing is searched twice.
_TEXT = re.compile(
    r'"""[^"\\]*+(?:(?:\\.?+|"(?!""))[^"\\]*+)*+(?:"""|\Z)'
    r"|'''[^']*+(?:'(?!'')[^']*+)*+(?:'''|\Z)"
    r'|"[^"\\\n]*+(?:\\.?+[^"\\\n]*+)*+(?:"|$)'
    r"|'[^'\n]*+(?:'|$)"
    r"|#[^\n]*+",
    re.DOTALL | re.MULTILINE,
)


def parse_toml(text: str, named: str) -> dict[str, Any]:
    """The table that a text describes; `BadInput` if it is not TOML, or larger than any file of ours."""
    bare = _TEXT.sub("", text)
    parts = sum(map(bare.count, "=,[{."))
    if parts > MOST_PARTS:
        raise BadInput(f"{named} has {parts} names and values; at most {MOST_PARTS} are read")
    dots = max(line.count(".") for line in bare.split("\n"))
    if dots > MOST_DOTS:
        raise BadInput(f"{named} has a line with {dots} dots outside of texts; at most {MOST_DOTS} are read")
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise BadInput(f"{named} is not valid TOML: its lists or tables are nested too deeply") from None
    except ValueError as error:  # of a number with thousands of digits it is no error of TOML
        reason = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "a number has thousands of digits"
        raise BadInput(f"{named} is not valid TOML: {shorten(printable(reason), 200)}") from None
    _check_numbers(table, named)
    return table


def _check_numbers(table: dict[str, Any], named: str) -> None:
    """`BadInput` for a whole number that has no 64 bits."""
    left: list[Any] = [table]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, int) and not SMALLEST <= value <= LARGEST:
            raise BadInput(f"{named} has a whole number of {value.bit_length()} bits; at most 64 are read")
