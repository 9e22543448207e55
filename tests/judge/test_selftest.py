"""The numbers of a self-test from given times, and what is remembered of a machine."""

import math
import random

import pytest

from deepbench.judge import selftest
from deepbench.machine import remembered
from deepbench.reporting import selftest as report

pytestmark = pytest.mark.alone


def noisy(spread, count=40, seed=1):
    rng = random.Random(seed)
    return [rng.lognormvariate(0, spread) for _ in range(count)]


def ratios(spread, count=20):
    return [math.log(b / a) for a, b in zip(noisy(spread, count), noisy(spread, count, seed=3), strict=True)]


def runs(spread):
    return selftest.two_runs(noisy(spread))


def heats(spread):
    return selftest.in_heats(ratios(spread))


@pytest.mark.parametrize("draws", [runs, heats])
def test_a_quiet_machine_finds_a_small_change_and_has_no_false_alarms(draws):
    result = selftest.sensitivity("case", draws(0.002), 0.02)

    assert 0.0 == result.rates.false_alarms
    assert 1.0 == pytest.approx(result.rates.same, abs=0.02)
    assert result.smallest == 0.03  # just beyond the margin of 2 %
    assert 0.001 < result.half_width < 0.01


@pytest.mark.parametrize("draws", [runs, heats])
def test_a_noisy_machine_cannot_tell(draws):
    result = selftest.sensitivity("case", draws(0.10), 0.02)

    assert result.rates.false_alarms < 0.08
    assert result.rates.cannot_tell > 0.9
    assert result.smallest is None or result.smallest >= 0.2
    assert result.half_width > 0.05


def test_the_promised_change_is_found_in_new_times():
    """Fresh times of the same machine, slower by the change that it promises to find."""
    promised = selftest.sensitivity("case", selftest.two_runs(noisy(0.02, 100)), 0.02).smallest
    fresh = selftest.two_runs(noisy(0.02, 400, seed=2))

    assert selftest.verdict_rates(fresh, promised, 0.02, 5).slower > 0.8
    assert selftest.verdict_rates(fresh, promised / 3, 0.02, 5).slower < 0.8


def test_either_rival_of_a_heat_may_be_the_second_side():
    """A rival that is always slower, for reasons that are not its code, is no proof that it is slower."""
    rates = selftest.verdict_rates(selftest.in_heats([0.05] * 12), 0.0, 0.02, 1)

    assert rates.faster == pytest.approx(rates.slower, abs=0.05)


def test_the_difference_between_sessions_exceeds_that_of_processes():
    steady = [{"a": noisy(0.02, seed=s), "b": noisy(0.02, seed=s + 9)} for s in (1, 2, 3)]
    moved = [{n: [t * f for t in v] for n, v in s.items()} for s, f in zip(steady, (1.0, 1.1, 0.95), strict=True)]

    assert selftest.between_sessions(steady[:1]) is None
    assert selftest.between_sessions(steady) < 0.01
    assert 0.07 == pytest.approx(selftest.between_sessions(moved), abs=0.02)


@pytest.mark.parametrize(
    ("cold", "is_cold", "has"), [(1e10, True, True), (3e10, False, True), (1.1e10, True, True), (1.2e10, False, True)]
)
def test_cold_data_must_be_as_slow_as_memory(cold, is_cold, has):
    rates = {("large", "hot"): 1e10, ("small", "hot"): 4e10, ("small", "cold"): cold, ("small", "weights"): cold}
    proof = selftest.cold_proof(rates, 2**20)

    assert (is_cold, has) == (proof["cold_is_cold"], proof["has_cache"])
    assert {"large": 4 * 2**20, "small": 2**17} == selftest.cold_sizes(2**20)


def test_a_core_is_disturbed_as_often_as_blocks_take_longer_than_the_fastest():
    assert selftest.jitter([1.0, 1.0, 1.0, 1.2])["disturbed"] == 0.25


def findings(**changes):
    times = {"case": noisy(0.01)}
    values = {
        "times": times,
        "separate": [selftest.sensitivity("case", selftest.two_runs(times["case"]), 0.02)],
        "in_heats": [selftest.sensitivity("case", heats(0.01), 0.02)],
        "loop_s": 5e-9,
        "loop": "compiled",
        "clock_s": 5e-8,
        "cores": {0: selftest.jitter([1.0, 1.01])},
        "core_speeds": {0: 1.0},
        "cold": None,
        "between_sessions": None,
    }
    return selftest.SelfTestResult(**{**values, **changes})


def test_the_page_has_a_remedy_for_each_weakness_and_none_without():
    assert [] == [line for line in report.page(findings()) if line.startswith("→")]
    weak = findings(
        loop_s=5e-7,
        loop="Python",
        core_speeds={0: 1.0, 1: 1.2},
        cores={0: selftest.jitter([1.0, 2.0, 2.0])},
        in_heats=[selftest.sensitivity("case", heats(0.2), 0.02)],
    )
    remedies = [line for line in report.page(weak) if line.startswith("→")]
    assert 4 == len(remedies)
    assert any("core 1 20 %" in line for line in remedies)


def test_each_machine_is_remembered_separately(tmp_path, monkeypatch):
    monkeypatch.setenv(remembered.STATE, str(tmp_path))
    one, other = {"cpu": "A", "host": "x"}, {"cpu": "B", "host": "x"}
    remembered.remember(one, "selftest", {"n": 1})
    remembered.remember({**one, "host": "y"}, "selftest", {"n": 2})  # a container has a new name each time

    assert [{"n": 1}, {"n": 2}] == remembered.remembered(one, "selftest")
    assert [] == remembered.remembered(other, "selftest")


def test_damaged_lines_are_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv(remembered.STATE, str(tmp_path))
    path = remembered.remember({}, "limits", {"n": 1})
    with open(path, "ab") as file:
        file.write(b'nonsense\n[1]\n{"n": NaN}\n{"torn')

    assert [{"n": 1}] == remembered.remembered({}, "limits")
    monkeypatch.setenv(remembered.STATE, "/proc/no/such/place")
    assert remembered.remember({}, "limits", {}) is None
