"""The types of records are the format: the schema is made of them, and what we write matches it."""

import subprocess
import sys
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from deepbench.core.case import parse_case
from deepbench.core.json_lines import from_line
from deepbench.reporting.notes import notes_of
from deepbench.results.consistency import Consistency
from deepbench.results.fields import Closed, ExactlyOne, Items, Text, Within, Written, schema_of
from deepbench.results.record import LINES, make_record
from deepbench.results.schema import schema_error
from deepbench.results.summary import summarize
from tests.help import samples

INTEGER = {"type": "integer"}


class Inner(TypedDict):
    a: int


class One(TypedDict):
    what: Literal["one"]
    b: NotRequired[str]


class Two(TypedDict):
    what: Literal["two"]
    c: float


class Either(TypedDict, total=False):
    x: int
    y: str


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (int, {"type": "integer"}),
        (Any, {}),
        (str | None, {"type": ["string", "null"]}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Literal["a"], {"const": "a"}),
        (Literal["a", "b"] | None, {"enum": ["a", "b", None]}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Annotated[int, Within(1, 9)], {"type": "integer", "minimum": 1, "maximum": 9}),
        (Annotated[float, Within(most=2, above=0)], {"type": "number", "maximum": 2, "exclusiveMinimum": 0}),
        (Annotated[str, Text(longest=3)], {"type": "string", "maxLength": 3}),
        (
            Annotated[list[int], Items(5, 1)],
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 5},
        ),
        (Annotated[Literal["a", "b"], Written(Literal["a"])], {"const": "a"}),
        (
            Annotated[Inner, Closed()],
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "required": ["a"],
                "additionalProperties": False,
            },
        ),
        (
            Annotated[Either, ExactlyOne()],
            {
                "anyOf": [
                    {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
                    {"type": "object", "properties": {"y": {"type": "string"}}, "required": ["y"]},
                ]
            },
        ),
        (
            One | Two,
            {
                "type": "object",
                "properties": {"what": {"enum": ["one", "two"]}},
                "required": ["what"],
                "allOf": [
                    {
                        "if": {"properties": {"what": {"const": "one"}}},
                        "then": {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["what"]},
                    },
                    {
                        "if": {"properties": {"what": {"const": "two"}}},
                        "then": {"type": "object", "properties": {"c": {"type": "number"}}, "required": ["what", "c"]},
                    },
                ],
            },
        ),
    ],
)
def test_a_type_has_a_schema(kind, schema):
    assert schema == schema_of(kind)


@pytest.mark.parametrize(
    "text", ["gemm m=2 n=3 k=4 forward f32 mkl threads=1", "all_reduce n=8 ranks=2 forward f32 mpich threads=1"]
)
def test_what_a_run_writes_matches_the_schema(text):
    assert schema_error(make_record(parse_case(text), 1, "unavailable", "not here")) is None
    assert schema_error(samples.measured()) is None
    for error in (None, 0.0, 0.61):
        check = samples.check() | {"quantization_error": error}
        assert schema_error(samples.measured() | {"check": {"before": check, "after": check}}) is None
    assert schema_error(samples.header()) is None
    assert schema_error({"limit": samples.peak()}) is None


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"round": 0}, "round"),
        ({"threads": "2"}, "threads"),
        ({"status": "inconsistent"}, "status"),  # only readers assign it
        ({"flop": -1}, "flop"),
        ({"notes": {"pack_s": "long"}}, "pack_s"),
        ({"heat": {"id": "", "rivals": []}}, "id"),
        ({"group": []}, "group"),
        *(
            ({"check": {"before": samples.check() | {"quantization_error": x}, "after": None}}, "quantization_error")
            for x in (-0.1, 1e300, "11 %", True, [0.1])
        ),
    ],
)
def test_a_value_that_no_run_writes_is_refused_with_its_place(change, place):
    assert place in schema_error(samples.measured() | change)


@pytest.mark.parametrize("name", sorted(set(samples.measured()) - {"case"}))
def test_a_record_lacks_nothing(name):
    record = samples.measured()
    del record[name]

    assert name in schema_error(record)


@pytest.mark.process
def test_the_schema_is_printed_for_other_languages():
    command = [sys.executable, "-m", "deepbench.results.schema"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    schema = from_line(done.stdout)

    assert "http://json-schema.org/draft-07/schema#" == schema["$schema"]
    assert all(f'"{name}"' in done.stdout for name in LINES)


def process(seconds, busy=1.0, queued=0.0, other_cpus=1.5, number=1):
    """A process whose one thread ran and waited for a CPU for these shares of the time, on two busy CPUs."""
    record = samples.measured(seconds=seconds, round_number=number)
    measurement = record["measurement"]
    calls = measurement["calls_per_sample"]
    for name, share in (("cpu_s", busy), ("queued_s", queued)):
        measurement[name] = [None if share is None else s * calls * share for s in measurement["samples_s"]]
    measurement["other_cpus"], record["process"]["cpus"] = other_cpus, [0, 1]
    return record


def test_a_process_that_sleeps_is_no_work_of_other_programs():
    """20 ms of sleep in each call of one process in four: the interval has it, and a note says so."""
    usual = [process(328e-6, number=n) for n in (1, 2, 3)]
    (found,) = summarize([*usual, process(24e-3, busy=0.02, queued=0.08, number=4)])

    assert not found.is_disturbed
    assert 328e-6 == pytest.approx(found.time_s, rel=1e-2)
    assert (1, 24e-3) == (found.estimate.slow_processes, pytest.approx(found.estimate.high_s, rel=1e-2))
    assert found.estimate.half_width > 10
    (note,) = [n for n in notes_of(found) if n.flag == "V"]
    assert "varies between processes: 1 of 4 took up to 73.2× as long" == note.text


@pytest.mark.parametrize(
    "slow",
    [
        process(24e-3, busy=0.014, queued=0.98, number=4),  # others had the CPU
        process(600e-6, number=4),  # less than twice as long
        process(24e-3, busy=0.02, queued=None, number=4),  # nothing is known
    ],
)
def test_a_slow_process_that_others_explain_does_not_widen_the_interval(slow):
    (found,) = summarize([*(process(328e-6, number=n) for n in (1, 2, 3)), slow])

    assert 0 == found.slow_processes
    assert found.estimate.high_s < 1e-3


def test_lists_of_another_length_are_inconsistent():
    record = process(1e-3)
    record["measurement"]["queued_s"] = [0.0]
    (found,) = Consistency().marked([record], [])

    assert ("inconsistent", "its lists of samples differ in length") == (found["status"], found["reason"])


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
