"""Other times of a process: the first call, creation."""

import pytest

import deepbench
from deepbench.core.errors import BadInput
from deepbench.core.json_lines import to_line
from deepbench.judge import metrics
from deepbench.results.file import read_results
from tests.help.samples import header, measured

N = 8


def side(path, first_call_s, creation_s=None, seconds=1e-3, start="2026-11-21T00:00:00+00:00"):
    records = []
    for n in range(N):
        record = measured(seconds=seconds * (1 + 0.002 * n), round_number=n + 1)
        record["measurement"]["first_call_s"] = first_call_s * (1 + 0.01 * (n % 3))
        if creation_s is not None:
            record["notes"]["creation_s"] = creation_s * (1 + 0.01 * (n % 4))
        records.append(record)
    path.write_bytes(
        b"".join(to_line(x).encode() for x in [header([records[0]["case"]]) | {"started": start}, *records])
    )
    return path


@pytest.fixture
def files(tmp_path):
    """Equal usual calls; the first call of b takes twice as long, and its creation half as long."""
    a = side(tmp_path / "a.jsonl", 0.01, 0.002)
    return a, side(tmp_path / "b.jsonl", 0.02, 0.001, start="2026-11-22T00:00:00+00:00")


def test_each_process_has_one_sample(files):
    found = metrics.with_metric(read_results(files[0]), "first_call")
    assert N == len(found.records)
    assert {1} == {len(r["measurement"]["samples_s"]) for r in found.records}
    assert 0.01 == found.records[0]["measurement"]["samples_s"][0]
    assert metrics.with_metric(found, "steady") is found


@pytest.mark.parametrize(("metric", "ratio"), [("steady", 1.0), ("first_call", 2.0), ("creation", 0.5)])
def test_compare_and_gate_see_only_the_metric_that_was_asked_for(files, metric, ratio):
    (case,) = deepbench.compare(*files, metric=metric).cases
    assert ratio == pytest.approx(case.ratio, rel=0.02)
    verdict = deepbench.gate(*files, metric=metric).outcome.verdict
    assert ("regression" if ratio > 1.5 else "passed") == verdict


def test_margins_of_other_metrics_are_larger(tmp_path):
    a, b = side(tmp_path / "a.jsonl", 0.01), side(tmp_path / "b.jsonl", 0.0108)
    assert "same" == deepbench.compare(a, b, metric="first_call").cases[0].verdict
    assert "slower" == deepbench.compare(a, b, metric="first_call", margin=0.02).cases[0].verdict


def test_what_no_record_has_is_refused(tmp_path):
    path = side(tmp_path / "a.jsonl", 0.01)
    with pytest.raises(BadInput, match="no time of pack"):
        deepbench.compare(path, path, metric="pack")
    with pytest.raises(BadInput, match="did you mean creation"):
        deepbench.compare(path, path, metric="creatoin")
    with pytest.raises(BadInput, match="leave out --metric"):
        deepbench.gate(path, path, metric="first_call", rerun=True)


@pytest.mark.parametrize("value", ["fast", -1.0, 0, None, [1]])
def test_a_note_that_is_no_time_is_left_out(tmp_path, value):
    """Notes are whatever a file says."""
    path = side(tmp_path / "a.jsonl", 0.01)
    file = read_results(path)
    for record in file.records:
        record["notes"]["pack_s"] = value
    with pytest.raises(BadInput, match="no time of pack"):
        metrics.with_metric(file, "pack")


def test_the_command_takes_a_metric(deepbench, files):
    done = deepbench("gate", *map(str, files), "--metric", "first_call")
    assert 1 == done.returncode, done.stdout + done.stderr
    assert 0 == deepbench("gate", *map(str, files), "--metric", "creation").returncode
    assert 64 == deepbench("run", "--metric", "first_call", "quick").returncode
