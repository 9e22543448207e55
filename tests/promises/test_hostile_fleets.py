"""Any fleet file that its reader accepts can be judged, shown, drained and exported without a traceback."""

import copy
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from rich.console import Console

from deepbench.core.errors import BadInput
from deepbench.core.json_lines import to_line
from deepbench.fleets import tables
from deepbench.fleets.results import FleetResults
from tests.fleets.made import CASE, SECOND, fleet, with_links
from tests.promises.test_hostile import changed, places, strange


def good():
    """The lines of a fleet file with a slow host, links, facts and readings."""
    hosts = {"a": 1.0, "b": 1.0, "c": 1.5}
    facts = {
        "c": {
            "machine": {"cpu_ids": {"microcode": "0x1"}, "caches": [{"level": 1, "bytes": 2**15}], "memory_bytes": 1},
            "environment": {"OMP_SCHEDULE": "static"},
            "libraries": {"mkl": {"library": {"name": "MKL", "version": "1", "path": None, "card": {"driver": "5"}}}},
        }
    }
    file = with_links(fleet(hosts, 3, (CASE, SECOND), facts=facts, through="slurm"), {("a", "c"): 2.0}, 2)
    for run in file.runs:
        sensors = {"clock_mhz": 2000, "celsius": 50, "limited_by": [], "watts": 7.5}
        device = {"clock": "events", "fallback": None, "host_call_s": [1e-3], "before": sensors, "after": sensors}
        run.lines[1]["measurement"] |= {"other_cpus": 0.1, "device": device}
        run.lines[1]["notes"]["implementation"] = "jit"
    return [
        file.header,
        *(copy.deepcopy(vars(run)) for run in file.runs),
        *({"link": list(pair), "record": record} for pair, record in file.links),
    ]


GOOD = good()
PLACES = [(i, path) for i in (0, 1, 3, 9, 10) for path in places(GOOD[i]) if path]

# Names that terminals, shells, Slurm and Prometheus read in their own ways; numbers at the ends of what a file may say.
NASTY = st.sampled_from(
    ["\x1b[2J", "a\nb", 'a"b\\', "node[1-99]", "$(reboot)", "x" * 5000, "ALL", "-f", 1e-12, 1e9, 2**62]
)

several_changes = st.lists(st.tuples(st.sampled_from(PLACES), strange | NASTY), min_size=1, max_size=3)


@settings(max_examples=200)
@given(several_changes)
def test_a_fleet_file_that_can_be_read_can_be_used(tmp_path_factory, changes):
    check(tmp_path_factory.mktemp("hostile") / "fleet.jsonl", changes)


@pytest.mark.long
@settings(max_examples=5_000)
@given(several_changes)
def test_five_thousand_fleet_files(tmp_path_factory, changes):
    check(tmp_path_factory.getbasetemp() / "hostile-fleet.jsonl", changes)


def check(path, changes):
    """Use a file with these changes in every way."""
    lines = copy.deepcopy(GOOD)
    for (number, place), new in changes:
        try:
            lines[number] = changed(lines[number], place, new)
        except (KeyError, IndexError, TypeError):
            return  # an earlier change took the place away
    path.write_text("".join(map(to_line, lines)), encoding="utf-8", errors="surrogatepass")
    try:
        results = FleetResults.read(path)
    except BadInput:
        return

    text = io.StringIO()
    results.report().print(Console(file=text, width=80))
    assert all(line.isprintable() for line in text.getvalue().split("\n"))
    for form in ("json", "csv", "markdown"):
        assert results.report().text(form)
    json.dumps(tables.to_json(results.file, results.judgement), allow_nan=False)
    assert results.judgement.exit_code in (0, 1, 2)
    for manager in ("slurm", "kubernetes"):
        assert all(line.isprintable() for line in results.drain_lines(manager))
    results.write_prometheus(path.with_suffix(".prom"))
    list(text_string_to_metric_families(path.with_suffix(".prom").read_text()))
