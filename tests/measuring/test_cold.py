"""A measurement of warm caches refuses `cache=cold`, but not for ever: the machine may have been busy."""

from datetime import UTC, datetime, timedelta

import pytest

from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.machine import describe, remembered
from deepbench.measuring import cold

MACHINE = {"cpu": "a CPU"}
CASE = parse_case("gemm m=64 n=1 k=64 a_t=0 b_t=0 forward f32 openblas threads=1 cache=cold")


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Writes what an earlier run found; a new proof counts how often it is asked for and finds cold caches."""
    monkeypatch.setenv(remembered.STATE, str(tmp_path))
    monkeypatch.setenv(describe.MEASURED_CACHES, "1000000")
    proofs = []
    monkeypatch.setattr(cold, "prove", lambda *_: proofs.append(1) or {"cold_is_cold": True})

    def write(is_cold, hours):
        at = (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
        size = cold._cache_bytes(cold.environment([CASE], MACHINE))
        remembered.remember(MACHINE, "cold", {"at": at, "cold_is_cold": is_cold, "cache_bytes": size})
        return proofs

    return write


def test_warm_caches_of_the_last_hour_refuse(measured):
    proofs = measured(False, 0.5)

    with pytest.raises(BadInput, match="caches stay warm"):
        cold.require([CASE], MACHINE)
    assert not proofs


def test_warm_caches_of_an_earlier_hour_are_measured_again(measured):
    proofs = measured(False, 2)

    cold.require([CASE], MACHINE)
    assert [1] == proofs


def test_cold_caches_are_remembered(measured):
    proofs = measured(True, 1000)

    cold.require([CASE], MACHINE)
    assert not proofs


@pytest.mark.parametrize("cache_bytes", [2**20, 2**28, 507510784])
def test_columns_of_the_proof_share_no_sets_of_a_cache(monkeypatch, tmp_path, cache_bytes):
    """Columns that begin 4096 bytes apart are read at half of the rate of the memory, which would then seem cold."""
    monkeypatch.setenv(remembered.STATE, str(tmp_path))
    monkeypatch.setattr(cold, "open_backend", lambda *_: {"library": {}})
    sides = []

    def measured(case, *_):
        sides.append(case.problem.k)
        return {"status": "unsupported"} if case.problem.k > 10**4 else {"status": "ok", "traffic_bytes": 1e6}

    monkeypatch.setattr(cold, "measure_case", measured)
    monkeypatch.setattr(cold, "process_time_s", lambda _: 1e-3)
    cold.prove(MACHINE, {describe.MEASURED_CACHES: str(cache_bytes)})

    assert sides
    assert [1] * len(sides) == [side * 4 // 64 % 2 for side in sides]
    assert [0] * len(sides) == [side * 4 % 64 for side in sides]
