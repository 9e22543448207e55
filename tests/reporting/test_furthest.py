"""The problems that are furthest from what the machine can do."""

import pytest

from deepbench.judge import furthest
from deepbench.judge.limits import Limits
from deepbench.reporting import furthest as tables
from deepbench.reporting.cases import rankings
from deepbench.results.summary import summarize
from tests.help import samples

TEXT = "gemm m={} n=64 k=64 forward f32 {} threads=1"


def kernels(records, limits):
    summaries = summarize(records)
    known = Limits(limits)
    return furthest.kernels(
        summaries, [r.ranked[0] for r in rankings(summaries) if r.ranked], [known.nearest(s) for s in summaries]
    )


def test_the_table_has_the_lowest_shares_first_and_says_why():
    flop = {m: 2 * m * 64 * 64 for m in (8, 16, 32)}
    # Rates of 20, 80 and 40 % of the peak.
    shares = {8: 0.2, 16: 0.8, 32: 0.4}
    records = [samples.measured(seconds=flop[m] / (shares[m] * 1e9), text=TEXT.format(m, "mkl")) for m in flop]
    table = tables.table(kernels(records, [samples.peak(1e9)]), "limit", 2)

    assert ["gemm 8 × 64 × 64 NN", "gemm 32 × 64 × 64 NN"] == [row["problem"] for row in table.rows]
    first = table.rows[0]
    assert first["share"] == pytest.approx(0.2, rel=1e-2)
    assert first["excess"] == pytest.approx(0.8 * first["time"], rel=1e-2)
    assert str(first["why"]).startswith("unexplained: compute 20 %")
    assert str(first["evidence"]).startswith("no limit explains half of the time: compute 20 %")
    assert table.notes[0].startswith("1 more problem is not shown")


def test_by_excess_the_most_time_above_the_limit_comes_first():
    flop = {m: 2 * m * 64 * 64 for m in (8, 1024)}
    shares = {8: 0.1, 1024: 0.6}
    records = [samples.measured(seconds=flop[m] / (shares[m] * 1e9), text=TEXT.format(m, "mkl")) for m in flop]
    found = kernels(records, [samples.peak(1e9)])

    assert [8, 1024] == [k.summary.record["problem"]["m"] for k in furthest.furthest(found, "limit")]
    assert [1024, 8] == [k.summary.record["problem"]["m"] for k in furthest.furthest(found, "excess")]


def test_a_time_at_its_limit_has_no_excess():
    records = [samples.measured(seconds=1.98 * 8 * 64 * 64 / 1e9, text=TEXT.format(8, "mkl"))]
    (row,) = tables.table(kernels(records, [samples.peak(1e9)]), "limit", 10).rows

    assert (0.0, "compute") == (row["excess"], row["limited_by"])
    assert str(row["why"]).startswith("compute: compute 100 %")


def test_a_time_whose_limit_was_measured_too_low_is_not_far_from_it():
    records = [samples.measured(seconds=1.0 * 8 * 64 * 64 / 1e9, text=TEXT.format(8, "mkl"))]

    assert [] == kernels(records, [samples.peak(1e9)])
    assert [] == kernels(records, [{**samples.peak(4e9), "disturbed": True}])


def test_slower_libraries_and_disturbed_times_do_not_count():
    records = [
        samples.measured(seconds=1e-3, text=TEXT.format(8, "mkl")),
        samples.measured("openblas", 1.0, text=TEXT.format(8, "openblas")),
        samples.disturbed(seconds=1.0, text=TEXT.format(16, "mkl")),
    ]
    (found,) = kernels(records, [samples.peak(1e9)])

    assert ("MKL", 0) == (found.summary.library_title, found.position)
    assert [] == kernels(records, [])  # no limit is known
