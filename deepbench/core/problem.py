"""The sizes of an operation: frozen dataclasses that check themselves.

A field is a whole number (`size`) or one word out of a few (`choice`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from deepbench.core.errors import BadInput, shorten

# The largest size a problem may state: vendors' interfaces count in signed 32-bit integers.
LARGEST_SIZE = 2**31 - 1


def size(default: int | None = None, least: int = 1, most: int = LARGEST_SIZE, quiet: bool = False) -> Any:
    """A field of a Problem: a whole number from `least` to `most`, `default` where it may be left out.

    A `quiet` field is left out of the problem's text at its default.
    """
    metadata = {"least": least, "most": most, "quiet": quiet}
    if default is None:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def choice(*words: str, default: str | None = None) -> Any:
    """A field of a Problem that is one of these words; with a `default` it is left out of the text there."""
    if default is None:
        return dataclasses.field(metadata={"words": words})
    return dataclasses.field(default=default, metadata={"words": words, "quiet": True})


_FIELDS: dict[Any, tuple[dataclasses.Field[Any], ...]] = {}


def fields_of(problem: Any) -> tuple[dataclasses.Field[Any], ...]:
    """The fields of a class of Problem; asked again and again for files of many cases."""
    if problem not in _FIELDS:
        _FIELDS[problem] = dataclasses.fields(problem)
    return _FIELDS[problem]


class HasProblem(Protocol):
    """What this module needs to know of an operation."""

    name: ClassVar[str]
    Problem: ClassVar[type[BaseProblem]]


@dataclass(frozen=True)
class BaseProblem:
    """Base of the frozen dataclasses, one an op, that hold sizes and structure in the field's letters.

    Checks itself when made: every field is a whole number within the bounds its `size` gives, or a word of its
    `choice`.
    """

    def __post_init__(self) -> None:
        for field in fields_of(type(self)):
            value = getattr(self, field.name)
            if words := field.metadata.get("words"):
                if value not in words:
                    raise BadInput(f"{field.name} is one of {', '.join(words)}, found {shorten(repr(value))}")
                continue
            least, most = field.metadata["least"], field.metadata["most"]
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise BadInput(
                    f"{field.name} must be a whole number from {least} to {most}, found {shorten(repr(value))}"
                )

    @property
    def values(self) -> dict[str, int | str]:
        """Field names and values, in the order they are written."""
        return {f.name: getattr(self, f.name) for f in fields_of(type(self))}

    @property
    def text(self) -> str:
        """`m=2 n=3 k=4 a_t=0 b_t=0`."""
        quiet = {f.name: f.default for f in fields_of(type(self)) if f.metadata.get("quiet")}
        return " ".join(f"{n}={v}" for n, v in self.values.items() if n not in quiet or v != quiet[n])


def make_problem(op: HasProblem, values: Mapping[str, int | str]) -> BaseProblem:
    """The op's Problem from field names and values; `BadInput` for unknown and missing fields."""
    fields = {f.name: f for f in fields_of(op.Problem)}
    unknown = [name for name in values if name not in fields]
    if unknown:
        raise BadInput(f"{op.name} has no field {unknown[0]!r}; its fields are {', '.join(fields)}")
    missing = [name for name in required_fields(op) if name not in values]
    if missing:
        raise BadInput(f"{op.name} needs {', '.join(missing)}; write for example {missing[0]}=1024")
    make: Callable[..., BaseProblem] = op.Problem
    return make(**values)


def required_fields(op: HasProblem) -> list[str]:
    """The fields of the op's Problem that have no default."""
    fields = fields_of(op.Problem)
    return [f.name for f in fields if f.default is dataclasses.MISSING]
