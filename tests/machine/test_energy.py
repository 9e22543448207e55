"""Joules from counters that are simulated with files."""

import pytest

from deepbench.machine import energy


@pytest.fixture
def sockets(tmp_path):
    """Sockets with given counters, and a part of the first one, which must not be counted twice."""

    def make(*microjoules):
        for i, value in enumerate(microjoules):
            zone = tmp_path / f"intel-rapl:{i}"
            zone.mkdir(exist_ok=True)
            (zone / "name").write_text(f"package-{i}\n")
            (zone / "energy_uj").write_text(f"{value}\n")
            (zone / "max_energy_range_uj").write_text("1000000\n")
        part = tmp_path / "intel-rapl:0:0"
        part.mkdir(exist_ok=True)
        (part / "name").write_text("core\n")
        (part / "energy_uj").write_text("999\n")
        return energy.Counters(tmp_path)

    return make


def test_joules_per_call_of_all_sockets(sockets):
    counters = sockets(100, 200)
    repeats = []

    def call(count):
        repeats.append(count)
        sockets(600_100, 400_200)

    result = energy.measure_energy(call, 0.05, 3, 0.01, counters)

    assert 1.0 == pytest.approx(result["joules_per_call"] * result["calls"])
    assert 3 * sum(repeats) == result["calls"]
    assert "too short for the counters" in result["valid"]
    assert energy.measure_energy(call, 0.5, 1, 1.01, sockets(0, 0))["valid"] is True


def test_a_counter_that_wraps_around(sockets):
    counters = sockets(900_000)

    assert 0.2 == pytest.approx(counters.joules([900_000], [100_000]))


def test_missing_or_stuck_counters_give_no_joules(sockets, tmp_path):
    still = energy.measure_energy(lambda count: None, 0.05, 1, 0.01, sockets(5, 5))
    assert (None, None) == (still["joules_per_call"], still["watts"])
    assert still["valid"] is not True

    nothing = energy.measure_energy(lambda count: None, 0.05, 1, 0.01, energy.Counters(tmp_path / "none"))
    assert nothing["joules_per_call"] is None
    assert "no energy counters" in nothing["valid"]
