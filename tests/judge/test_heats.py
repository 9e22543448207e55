"""Ratios of rivals: pairs of slices give one number per heat, and the interval comes from the heats."""

import math
from pathlib import Path

import pytest

from deepbench.judge import compare, gate, heats
from deepbench.judge.compare import compare_files
from deepbench.measuring import sides
from deepbench.reporting import compare as report
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


def in_bad_heats(good, bad):
    """Two sides in heats that count, and in heats whose slices the medians of all samples contradict."""
    slices, ids = [0] * 30 + [1, 2], "abcdefgh"[: len(good) + bad]
    found = []
    for name, values in (("mkl", [1.0] * len(good)), ("onednn", good)):
        times = [[v] * 32 for v in values]
        times += [[1.0] * 30 + [1.0 if name == "mkl" else 400.0] * 2] * bad
        found.append(in_heats(name, times, ids, slices))
    return found


def compared(a, b):
    files = []
    for name, records in zip("ab", (a, b), strict=True):
        records = [{**r, "case": a[0]["case"], "backend": "mkl"} for r in records]
        files.append(ResultFile(Path(f"{name}.jsonl"), samples.header([records[0]["case"]]), records))
    return compare_files(*files)


def test_two_heats_that_agree_by_chance_decide_nothing():
    """As in a run of equal code: of four heats two are left, and their ratios are 1.07524 and 1.07515."""
    a, b = in_bad_heats([1.07524, 1.07515], bad=2)
    comparison = compared(a, b)
    (case,) = comparison.cases

    assert (4, 2) == (case.met.count, len(case.met.log_ratios))
    assert ("cannot tell", None) == (case.verdict, case.interval)
    assert case.withheld.startswith("only 2 of 4 heats count, and a verdict needs 4: in the others, one side lacked")
    outcome = gate.judge(comparison)
    assert (2, [case.withheld]) == (outcome.exit_code, [c.reason for c in outcome.cases])
    assert not sides.decided(a, b, 0.02)
    (row,) = report.cases(comparison).rows
    assert (None, None, 4, 2) == (row["second_over_first"], row["±"], row["heats"], row["heats that count"])
    assert case.withheld == row["notes"]
    assert f"no verdict for 1 case: {case.withheld}." in report.sentences(comparison)
    assert {None} == {mean.ratio for mean in comparison.means()}
    assert (1.0752, None) == (pytest.approx(case.ratio, rel=1e-4), compare.mean_ratio(comparison.cases)[1])


def test_no_heat_that_counts_leaves_the_times_of_processes_undecided_too():
    (case,) = compared(*in_bad_heats([], bad=4)).cases

    assert (None, "cannot tell") == (case.difference, case.verdict)
    assert case.withheld.startswith("only 0 of 4 heats count")


@pytest.mark.parametrize(("good", "verdict"), [(4, "slower"), (3, "cannot tell")])
def test_four_heats_that_count_decide(good, verdict):
    ratios = [1.07, 1.0705, 1.0702, 1.0701][:good]
    a, b = in_bad_heats(ratios, bad=3)

    assert verdict == compared(a, b).cases[0].verdict
    assert (verdict == "slower") == sides.decided(a, b, 0.02)


def test_with_two_heats_the_number_of_rounds_is_said():
    (case,) = compared(*in_bad_heats([1.07524, 1.07515], bad=0)).cases

    assert ("cannot tell", "2 heats, and a verdict needs 4") == (case.verdict, case.withheld)
    assert (2, 4) == (case.more_rounds, case.rounds_to_decide)


@pytest.mark.parametrize(("good", "bad", "is_certain"), [(3, 0, True), (3, 2, False), (2, 3, False), (4, 3, True)])
def test_the_order_of_libraries_does_not_rest_on_heats_that_are_left_over(good, bad, is_certain):
    first, second = summarize([r for side in in_bad_heats([1.07, 1.0701, 1.0702, 1.07][:good], bad) for r in side])
    ratio = heats.ratio(first, second)

    assert is_certain == ratio.is_certain
    assert is_certain == (ratio.low is not None)


@pytest.mark.parametrize(
    ("disturbed_rounds", "verdict", "code"), [(6, "cannot tell", 2), (4, "cannot tell", 2), (3, "slower", 1)]
)
def test_a_side_whose_time_is_an_upper_bound_has_no_verdict(disturbed_rounds, verdict, code):
    a, b = in_bad_heats([1.2, 1.201, 1.199, 1.2, 1.202, 1.198], bad=0)
    for record in b[:disturbed_rounds]:
        record["measurement"]["steal_s"] = [0.01] * 32
    comparison = compared(a, b)
    (case,) = comparison.cases

    assert verdict == case.verdict
    outcome = gate.judge(comparison)
    assert code == outcome.exit_code
    if code == 2:
        assert ["other programs disturbed most processes of the second side"] == [c.reason for c in outcome.cases]
    assert (code == 1) == sides.decided(a, b, 0.02)


def test_a_side_of_which_a_process_sleeps_is_not_the_same():
    a, b = in_bad_heats([1.0] * 6, bad=0)
    for record in (*a, *b):
        count = len(record["measurement"]["samples_s"])
        record["measurement"] |= {"queued_s": [0.0] * count, "cpu_s": [2.0] * count}
    assert "same" == compared(a, b).cases[0].verdict
    b[3]["measurement"] |= {"samples_s": [40.0] * 32}
    comparison = compared(a, b)
    (case,) = comparison.cases

    assert "cannot tell" == case.verdict
    why = "1 of 6 processes of the second side took more than twice as long, and no other program had their CPUs"
    assert why == case.slow_processes
    outcome = gate.judge(comparison)
    assert (2, True) == (outcome.exit_code, why in outcome.cases[0].reason)


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
        records = in_heats("mkl", [[d * factor * (1 + 0.001 * i) for i in range(4)] for d in (1.0, 5.0, 0.3, 2.0)])
        files.append(ResultFile(Path(f"{name}.jsonl"), samples.header([records[0]["case"]]), records))
    (case,) = compare_files(*files).cases

    assert pytest.approx(1.06) == case.ratio
    assert ("slower", True) == (case.verdict, case.paired)
