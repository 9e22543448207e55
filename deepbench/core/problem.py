"""The sizes of an operation: frozen dataclasses that validate themselves.

A field is an integer (`size`) or one of a few words (`choice`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from deepbench.core.errors import BadInput, shorten

# The largest size in a problem: interfaces of libraries use signed 32-bit integers.
LARGEST_SIZE = 2**31 - 1

# Sequences of different lengths: the lengths of more would take long to draw.
MOST_SPREAD = 2**20


def size(default: int | None = None, least: int = 1, most: int = LARGEST_SIZE, omit_default: bool = False) -> Any:
    """An integer field of a Problem, from `least` to `most`. With a `default` it is optional.

    `omit_default` omits the field from the problem's text when it has its default value.
    """
    metadata = {"least": least, "most": most, "omit_default": omit_default}
    return dataclasses.field(default=dataclasses.MISSING if default is None else default, metadata=metadata)


def choice(*words: str, default: str | None = None) -> Any:
    """A field of a Problem that is one of these words. A `default` makes it optional and is omitted from the text."""
    metadata = {"words": words, "omit_default": default is not None}
    return dataclasses.field(default=dataclasses.MISSING if default is None else default, metadata=metadata)


_FIELDS: dict[Any, tuple[dataclasses.Field[Any], ...]] = {}


def fields_of(problem: Any) -> tuple[dataclasses.Field[Any], ...]:
    """The fields of a Problem class; cached, because files with many cases ask often."""
    if problem not in _FIELDS:
        _FIELDS[problem] = dataclasses.fields(problem)
    return _FIELDS[problem]


def check_spread(lengths: str, batch: int) -> None:
    """`BadInput` if sequences of different lengths are too many to draw the length of each."""
    if lengths == "spread" and batch > MOST_SPREAD:
        raise BadInput(f"with lengths=spread, batch must be at most {MOST_SPREAD}, found {batch}")


class HasProblem(Protocol):
    """What this module needs to know about an operation."""

    name: ClassVar[str]
    Problem: ClassVar[type[BaseProblem]]


@dataclass(frozen=True)
class BaseProblem:
    """Base class of all problems: frozen dataclasses with the sizes of an operation, named by the usual letters.

    Raises `BadInput` if an integer is out of bounds or a word is not among its choices.
    """

    def __post_init__(self) -> None:
        for field in fields_of(type(self)):
            value = getattr(self, field.name)
            if words := field.metadata.get("words"):
                if value not in words:
                    raise BadInput(f"{field.name} must be one of {', '.join(words)}, found {shorten(repr(value))}")
                continue
            least, most = field.metadata["least"], field.metadata["most"]
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise BadInput(
                    f"{field.name} must be a whole number from {least} to {most}, found {shorten(repr(value))}"
                )

    @property
    def values(self) -> dict[str, int | str]:
        """Field names and values, in the order of the text."""
        return {f.name: getattr(self, f.name) for f in fields_of(type(self))}

    @property
    def text(self) -> str:
        """`m=2 n=3 k=4 a_t=0 b_t=0`."""
        omitted = {f.name: f.default for f in fields_of(type(self)) if f.metadata["omit_default"]}
        return " ".join(f"{n}={v}" for n, v in self.values.items() if n not in omitted or v != omitted[n])


def make_problem(op: HasProblem, values: Mapping[str, int | str]) -> BaseProblem:
    """The Problem of an operation from field names and values; `BadInput` for unknown or missing fields."""
    fields = {f.name: f for f in fields_of(op.Problem)}
    unknown = [name for name in values if name not in fields]
    if unknown:
        raise BadInput(f"{op.name} has no field {unknown[0]!r}; its fields are {', '.join(fields)}")
    missing = [name for name in required_fields(op) if name not in values]
    if missing:
        # `kv_heads` is often as many as `heads`, and must divide them.
        alike = next((value for name, value in values.items() if missing[0].endswith(f"_{name}")), "1024")
        example = fields[missing[0]].metadata.get("words", [alike])[0]
        raise BadInput(f"{op.name} needs {', '.join(missing)}; add for example {missing[0]}={example}")
    make: Callable[..., BaseProblem] = op.Problem
    return make(**values)


def required_fields(op: HasProblem) -> list[str]:
    """The fields of an operation's Problem that have no default."""
    return [f.name for f in fields_of(op.Problem) if f.default is dataclasses.MISSING]
