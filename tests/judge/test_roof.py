"""A rate above the roof is an error, after a second look at the roof."""

from deepbench.judge import roof
from tests import samples

FLOP = 2 * 2 * 3 * 4


def probe_at(rate):
    def measure(case, number):
        made = samples.measured(case.backend)
        made["measurement"]["samples_s"] = [made["flop"] / rate]
        return made

    return measure


def test_a_rate_below_the_roof_stays():
    kept = []
    roofs = roof.Roofs([samples.roof(1e9)], ["mkl"])
    one = samples.measured(seconds=FLOP / 0.9e9)

    assert one is roofs.judge(one, probe_at(1e9), kept.append)
    assert [] == kept


def test_a_rate_above_the_roof_is_wrong_after_further_probes():
    kept = []
    roofs = roof.Roofs([samples.roof(1e9)], ["mkl"])

    judged = roofs.judge(samples.measured(seconds=FLOP / 3e9), probe_at(1e9), kept.append)

    assert "wrong" == judged["status"]
    assert "above the roof" in judged["reason"]
    assert roof.MOST_PROBES == len(kept)


def test_probes_of_a_slow_minute_do_not_judge_what_comes_later():
    kept = []
    slow = [samples.roof(1e9)] * 10  # all long ago, when something else ran
    judged = roof.Roofs(slow, ["mkl"]).judge(samples.measured(seconds=FLOP / 3e9), probe_at(2.9e9), kept.append)

    assert "ok" == judged["status"]
    assert 1 == len(kept)


def test_a_roof_that_was_measured_too_low_is_raised_and_kept():
    kept = []
    roofs = roof.Roofs([samples.roof(1e9)], ["mkl"])

    judged = roofs.judge(samples.measured(seconds=FLOP / 3e9), probe_at(2.9e9), kept.append)

    assert "ok" == judged["status"]
    assert 2.9e9 == kept[0]["roof"]["flop_per_s"] == roofs.highest("f32", "cpu", 1)


def test_no_roof_is_below_that_of_f32():
    roofs = roof.Roofs([samples.roof(5e9), samples.roof(1e9, "f16")], ["mkl"])

    assert 5e9 == roofs.highest("f16", "cpu", 1)
    assert ["i8"] == roofs.missing("i8", "cpu", 1)
    assert ["f32", "i8"] == roofs.missing("i8", "cpu", 2)


def test_probes_do_not_go_on_for_ever():
    kept = []
    roofs = roof.Roofs([samples.roof(1e9)], ["mkl"])
    for _ in range(20):
        roofs.judge(samples.measured(seconds=FLOP / 3e9), probe_at(1e9), kept.append)

    assert roof.MOST_PROBES == len(kept)


def test_without_a_roof_nothing_is_judged():
    one = samples.measured()

    assert one is roof.Roofs([], ["mkl"]).judge(one, probe_at(1.0), [].append)


def test_only_libraries_that_compute_are_probed():
    libraries = ["mkl", "null", "openblas"]

    assert {"mkl", "openblas"} == {c.backend for c in roof.probe_cases("f32", "cpu", 2, libraries)}
    assert {"mkl"} == {c.backend for c in roof.probe_cases("f16", "cpu", 2, libraries)}
