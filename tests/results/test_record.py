"""The types of records are those of the JSON Schema, name by name."""

import json
import types
import typing
from importlib import resources

import pytest

from deepbench.results import old_files, record
from deepbench.results.summary import summarize
from tests.help import samples

SCHEMA = json.loads(resources.files("deepbench").joinpath("results", "schema.json").read_text(encoding="utf-8"))
READERS = {"inconsistent"}  # only readers assign this status
NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", dict: "object"}


def kinds():
    """The schema of each kind of line, by the name of the field that identifies it."""
    schema = SCHEMA
    while "if" in schema:
        yield schema["if"]["required"][0], schema["then"]
        schema = schema["else"]
    yield "case", schema


LINES = dict(kinds())
LIMIT = LINES["limit"]["properties"]["limit"]


def names_of(schema):
    """Names of the JSON types that a schema allows; None for any."""
    if "enum" in schema:
        return {NAMES[type(value)] for value in schema["enum"]}
    if "const" in schema:
        return {NAMES[type(schema["const"])]}
    if "anyOf" in schema:
        return set().union(*map(names_of, schema["anyOf"]))
    kind = schema.get("type")
    return None if kind is None else {kind} if isinstance(kind, str) else set(kind)


def differences(kind, schema, place):
    """Where a type and a schema disagree, each as a sentence."""
    if typing.get_origin(kind) is typing.NotRequired:
        kind = typing.get_args(kind)[0]
    if kind is object:
        if schema != {}:
            yield f"{place}: object, but the schema restricts it"
        return
    choices = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    found = set()
    for choice in choices:
        origin, arguments = typing.get_origin(choice), typing.get_args(choice)
        if typing.is_typeddict(choice):
            found.add("object")
            yield from differences_of_fields(choice, schema, place)
        elif origin is typing.Literal:
            found |= {NAMES[type(value)] for value in arguments}
            allowed = set(schema.get("enum", [schema.get("const")])) - {None}
            if allowed != set(arguments) - READERS:
                yield f"{place}: {arguments}, but the schema has {allowed}"
        elif origin is dict:
            found.add("object")
            if arguments[1] not in (typing.Any, object):
                yield from differences(arguments[1], schema.get("additionalProperties", {}), f"{place}.*")
        elif origin is not None:  # list or Sequence
            found.add("array")
            yield from differences(arguments[0], schema["items"], f"{place}[]")
        else:
            found.add(NAMES[choice])
    if found != names_of(schema):
        yield f"{place}: {sorted(found)}, but the schema has {names_of(schema)}"


def differences_of_fields(kind, schema, place):
    properties, required = dict(schema.get("properties", {})), set(schema.get("required", ()))
    for choice in schema.get("anyOf", ()):
        properties |= choice["properties"]
    fields = typing.get_type_hints(kind, include_extras=True)
    if fields.keys() != properties.keys():
        yield f"{place}: only one of the two has {sorted(fields.keys() ^ properties.keys())}"
    added = old_files.ADDED if kind is record.Record else set()
    if kind.__required_keys__ - added != required:
        yield f"{place}: {sorted(kind.__required_keys__ - added)} are required, the schema has {sorted(required)}"
    for name in fields.keys() & properties.keys():
        yield from differences(fields[name], properties[name], f"{place}.{name}")


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (record.Header, LINES["schema"]),
        (record.Record, LINES["case"]),
        (record.NetworkSteps, LINES["step"]["properties"]["step"]),
        (record.Training, LINES["training"]["properties"]["training"]),
        (record.Serving, LINES["serving"]["properties"]["serving"]),
    ],
)
def test_types_match_the_schema(kind, schema):
    assert [] == list(differences_of_fields(kind, schema, kind.__name__))


def test_each_kind_of_limit_has_the_fields_that_the_schema_requires_of_it():
    kinds = {typing.get_args(kind.__annotations__["what"])[0]: kind for kind in typing.get_args(record.Limit)}
    rules = {rule["if"]["properties"]["what"]["const"]: rule["then"]["required"] for rule in LIMIT["allOf"]}

    assert set(LIMIT["properties"]["what"]["enum"]) == kinds.keys() == rules.keys()
    assert LIMIT["properties"].keys() == set().union(*(kind.__annotations__ for kind in kinds.values()))
    for what, kind in kinds.items():
        # Readers add the device of compute limits: files of earlier versions lack it, and their roofs lack the time.
        assert {*LIMIT["required"], *rules[what]} - {"seconds"} == kind.__required_keys__ - {"device", "seconds"}
        for name, field in typing.get_type_hints(kind, include_extras=True).items():
            if name != "what":
                assert [] == list(differences(field, LIMIT["properties"][name], f"{what}.{name}"))


def test_a_wrong_type_is_noticed():
    class Wrong(record.Header):  # type: ignore
        command: str
        extra: int

    found = list(differences_of_fields(Wrong, LINES["schema"], "header"))

    assert 3 == len(found), found


@pytest.mark.parametrize(
    ("threads_busy", "other_cpus", "cpus", "expected"),
    [
        (0.4, 1.5, [0, 1], True),  # as oneDNN on two busy cores: every sample lost CPU time
        (2.0, 1.5, [0, 1], False),  # the samples that are usual had both cores
        (0.4, 0.1, [0, 1], False),  # no other program: the library uses less than its threads
        (0.4, 1.5, [0, 1, 2, 3], False),  # two other cores were free
        (0.4, None, [0, 1], False),
    ],
)
def test_a_time_without_enough_cpus_is_disturbed(threads_busy, other_cpus, cpus, expected):
    record = samples.measured(text="gemm m=2 n=3 k=4 forward f32 {backend} threads=2")
    measurement = record["measurement"]
    calls = measurement["calls_per_sample"]
    measurement |= {"other_cpus": other_cpus, "cpu_s": [s * calls * threads_busy for s in measurement["samples_s"]]}
    record["process"]["cpus"] = cpus

    (found,) = summarize([record])

    assert expected == found.is_disturbed
