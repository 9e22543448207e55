"""Record: one line of a result file, and the format's history.

    deepbench/1    first format. Line 1 is a header; then records, and roofs and limits as they are measured.

A line of a file is one JSON object. The header has `schema`, a record has `case`, a roof has `roof`, a limit `limit`.
The JSON Schema in `schema.json` describes all four; `docs/results.md` tells each field with its unit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import NoneType
from typing import Any, NamedTuple

import orjson

from deepbench.case import Case
from deepbench.op import find as find_op

SCHEMA = "deepbench/1"

STATUSES = (
    "ok",
    "wrong",
    "unchecked",
    "unsupported",
    "unavailable",
    "out_of_memory",
    "crashed",
    "timeout",
    "interrupted",
)

# With one of these a case has a time.
MEASURED = ("ok", "unchecked")

# A record is a dictionary, because it is read from files that others wrote and goes back to JSON as it is.
Record = dict[str, Any]


def make(case: Case, round_number: int, status: str, reason: str | None = None) -> Record:
    """The record of a case before anything was measured: who it is and how much work it would be."""
    op = find_op(case.op)
    return {
        "case": case.text,
        "round": round_number,
        "status": status,
        "reason": reason,
        "op": case.op,
        "problem": case.problem.values,
        "direction": case.direction,
        "precision": case.precision.name,
        "types": {**case.precision.types(), "result": op.result_type(case)},
        "backend": case.backend,
        "threads": case.threads,
        "settings": case.settings,
        "flop": op.flop(case),
        "other_flop": op.other_flop(case),
        "traffic_bytes": op.traffic_bytes(case),
        "sources": [],
        "check": {"before": None, "after": None},
        "measurement": None,
        "library": None,
        "notes": {},
        "process": None,
        "warnings": [],
    }


def warning(code: str, text: str) -> dict[str, str]:
    """Something a reader should know about a record that is still valid."""
    return {"code": code, "text": text}


def to_line(line: dict[str, Any]) -> str:
    """One line of JSON, with its newline; refuses NaN and infinity, which JSON does not have."""
    return json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def from_line(text: str | bytes) -> Any:
    """The JSON value of a line; `ValueError` for what is not strict JSON, and for numbers beyond all others."""
    return orjson.loads(text)


def to_bytes(value: Any) -> bytes:
    """JSON as short as it gets, to tell equal values by."""
    return orjson.dumps(value)


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

    found, schema = {}, json.loads(resources.files("deepbench").joinpath("schema.json").read_text(encoding="utf-8"))
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


def misfit(line: dict[str, Any]) -> str | None:
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


def misfit_library(answer: dict[str, Any]) -> str | None:
    """Why what `open` said does not fit a record, or None."""
    facts = answer.get("library")
    if facts is None:
        return None
    if not isinstance(facts, dict) or not isinstance(facts.get("name"), str):
        return "name must be a text"
    wrong = [k for k in ("version", "path") if not isinstance(facts.get(k, 0), str | None)]
    return f"{wrong[0]} must be a text or None" if wrong else None


def printable(text: str) -> str:
    """`text` without control characters: files and libraries are strangers, and a terminal obeys what it reads."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def cleaned(value: Any) -> Any:
    """A JSON value with every text in it printable; asked wherever a stranger's text comes in."""
    if isinstance(value, float | int):
        return value
    if isinstance(value, str):
        return value if value.isprintable() else printable(value)
    if isinstance(value, dict):
        return {cleaned(k): cleaned(v) for k, v in value.items()}
    if isinstance(value, list):
        return [cleaned(v) for v in value]
    return value
