"""The file for Prometheus' node exporter, read back by the two parsers of Prometheus' own client."""

import math
import os
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import parser as prometheus
from prometheus_client.openmetrics import parser as open_metrics

from deepbench.core.errors import BadInput
from deepbench.core.exposition import exposition
from deepbench.fleets import prometheus as made
from deepbench.fleets.judge import judge
from deepbench.fleets.results import FleetResults
from tests.fleets.made import fleet

PARSERS = [prometheus.text_string_to_metric_families, open_metrics.text_string_to_metric_families]
EQUAL = {"n1": 1.0, "n2": 1.0, "n3": 1.0}


def read(file, parse):
    """The value of each series by its name and host, and the families by name."""
    families = {family.name: family for family in parse(exposition(made.gauges_of(file, judge(file))))}
    samples = [s for family in families.values() for s in family.samples]
    assert all({"host"} == set(s.labels) and s.timestamp is None for s in samples)
    found = {(s.name.removeprefix("deepbench_fleet_"), s.labels["host"]): s.value for s in samples}
    assert len(samples) == len(found)
    return found, families


@pytest.mark.parametrize("parse", PARSERS)
def test_each_host_has_its_verdict(parse):
    file = fleet({**EQUAL, "n3": 1.5}, runs=7, expected=[*EQUAL, "n4"])
    found, families = read(file, parse)

    assert 1.5 == pytest.approx(found["time_ratio", "n3"], rel=1e-3)
    assert found["time_ratio_low", "n3"] < found["time_ratio", "n3"] < found["time_ratio_high", "n3"]
    assert [0, 0, 1, 0] == [found["slow", f"n{i}"] for i in range(1, 5)]
    assert [0, 0, 0, 1] == [found["undecided", f"n{i}"] for i in range(1, 5)]  # n4 returned nothing
    assert [7, 7, 7, 0] == [found["runs", f"n{i}"] for i in range(1, 5)]
    assert datetime(2026, 11, 27, 7, tzinfo=UTC).timestamp() == found["last_run_timestamp_seconds", "n1"]
    assert set(made.GAUGES) == set(families)
    assert all(
        family.type == "gauge" and made.GAUGES[family.name] == family.documentation for family in families.values()
    )


@pytest.mark.parametrize("parse", PARSERS)
def test_what_is_unknown_has_no_series(parse):
    found, _ = read(fleet(EQUAL, runs=1, expected=[*EQUAL, "n4"]), parse)

    assert ("time_ratio", "n1") in found
    assert ("time_ratio_low", "n1") not in found  # one run has no interval
    assert not {("time_ratio", "n4"), ("last_run_timestamp_seconds", "n4")} & found.keys()
    assert 0 == found["runs", "n4"]


@pytest.mark.parametrize("parse", PARSERS)
def test_a_host_that_looks_slow_is_undecided(parse):
    found, _ = read(fleet({**EQUAL, "n3": 2.5}, runs=3), parse)

    assert [0, 0, 1] == [found["undecided", host] for host in EQUAL]
    assert [0, 0, 0] == [found["slow", host] for host in EQUAL]


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("host", ['a"b', "a\\b", "a\\", "a\nb", '\\n"', "a}b", "{}", 'x"} 7\n# EOF\n', "", "ü", " "])
def test_a_strange_name_is_escaped(parse, host):
    found, _ = read(fleet({**EQUAL, host: 1.5}, runs=7), parse)

    assert 1 == found["slow", host]


@pytest.mark.parametrize("parse", PARSERS)
@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_every_name_is_read_back(parse, host):
    found, _ = read(fleet({**EQUAL, host: 1.5}, runs=7), parse)

    assert 1 == found["slow", host]


@pytest.mark.parametrize(
    "started", ["", "now", "2026-11-27T07:00:00", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "7" * 10**4]
)
def test_a_host_without_a_moment_has_no_last_run(started):
    file = fleet(EQUAL, runs=7)
    for run in file.runs:
        run.lines[0]["started"] = started

    for parse in PARSERS:
        found, _ = read(file, parse)
        assert all(math.isfinite(value) for value in found.values())
        assert ("runs", "n1") in found


def test_the_file_is_replaced_as_a_whole_and_keeps_its_mode(tmp_path):
    path = tmp_path / "deepbench.prom"
    path.write_text("old")
    path.chmod(0o604)
    FleetResults(fleet(EQUAL, runs=7)).write_prometheus(path)

    assert path.read_text().startswith("# HELP deepbench_fleet_time_ratio ")
    assert path.read_text().endswith("\n# EOF\n")
    assert 0o604 == path.stat().st_mode & 0o777
    assert ["deepbench.prom"] == os.listdir(tmp_path)


def test_a_new_file_can_be_read_by_the_exporter(tmp_path):
    """It is another user, so the file must not be as private as a temporary one."""
    umask = os.umask(0o022)
    try:
        FleetResults(fleet(EQUAL, runs=7)).write_prometheus(tmp_path / "deepbench.prom")
    finally:
        os.umask(umask)

    assert 0o644 == (tmp_path / "deepbench.prom").stat().st_mode & 0o777


def test_a_result_file_is_not_replaced_and_a_missing_folder_is_named(tmp_path):
    (tmp_path / "fleet.prom").write_text('{"schema": "deepbench-fleet/1"}\n')
    for path, words in ((tmp_path / "fleet.prom", "is a result file"), (tmp_path / "none" / "x.prom", "cannot write")):
        with pytest.raises(BadInput, match=words):
            FleetResults(fleet(EQUAL, runs=7)).write_prometheus(path)

    assert '{"schema": "deepbench-fleet/1"}\n' == (tmp_path / "fleet.prom").read_text()


def test_names_of_metrics_are_valid_and_meanings_need_no_escape():
    for name, meaning in made.GAUGES.items():
        assert name.isascii()
        assert name.replace("_", "a").isalpha()
        assert not {"\\", '"', "\n"} & set(meaning)
