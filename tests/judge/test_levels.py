"""Levels of memory from the measured read curve and the caches that the CPU reports."""

import pytest

from deepbench.judge.levels import Levels, cpu_count

CACHES = [
    {"level": 3, "bytes": 2**25, "shared_by": "0-3"},
    {"level": 1, "bytes": 2**15, "shared_by": "0"},
    {"level": 2, "bytes": 2**19, "shared_by": "0"},
]
CURVE = {2**14: 1e11, 2**18: 5e10, 2**22: 2e10, 2**24: 2e10, 2**26: 1.1e10, 2**29: 1e10}


def levels(curve=CURVE, caches=CACHES, threads=1, **options):
    found = Levels(caches)
    for size, rate in curve.items():
        found.add(threads, size, rate, 1e-3, **options)
    return found


def test_each_level_has_the_rate_of_the_working_sets_that_only_it_holds():
    found = {level.name: level for level in levels().of(1)}

    assert ["L1", "L2", "L3", "memory"] == list(found)
    assert [2**15, 2**19, 2**25, None] == [level.capacity for level in found.values()]
    assert [10240, 2**15, 2**19, 2**25] == [level.below for level in found.values()]
    assert [1e11, 5e10, 2e10, 1.1e10] == [level.rate(level.below + 1) for level in found.values()]
    assert 1e10 == found["memory"].rate(2**28)


def test_private_caches_of_several_threads_hold_more_together():
    assert [2**16, 2**20, 2**25] == [level.capacity for level in levels(threads=2).of(2)][:3]
    assert 2**26 == levels(curve={**CURVE, 2**25: 2e10, 2**26: 2e10}, threads=8).of(8)[2].capacity


def test_a_cache_ends_where_reading_becomes_as_slow_as_memory():
    """A virtual machine may report a cache of 480 MB of which it gets a part."""
    reported = [*CACHES[1:], {"level": 3, "bytes": 480 * 2**20, "shared_by": "0-3"}]
    found = levels(caches=reported)

    assert 2**25 == found.of(1)[2].capacity
    assert ["L3", "memory"] == [found.holding(size, 1) for size in (2**24, 2**27)]


def test_calls_that_are_too_short_measure_the_start_of_threads_and_do_not_count():
    found = Levels(CACHES)
    for size, rate in CURVE.items():
        found.add(1, size, rate / 100 if size < 2**20 else rate, size / rate)

    assert [None, None, 2e10] == [level.rate(level.below + 1) for level in found.of(1)][:3]


def test_a_level_that_was_not_measured_has_no_rate():
    found = levels(curve={size: rate for size, rate in CURVE.items() if size > 2**20})

    assert found.of(1)[0].rate(100) is None
    assert 2e10 == found.of(1)[2].rate(2**23)


def test_disturbed_curves_count_only_where_there_are_no_others():
    found = levels(disturbed=True)

    assert found.is_disturbed(1)
    assert 1e11 == found.of(1)[0].rate(100)

    for size, rate in CURVE.items():
        found.add(1, size, 2 * rate, 1e-3)
    assert not found.is_disturbed(1)
    assert 2e11 == found.of(1)[0].rate(100)


def test_disturbed_curves_count_if_the_others_do_not_reach_memory():
    found = levels(disturbed=True)
    found.add(1, 2**14, 2e11, 1e-3)

    assert found.is_disturbed(1)
    assert 1e10 == found.dram(1)


def test_nothing_is_known_without_measurements():
    assert () == Levels(CACHES).of(1)
    assert Levels(CACHES).dram(1) is None
    assert "memory" == Levels(CACHES).holding(100, 1)


@pytest.mark.parametrize(("cpus", "count"), [("0", 1), ("0-3,8", 5), ("", 1), ("x-y", 1)])
def test_lists_of_cpus(cpus, count):
    assert count == cpu_count(cpus)
