"""The JSON Schema of a line of a result file, made of the types in `record.py`, and checks against it.

`python -m deepbench.results.schema` prints the schema, for programs in other languages.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from types import NoneType
from typing import Any, NamedTuple

from deepbench.results.fields import schema_of
from deepbench.results.record import LINES, SCHEMA

# The lists of a measurement, with hundreds of numbers each. Checking their types and extremes is faster than asking
# the schema about each number.
LISTS = ("samples_s", "cpu_s", "involuntary_switches", "steal_s")

TYPES = {"integer": (int,), "number": (int, float), "null": (NoneType,)}


class NumberRule(NamedTuple):
    """The numbers that a list may hold."""

    types: frozenset[type]
    minimum: float
    maximum: float

    @classmethod
    def of(cls, schema: dict[str, Any]) -> NumberRule:
        """From the schema of one number."""
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        types = frozenset(kind for name in names for kind in TYPES[name])
        return cls(types, schema["minimum"], schema["maximum"])

    def allows(self, values: list[Any]) -> bool:
        """Whether all values are certainly valid. False leaves the decision to the schema."""
        types = set(map(type, values))
        if not types <= self.types:
            return False
        numbers = [v for v in values if v is not None] if NoneType in types else values
        return not numbers or (min(numbers) >= self.minimum and max(numbers) <= self.maximum)


@dataclass(frozen=True)
class Validator:
    """The schema of one kind of line, as functions that raise `fastjsonschema.JsonSchemaException`.

    They are compiled at the first use, because that takes longer than it takes to read a short file.
    """

    schema: Any
    schema_without_lists: Any
    lists: dict[str, NumberRule]

    @cached_property
    def check(self) -> Callable[[Any], Any]:
        """Checks the whole line."""
        return _compiled(self.schema)

    @cached_property
    def check_without_lists(self) -> Callable[[Any], Any]:
        """Skips the numbers in `LISTS`."""
        return _compiled(self.schema_without_lists)


def _compiled(schema: Any) -> Callable[[Any], Any]:
    import fastjsonschema

    check: Callable[[Any], Any] = fastjsonschema.compile(schema)
    return check


def schema() -> dict[str, Any]:
    """The JSON Schema of a line of a result file."""
    found: dict[str, Any] = {}
    for name, line in reversed(LINES.items()):
        own = schema_of(line)
        found = {"if": {"type": "object", "required": [name]}, "then": own, "else": found} if found else own
    checksum = {"crc32": {"type": "string", "pattern": "^[0-9a-f]{8}$"}}
    title = f"One line of a DeepBench result file ({SCHEMA})"
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": title, "properties": checksum, **found}


@cache
def validators() -> dict[str, Validator]:
    """One for each kind of line, by the field that identifies it. Every other line is a record: `case`.

    Choosing the kind first, where the schema tries one after the other, saves a third of the time of a long file.
    """
    by_kind = {}
    for kind, line in LINES.items():
        whole = schema_of(line)
        short = copy.deepcopy(whole)
        lists = {name: NumberRule.of(owner[name].pop("items")) for owner in _owners(short, LISTS[0]) for name in LISTS}
        by_kind[kind] = Validator(whole, short, lists)
    return by_kind


def _owners(schema: Any, name: str) -> Iterator[dict[str, Any]]:
    """Every object in a schema that has a member of this name."""
    if isinstance(schema, dict):
        if isinstance(schema.get(name), dict):
            yield schema
        for inner in schema.values():
            yield from _owners(inner, name)


def schema_error(line: Any) -> str | None:
    """Why this line does not match the schema, or None."""
    import fastjsonschema

    by_kind = validators()
    kind = next((name for name in by_kind if isinstance(line, dict) and name in line), "case")
    validator = by_kind[kind]
    try:
        validator.check_without_lists(line)
        measurement = line["measurement"] if kind == "case" else line.get("step")
        if measurement and not all(rule.allows(measurement[name]) for name, rule in validator.lists.items()):
            validator.check(line)
    except fastjsonschema.JsonSchemaValueException as error:
        return str(error.message)[:200]
    return None


def library_error(answer: dict[str, Any]) -> str | None:
    """Why the facts that a backend's `open` returned do not fit into a record, or None."""
    facts = answer.get("library")
    if facts is None:
        return None
    if not isinstance(facts, dict) or not isinstance(facts.get("name"), str):
        return "name must be a text"
    wrong = [name for name in ("version", "path") if not isinstance(facts.get(name, 0), str | None)]
    return f"{wrong[0]} must be a text or None" if wrong else None


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1))
