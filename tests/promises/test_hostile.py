"""Any file that matches the schema can be shown, exported and resumed without a traceback."""

import copy
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.judge import limits
from deepbench.judge.conformance import judge
from deepbench.judge.published import match
from deepbench.plan.cases import Planned
from deepbench.plan.modes import Rounds, Rules
from deepbench.plan.rounds import queue
from deepbench.reporting import cases, conformance, export
from deepbench.reporting.page import content
from deepbench.reporting.sections import sections
from deepbench.results import summary
from deepbench.results.file import read_results
from tests.help import samples

strange = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.lists(st.floats(0, 1e9), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
    st.sampled_from(["ok", "wrong", "unchecked", "gemm", "f32", 1e308, 5e-324, 10**400, [], {}]),
)


def places(value, path=()):
    """Every path into a JSON value."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def changed(value, path, new):
    """A copy in which the value at `path` is `new`."""
    if not path:
        return new
    copied = copy.deepcopy(value)
    inner = copied
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = new
    return copied


GOOD = [
    samples.header([parse_case(samples.TEXT.format(backend=b)).text for b in ("mkl", "onednn")]),
    {"limit": samples.peak()},
    {"limit": samples.peak()},
    samples.measured(),
    samples.measured(round_number=2),
    samples.measured("onednn", 2e-3),
    samples.failed("crashed", "killed", "openblas"),
]
GOOD[0]["plan"]["rounds"] = {"least": 3, "most": 5, "target": 0.03, "most_s": 3.0}
PLACES = [(i, path) for i, line in enumerate(GOOD) for path in places(line) if path]


several_changes = st.lists(st.tuples(st.sampled_from(PLACES), strange), min_size=1, max_size=3)


@settings(max_examples=300)
@given(several_changes)
def test_a_file_that_matches_the_schema_can_be_used(tmp_path_factory, changes):
    check(tmp_path_factory.mktemp("hostile") / "r.jsonl", changes)


@pytest.mark.long
@settings(max_examples=5_000)
@given(several_changes)
def test_five_thousand_files(tmp_path_factory, changes):
    check(tmp_path_factory.getbasetemp() / "hostile" / "r.jsonl", changes)


def check(path, changes):
    """Use a file with these changes as every reader does."""
    lines = copy.deepcopy(GOOD)
    for (number, place), new in changes:
        try:
            lines[number] = changed(lines[number], place, new)
        except (KeyError, IndexError, TypeError):
            return  # an earlier change took the place away
    samples.write(path, lines[1:], lines[0])
    try:
        found = read_results(path)
    except BadInput:
        return

    summaries = summary.summarize(found.records, found.order)
    for table in (sections, cases.library_table):
        table(summaries, limits.of_file(found, summaries)).print(Console(file=io.StringIO(), width=200))
    export.to_csv(found, summaries)
    json.loads(export.to_json(found, summaries))
    export.to_markdown(found, summaries)
    json.dumps(content.of_file(found, "mine"), allow_nan=False)
    match(summaries, "NVIDIA Tesla V100")
    report = conformance.report(judge(found, {"f32": 1e12}))
    report.print(Console(file=io.StringIO(), width=80))
    json.loads(report.text("json"))
    try:
        planned = [Planned(parse_case(p["case"]), p["sources"]) for p in found.header["plan"]["cases"]]
        Rules(**found.header["plan"]["rules"])
        queue(planned, found.records, Rounds(**found.header["plan"]["rounds"]), 1)
    except BadInput:
        pass
