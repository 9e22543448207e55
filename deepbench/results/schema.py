"""Whether a line of a result file fits the JSON Schema in `schema.json`, and makes sense."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import NoneType
from typing import Any, NamedTuple

from deepbench.results.record import MEASURED

# Lists of hundreds of numbers: a look at their types and extremes says what the schema would say of each number.
LISTS = ("samples_s", "cpu_s", "involuntary_switches", "steal_s")


class Numbers(NamedTuple):
    """What the numbers of a list may be."""

    types: frozenset[type]
    least: float
    most: float

    @classmethod
    def of(cls, rule: dict[str, Any]) -> Numbers:
        """From the schema of one number."""
        names = [rule["type"]] if isinstance(rule["type"], str) else rule["type"]
        found = {kind for name in names for kind in TYPES[name]}
        return cls(frozenset(found), rule["minimum"], rule["maximum"])

    def allow(self, values: list[Any]) -> bool:
        """Whether all of a list are surely right; what is not sure is left to the schema."""
        found = set(map(type, values))
        if not found <= self.types:
            return False
        numbers = [v for v in values if v is not None] if NoneType in found else values
        return not numbers or (min(numbers) >= self.least and max(numbers) <= self.most)


TYPES = {"integer": (int,), "number": (int, float), "null": (NoneType,)}


@dataclass(frozen=True)
class Rules:
    """The schema of one kind of line, as functions that raise `fastjsonschema.JsonSchemaException`."""

    whole: Callable[[Any], Any]
    less: Callable[[Any], Any]
    """All but the numbers in `LISTS`."""
    lists: dict[str, Numbers]


@cache
def rules() -> dict[str, Rules]:
    """Of each kind of line, by the name that tells it; what has none of them is a record, `case`.

    The schema asks for one kind after the other. Who knows the kind saves a third of the time of a long file.
    """
    import fastjsonschema

    found, schema = (
        {},
        json.loads(resources.files("deepbench").joinpath("results", "schema.json").read_text(encoding="utf-8")),
    )
    while schema:
        kind, own = (schema["if"]["required"][0], schema["then"]) if "if" in schema else ("case", schema)
        whole = fastjsonschema.compile(own)
        lists = {name: Numbers.of(owner[name].pop("items")) for owner in _holding(own, LISTS[0]) for name in LISTS}
        found[kind] = Rules(whole, fastjsonschema.compile(own), lists)
        schema = schema.get("else")
    return found


def _holding(schema: Any, name: str) -> Iterator[dict[str, Any]]:
    """Every object in a schema that has this name among its own."""
    if isinstance(schema, dict):
        if isinstance(schema.get(name), dict):
            yield schema
        for inner in schema.values():
            yield from _holding(inner, name)


def schema_error(line: dict[str, Any]) -> str | None:
    """Why this line does not fit the schema, or None."""
    import fastjsonschema

    known = rules()
    kind = next((name for name in known if isinstance(line, dict) and name in line), "case")
    try:
        known[kind].less(line)
        measurement = line["measurement"] if kind == "case" else None
        if measurement and not all(rule.allow(measurement[name]) for name, rule in known[kind].lists.items()):
            known[kind].whole(line)
    except fastjsonschema.JsonSchemaValueException as error:
        return str(error.message)[:200]
    return None


def library_error(answer: dict[str, Any]) -> str | None:
    """Why what `open` said does not fit a record, or None."""
    facts = answer.get("library")
    if facts is None:
        return None
    if not isinstance(facts, dict) or not isinstance(facts.get("name"), str):
        return "name must be a text"
    wrong = [k for k in ("version", "path") if not isinstance(facts.get(k, 0), str | None)]
    return f"{wrong[0]} must be a text or None" if wrong else None


def semantic_error(value: dict[str, Any]) -> str | None:
    """What the schema cannot say: what is wrong with a line that fits it, or None."""
    if "schema" in value or "roof" in value or "limit" in value:
        return None
    if value["status"] in MEASURED and not (value["measurement"] and value["process"]):
        return f"status {value['status']} without a measurement"
    lists = ("samples_s", "cpu_s", "involuntary_switches", "steal_s")
    if value["measurement"] and len({len(value["measurement"][name]) for name in lists}) > 1:
        return "the lists of a measurement differ in length"
    return None
