"""The JSON Schema of a type, and which values a field may have: what `record.py` states becomes a schema here."""

import typing
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any

JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


@dataclass(frozen=True)
class Within:
    """The values that a number may have: from `least` to `most`, or above `above`."""

    least: float | None = None
    most: float | None = None
    above: float | None = None

    @property
    def keywords(self) -> dict[str, Any]:
        """In the words of a schema."""
        return {"minimum": self.least, "maximum": self.most, "exclusiveMinimum": self.above}


@dataclass(frozen=True)
class Text:
    """The texts that are allowed: a pattern, or how many characters."""

    pattern: str | None = None
    shortest: int | None = None
    longest: int | None = None

    @property
    def keywords(self) -> dict[str, Any]:
        """In the words of a schema."""
        return {"pattern": self.pattern, "minLength": self.shortest, "maxLength": self.longest}


@dataclass(frozen=True)
class Items:
    """How many items a list may have."""

    most: int
    least: int | None = None

    @property
    def keywords(self) -> dict[str, Any]:
        """In the words of a schema."""
        return {"minItems": self.least, "maxItems": self.most}


@dataclass(frozen=True)
class Written:
    """What is written to files, where readers know more values than that."""

    kind: Any


@dataclass(frozen=True)
class Closed:
    """A structure that has no other fields."""

    @property
    def keywords(self) -> dict[str, Any]:
        """In the words of a schema."""
        return {"additionalProperties": False}


@dataclass(frozen=True)
class ExactlyOne:
    """A structure that has exactly one of its fields."""


def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a type: a TypedDict, a list, a dictionary, a Literal, a plain type, or a union of these."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.NotRequired, typing.Required):
        return schema_of(arguments[0])
    if origin is typing.Annotated:
        rules = kind.__metadata__
        written = next((rule.kind for rule in rules if isinstance(rule, Written)), arguments[0])
        found = _exactly_one(written) if any(isinstance(r, ExactlyOne) for r in rules) else schema_of(written)
        for rule in rules:
            if not isinstance(rule, Written | ExactlyOne):
                found |= {name: value for name, value in rule.keywords.items() if value is not None}
        return found
    if kind in (Any, object):
        return {}
    if typing.is_typeddict(kind):
        return schema_of_fields(kind)
    if origin is typing.Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    if origin in (typing.Union, UnionType):
        if all(map(typing.is_typeddict, arguments)):
            return _one_of(arguments)
        return _union([schema_of(one) for one in arguments])
    if origin is dict:
        values = schema_of(arguments[1])
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if origin in (list, Sequence):
        return {"type": "array", "items": schema_of(arguments[0])}
    return {"type": JSON_TYPES[kind]}


def schema_of_fields(kind: Any) -> dict[str, Any]:
    """The schema of a TypedDict."""
    fields = typing.get_type_hints(kind, include_extras=True)
    required = [name for name in fields if name in kind.__required_keys__]
    properties = {name: schema_of(field) for name, field in fields.items()}
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _exactly_one(kind: Any) -> dict[str, Any]:
    fields = schema_of_fields(kind)["properties"]
    return {"anyOf": [{"type": "object", "properties": {n: f}, "required": [n]} for n, f in fields.items()]}


def _one_of(kinds: Sequence[Any]) -> dict[str, Any]:
    """Structures that the value of their first `Literal` field tells apart."""
    choices = [schema_of_fields(kind) for kind in kinds]
    name = next(n for n, field in choices[0]["properties"].items() if "const" in field)
    values = [choice["properties"].pop(name)["const"] for choice in choices]
    rules = [
        {"if": {"properties": {name: {"const": value}}}, "then": choice}
        for value, choice in zip(values, choices, strict=True)
    ]
    return {"type": "object", "properties": {name: {"enum": values}}, "required": [name], "allOf": rules}


def _union(choices: list[dict[str, Any]]) -> dict[str, Any]:
    """One schema whose `type` names all choices; the rules of one type do not concern the others."""
    if enum := next((choice["enum"] for choice in choices if "enum" in choice), None):
        return {"enum": [*enum, *[None] * ({"type": "null"} in choices)]}
    names: list[str] = []
    merged: dict[str, Any] = {}
    for choice in choices:
        kind = choice.pop("type", None)
        assert isinstance(kind, str), "a union of plain types, lists and structures"
        names.append(kind)
        merged |= choice
    return {"type": names, **merged}
