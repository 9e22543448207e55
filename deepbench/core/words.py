"""Words around numbers: plurals and lists of names."""

from __future__ import annotations

from collections.abc import Iterable


def plural(count: float, noun: str) -> str:
    """`case` for one, and `cases` for any other number."""
    return noun if count == 1 else f"{noun}s"


def count(number: int, noun: str) -> str:
    """`1 case`, `2 cases`."""
    return f"{number} {plural(number, noun)}"


def join(names: Iterable[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`; empty without names."""
    *others, end = list(names) or [""]
    return f"{', '.join(others)} {last} {end}" if others else end
