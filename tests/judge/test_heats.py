"""Ratios of rivals: pairs of slices give one number per heat, and the interval comes from the heats."""

import math
from pathlib import Path

import pytest

from deepbench.judge import heats
from deepbench.judge.compare import compare_files
from deepbench.reporting.cases import rankings
from deepbench.results.file import ResultFile
from deepbench.results.summary import summarize
from tests.help import samples


def in_heats(backend, times, ids=None, slices=None):
    """Rounds of a case: per heat a list with the seconds of each slice."""
    records = []
    for number, of_heat in enumerate(times, 1):
        record = samples.measured(backend, 1.0, round_number=number)
        count = len(of_heat)
        record["measurement"] |= {
            "samples_s": list(of_heat),
            "slices": list(slices or range(count)),
            "cpu_s": list(of_heat),
            "involuntary_switches": [0] * count,
            "steal_s": [0.0] * count,
        }
        record["heat"] = {"id": (ids or "abcdefgh")[number - 1], "rivals": ["another case"]}
        records.append(record)
    return records


def test_drift_that_both_share_leaves_the_ratio():
    drift = [1.0, 3.0, 0.5, 2.0]
    a = in_heats("mkl", [[d * 1.0 for d in drift]])
    b = in_heats("onednn", [[d * 1.1 for d in drift]])

    assert [pytest.approx(math.log(1.1))] == heats.log_ratios(a, b)


def test_only_common_slices_of_common_heats_count():
    a = in_heats("mkl", [[1.0, 1.0, 9.0], [1.0, 1.0, 1.0]], ids="xy")
    b = in_heats("onednn", [[2.0, 2.0]], ids="x")

    assert [pytest.approx(math.log(2.0))] == heats.log_ratios(a, b)
    assert [] == heats.log_ratios(a, in_heats("onednn", [[2.0]], ids="z"))


def test_a_disturbed_slice_does_not_move_the_median():
    a = in_heats("mkl", [[1.0] * 5])
    b = in_heats("onednn", [[1.0, 1.0, 40.0, 1.0, 1.0]])

    assert [0.0] == heats.log_ratios(a, b)


def test_a_ratio_that_the_times_of_the_same_processes_contradict_is_withheld():
    # Most samples of both are in one slice; in the others, one rival lacked a CPU.
    a = in_heats("mkl", [[1.0] * 30 + [1.0, 1.0]], slices=[0] * 30 + [1, 2])
    b = in_heats("onednn", [[1.1] * 30 + [400.0, 400.0]], slices=[0] * 30 + [1, 2])

    assert [] == heats.log_ratios(a, b)


def test_rivals_without_heats_have_no_ratio():
    records = [samples.measured("mkl", 1.0), samples.measured("onednn", 1.0)]
    a, b = summarize(records)

    assert heats.ratio(a, b) is None


@pytest.mark.parametrize(("time_s", "is_certain"), [(1.07, False), (0.95, False), (1.2, True), (0.8, True)])
def test_one_heat_has_a_ratio_without_an_interval(time_s, is_certain):
    """Equal libraries differ by some percent from process to process, however exactly each was measured."""
    a, b = summarize([*in_heats("mkl", [[1.0] * 9]), *in_heats("onednn", [[time_s] * 9])])
    ratio = heats.ratio(a, b)

    assert pytest.approx(time_s) == ratio.value
    assert (None, None, None) == (ratio.low, ratio.high, ratio.half_width)
    assert is_certain == ratio.is_certain


def test_the_interval_comes_from_the_heats():
    a = in_heats("mkl", [[1.0] * 9] * 3)
    b = in_heats("onednn", [[1.1] * 9, [1.2] * 9, [1.3] * 9])
    first, second = summarize([*a, *b])
    ratio = heats.ratio(first, second)
    logs = [math.log(x) for x in (1.1, 1.2, 1.3)]
    error = 4.302653 * math.sqrt(sum((x - sum(logs) / 3) ** 2 for x in logs) / 2 / 3)  # Student's t with 2 degrees

    assert pytest.approx(math.exp(sum(logs) / 3)) == ratio.value
    assert pytest.approx(math.exp(sum(logs) / 3 - error), rel=1e-4) == ratio.low
    assert not ratio.is_certain


def test_the_order_of_libraries_follows_their_heats():
    """The second library looks slower by its own time, because more of its samples were disturbed."""
    a = in_heats("mkl", [[1.0, 1.0, 1.0], [1.0, 1.01, 1.0], [1.0, 1.0, 1.0]])
    b = in_heats("onednn", [[0.9, 0.9, 0.9], [0.9, 0.91, 0.9], [0.9, 0.9, 0.9]])
    for record in b:
        record["measurement"]["samples_s"] += [5.0] * 9
        record["measurement"]["slices"] += [7] * 9
        for name in ("cpu_s", "involuntary_switches", "steal_s"):
            record["measurement"][name] = [5.0 if name == "cpu_s" else 0] * 12
    (ranking,) = rankings(summarize([*a, *b]))

    assert ["onednn", "mkl"] == [s.record["backend"] for s in ranking.ranked]
    assert [] == ranking.ties


def test_two_sides_that_met_in_heats_are_compared_by_them():
    files = []
    for name, factor in (("a", 1.0), ("b", 1.06)):
        records = in_heats("mkl", [[d * factor * (1 + 0.001 * i) for i in range(4)] for d in (1.0, 5.0, 0.3)])
        files.append(ResultFile(Path(f"{name}.jsonl"), samples.header([records[0]["case"]]), records))
    (case,) = compare_files(*files).cases

    assert pytest.approx(1.06) == case.ratio
    assert ("slower", True) == (case.verdict, case.paired)
