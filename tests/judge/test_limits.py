"""Which limit a case stands at, from limits made by hand."""

import pytest

from deepbench.core.case import parse_case
from deepbench.judge import limits
from deepbench.results import summary
from tests import samples

MACHINE = {
    "caches": [
        {"level": 1, "bytes": 2**15, "shared_by": "0"},
        {"level": 2, "bytes": 2**19, "shared_by": "0"},
        {"level": 3, "bytes": 2**25, "shared_by": "0-3"},
    ]
}


def line(**values):
    return {"threads": 1, "at": "2026-11-21T00:00:00+00:00", "case": "made", **values}


# 100 GB/s from the first level, 50, 20, and 10 from memory; an answer of MKL takes a microsecond.
LINES = [
    *(
        line(what="memory", kind="read", bytes=size, bytes_per_s=rate, seconds=size / rate)
        for size, rate in ((2**14, 1e11), (2**18, 5e10), (2**24, 2e10), (2**29, 1e10))
    ),
    line(what="call", backend="mkl", library="MKL 1", seconds=1e-6),
]
ROOF = samples.roof(1e12)


def standing(text, seconds, more=(), roofs=(ROOF,), lines=LINES, machine=MACHINE):
    records = [samples.measured(seconds=s, text=t) for t, s in [(text, seconds), *more]]
    summaries = summary.summarize(records)
    return limits.Limits(lines, roofs, summaries, machine).standing(summaries[0])


GEMM = "gemm m={} n={} k={} a_t=0 b_t=0 forward f32 mkl threads=1{}"


def test_work_that_a_library_may_leave_out_raises_no_roof():
    """Of 49 places of this filter nine see the image, the others its padding: five times the rate of anything else."""
    padded = "conv n=2 c=2048 h=7 w=7 k=512 r=1 s=1 pad_h=3 pad_w=3 stride_h=2 stride_w=2 forward f32 onednn threads=1"
    made = samples.measured("onednn", 1e-3, text=padded)
    (s,) = summary.summarize([made])
    known = limits.Limits((), (), [s], {})

    assert known.peak("f32", "cpu", 1) == pytest.approx(s.flop_per_s * 9 / 49)
    assert 1 == known.standing(s).share


def test_a_large_product_stands_at_arithmetic():
    found = standing(GEMM.format(1024, 1024, 1024, ""), 4e-3)  # 2.1 ms at a TFLOP/s, 1.3 ms of memory

    assert "compute" == found.bound
    assert 2 * 1024**3 / 1e12 / 4e-3 == pytest.approx(found.share, rel=0.01)
    assert 2 * 1024**3 / (4 * 4 * 1024**2) == pytest.approx(found.intensity)
    assert "arithmetic 54 %, L3" in found.evidence


@pytest.mark.parametrize(("side", "level"), [(60, "L1"), (250, "L2"), (2000, "L3"), (20000, "memory")])
def test_a_matrix_times_a_vector_stands_at_the_level_that_holds_it(side, level):
    """The time is twice that of reading at the level's rate."""
    rate = {"L1": 1e11, "L2": 5e10, "L3": 2e10, "memory": 1e10}[level]
    found = standing(GEMM.format(side, 1, side, ""), 2 * 4 * side * side / rate, lines=LINES[:-1])

    assert level == found.bound
    assert 0.5 == pytest.approx(found.share, abs=0.03)


def test_cold_data_come_from_memory_however_small():
    found = standing(GEMM.format(300, 1, 300, " cache=cold"), 8 * 300 * 300 / 1e10)

    assert "memory" == found.bound


def test_a_tiny_product_stands_at_what_a_call_takes():
    found = standing(GEMM.format(8, 8, 8, ""), 1.5e-6)

    assert "latency" == found.bound
    assert "a call 67 %" in found.evidence


def test_threads_that_win_nothing_are_told():
    text = "gemm m=64 n=64 k=640 a_t=0 b_t=0 forward f32 mkl threads=2"
    two = [{**entry, "threads": 2} for entry in LINES[:-1]]
    roofs = [{**samples.roof(2e11), "threads": 2}]
    more = [(text.replace("threads=2", "threads=1"), 55e-6)]

    assert "parallelism" == standing(text, 50e-6, more, roofs, two).bound
    assert "1 thread 1.10 times the time" in standing(text, 50e-6, more, roofs, two).evidence
    assert "compute" == standing(text, 30e-6, more, roofs, two).bound


def test_no_case_stands_above_its_roof():
    """What a checked result did can be done, whatever a probe in a slow moment said."""
    found = standing(GEMM.format(1024, 1024, 1024, ""), 1e-3)

    assert 1.0 == pytest.approx(found.share)


def test_a_cache_that_is_only_said_to_be_there_is_none():
    """A guest is told of 480 MB that it cannot use: reads of that size are no faster than memory."""
    machine = {"caches": [*MACHINE["caches"][:2], {"level": 3, "bytes": 480 * 2**20, "shared_by": "0-3"}]}
    found = standing(GEMM.format(8000, 1, 8000, ""), 0.05, machine=machine)

    assert "memory" == found.bound


def test_nothing_is_said_where_nothing_is_known():
    assert standing(GEMM.format(64, 64, 64, ""), 1e-3, roofs=(), lines=()).bound == "compute"  # its own rate
    records = [samples.measured(backend="null", status="unchecked")]
    summaries = summary.summarize(records)
    assert limits.Limits((), (), summaries, {}).standing(summaries[0]) is None


def test_only_what_nobody_has_measured_is_missing():
    chosen = [parse_case("gemm m=9 n=9 k=9 a_t=0 b_t=0 forward f32 mkl threads=2")]
    first = limits.probes_missing(chosen, [], limits.COARSE)

    assert {"memory", "gemm"} == {c.op for c in first}
    assert [] == limits.probes_missing(chosen, [{"case": c.text} for c in first], limits.COARSE)
    old = [{"case": c.text, "disturbed": True, "at": "2026-01-01T00:00:00+00:00"} for c in first]
    assert first == limits.probes_missing(chosen, old, limits.COARSE)
    assert [] == limits.probes_missing([parse_case("gemm m=9 n=9 k=9 i8 forward null threads=1")], [], limits.COARSE)


def test_of_several_probes_the_fastest_counts():
    known = [line(what="call", backend="mkl", library="MKL 1", case="c", seconds=s) for s in (3e-6, 1e-6, 2e-6)]

    assert [1e-6] == [entry["seconds"] for entry in limits.best(known)]
