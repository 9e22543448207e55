"""Joules from counters made of files: windows, wraps, and why there are none."""

import pytest

from deepbench.machine import energy


@pytest.fixture
def sockets(tmp_path):
    """Two sockets whose counters are set by hand, and a part of one, which is not counted twice."""

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


def test_joules_of_all_sockets_over_calls_without_a_pause(sockets):
    counters = sockets(100, 200)
    made = []

    def call(count):
        made.append(count)
        sockets(600_100, 400_200)

    found = energy.measure_energy(call, 0.05, 3, 0.01, counters)

    assert 1.0 == pytest.approx(found["joules_per_call"] * found["calls"])
    assert 3 * sum(made) == found["calls"]
    assert "too short for the counters" in found["valid"]
    assert energy.measure_energy(call, 0.5, 1, 1.01, sockets(0, 0))["valid"] is True


def test_a_counter_that_wrapped_around(sockets):
    counters = sockets(900_000)

    assert 0.2 == pytest.approx(counters.joules([900_000], [100_000]))


def test_counters_that_do_not_move_or_are_not_there_are_no_joules(sockets, tmp_path):
    still = energy.measure_energy(lambda count: None, 0.05, 1, 0.01, sockets(5, 5))
    assert (None, None) == (still["joules_per_call"], still["watts"])
    assert still["valid"] is not True

    nothing = energy.measure_energy(lambda count: None, 0.05, 1, 0.01, energy.Counters(tmp_path / "none"))
    assert nothing["joules_per_call"] is None
    assert "no energy counters" in nothing["valid"]
