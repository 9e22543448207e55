"""The tables by application and by backend, and sparse versus dense, from handmade records."""

import json
from pathlib import Path

import pytest

from deepbench.core.case import parse_case
from deepbench.judge.limits import Limits
from deepbench.reporting import cases, export, groups, notes, plot, views
from deepbench.reporting.sections import sections
from deepbench.results.file import ResultFile
from deepbench.results.record import make_record
from deepbench.results.summary import baselines, summarize
from tests.help import samples

GEMM = "gemm m=2 n=3 k=4 forward {kind} {backend} threads=1"
CONV = "conv n=1 c=2 h=5 w=5 k=3 r=3 s=3 {direction} f32 {backend} threads=1"


def record_of(text, seconds, sources=(), status="ok"):
    if status == "ok":
        record = samples.measured(text.split()[-2], seconds, text=text)
    else:
        record = make_record(parse_case(text), 1, status, "why")
    record["sources"] = list(sources)
    return record


def source(application, row=1, needed=True):
    place = {"suite": "deepbench/train", "row": row, "application": application, "label": None, "note": None}
    return {**place, "needed": needed}


def applications(records):
    view = views.by_application(summarize(records))
    return {row["application"]: row for row in view.rows}


def test_an_application_takes_the_sum_of_its_kernels_at_the_fastest_library():
    speech, vision = source("Speech"), source("Vision")
    records = [
        record_of(GEMM.format(kind="f32", backend="mkl"), 3e-3, [speech, source("Speech", row=7)]),
        record_of(GEMM.format(kind="f32", backend="onednn"), 1e-3, [speech, source("Speech", row=7)]),
        record_of(CONV.format(direction="forward", backend="onednn"), 6e-3, [vision]),
    ]

    actual = applications(records)

    # A row that is listed twice counts twice.
    assert 2 == actual["Speech"]["kernels"] == actual["Speech"]["measured"]
    assert 2e-3 == pytest.approx(actual["Speech"]["time"], rel=1e-3)
    assert 0.25 == pytest.approx(actual["Speech"]["share"], rel=1e-3)
    assert "conv 100 %" == actual["Vision"]["of which"]


def test_gradients_that_training_does_not_need_do_not_count_and_missing_times_are_counted():
    records = [
        record_of(CONV.format(direction="forward", backend="onednn"), 1e-3, [source("Vision")]),
        record_of(CONV.format(direction="backward_data", backend="onednn"), 9e-3, [source("Vision", needed=False)]),
        record_of(CONV.format(direction="backward_weights", backend="onednn"), 0, [source("Vision")], status="crashed"),
    ]

    (row,) = applications(records).values()

    assert (2, 1, None) == (row["kernels"], row["measured"], row["time"])
    assert 1e-3 == pytest.approx(row["sum"], rel=1e-3)


@pytest.mark.parametrize(("whole", "expected"), [(3e-3, 4e-3), (2e-3, 3e-3)])
def test_gradients_measured_both_together_and_separately_count_once(whole, expected):
    text = "recurrent cell=lstm hidden=8 batch=2 timesteps=3 {} f32 onednn threads=1"
    times = {"forward": 1e-3, "backward": whole, "backward_data": 2e-3, "backward_weights": 1e-3}
    records = [record_of(text.format(direction), t, [source("Speech")]) for direction, t in times.items()]

    (row,) = applications(records).values()

    assert expected == pytest.approx(row["time"], rel=1e-3)


def test_an_unchecked_round_decides_the_status_of_a_case():
    rounds = [samples.measured(round_number=i, status=s) for i, s in enumerate(("ok", "unchecked", "unchecked"), 1)]

    (actual,) = summarize(rounds)

    assert "unchecked" == actual.status
    assert not actual.is_ranked


def test_markdown_shows_no_undisturbed_samples_of_an_imported_file():
    one = samples.measured(status="unchecked")
    one["notes"] = {"imported_from": "pyperf"}

    text = export.to_markdown(ResultFile(Path("mine.jsonl"), samples.header(), [one]), summarize([one]))

    assert "**MKL**" in text
    assert "100 %" not in text


def test_by_backend_shows_what_a_framework_adds():
    text = "gemm m=2 n=3 k=4 forward f32 {} threads=1"
    view = views.by_backend(summarize([record_of(text.format(n), t) for n, t in (("mkl", 3e-3), ("torch", 5e-3))]))

    (row,) = view.rows
    assert 2e-3 == pytest.approx(row["PyTorch adds"], rel=1e-3)
    assert ["problem", "precision", "MKL", "PyTorch", "PyTorch adds"] == [c.name for c in view.columns]
    assert "+2.00 ms" in view.markdown()
    assert any(
        "PyTorch: fastest in 0 of 1 problems; it is 1.67× slower than the fastest library" in note
        for note in view.notes
    )


def test_tables_have_text_for_people_and_values_for_programs():
    view = views.by_application(summarize([record_of(GEMM.format(kind="f32", backend="mkl"), 2e-3, [source("=A|B")])]))

    assert "deepbench/train,'=A|B,f32,1,0.002001," in view.csv()
    assert "=A\\|B" in view.markdown()
    assert "=A|B" == json.loads(view.json())[0]["application"]


SPARSE = "sparse_gemm m=100 n=2 k=100 sparsity=90 forward f32 mkl threads=1"
DENSE = "gemm m=100 n=2 k=100 forward f32 mkl threads=1"


def sparse(seconds, backend="mkl", beta=""):
    return record_of(f"sparse_gemm m=100 n=2 k=100 sparsity=90 forward f32 {backend} threads=1{beta}", seconds)


def dense(seconds, backend="mkl", beta=""):
    return record_of(f"gemm m=100 n=2 k=100 forward f32 {backend} threads=1{beta}", seconds)


def test_sparse_is_compared_with_the_fastest_dense_product_of_its_shape():
    summaries = summarize([sparse(1e-3), dense(4e-3), dense(2e-3, "onednn"), dense(1e-4, "mkl", " beta=0")])

    actual = baselines(summaries)

    (only,) = actual.values()
    assert "onednn" == only.summary.record["backend"]
    assert 0.5 == pytest.approx(only.time_over_baseline, rel=1e-3)
    assert 0.2 == pytest.approx(only.break_even_density, rel=1e-3)  # a tenth are non-zeros, at twice the speed
    (case,) = [s for s in summaries if s.record["op"] == "sparse_gemm"]
    assert ["speed_up", "break_even"] == [n.code for n in notes.notes_of(case, actual[case.record["case"]])]
    assert "2.00× faster than dense, break-even density 20.0 %" in [
        row["notes"] for row in sections(summaries, Limits()).rows
    ]
    assert 0.5 == pytest.approx(export.rows(summaries)[0]["time_over_baseline"], rel=1e-3)


def test_sparse_alone_has_no_baseline():
    assert {} == baselines(summarize([sparse(1e-3)]))
    assert {} == baselines(summarize([sparse(1e-3), dense(1e-3, beta=" beta=0")]))


def test_all_reduces_without_a_size_or_ranks_are_left_out():
    text = "all_reduce n={} ranks={} forward f32 mpich threads=1"
    sizes = [(n, ranks) for ranks in (2, 4) for n in (1000, 10_000, 100_000, 1_000_000)]
    good = [samples.measured(seconds=1e-6 * n * ranks, text=text.format(n, ranks)) for n, ranks in sizes]
    broken = []
    for problem in ({}, {"n": 8}, {"ranks": 2}, {"n": "many", "ranks": 2}, {"n": 8, "ranks": 1}, {"n": 0, "ranks": 0}):
        record = samples.measured(seconds=1e-6, text=text.format(8, 2))
        broken.append({**record, "case": f"{record['case']} {len(broken)}", "problem": problem})
    broken.append({**broken[0], "case": "no traffic", "problem": {"n": 8, "ranks": 2}, "traffic_bytes": 0})
    summaries, known = summarize([*broken, *good]), summarize(good)

    assert len(good) + len(broken) == len(summaries)
    assert groups.by_ranks(known).rows == groups.by_ranks(summaries).rows
    assert groups.scaled(known).rows == groups.scaled(summaries).rows
    assert len(good) == len(groups.by_ranks(known).rows) == len(groups.scaled(known).rows) * 2
    assert [] == groups.by_ranks(summarize(broken)).rows == groups.scaled(summarize(broken)).rows


def test_no_text_of_a_file_is_markup_in_markdown():
    hostile = "[x](http://e) <b>b</b> **c** _d_ `e` | ~~f~~ &lt;g&gt;"
    record = record_of(GEMM.format(kind="f32", backend="mkl"), 1e-3, [source(hostile)])
    record["library_title"] = hostile
    text = views.by_application(summarize([record])).markdown()

    # In a cell, and in the sentence below the table that names the libraries.
    escaped = r"\[x\](http://e) \<b\>b\</b\> \*\*c\*\* \_d\_ \`e\` \| \~\~f\~\~ \&lt;g\&gt;"
    assert 2 == text.count(escaped)
    assert hostile not in text


def disturbed(text, seconds, sources=()):
    record = samples.disturbed(text.split()[-2], seconds, text=text)
    record["sources"] = list(sources)
    return record


def test_a_sum_over_some_kernels_is_no_total_and_has_no_share():
    conv = CONV.format(direction="forward", backend="onednn")
    records = [
        record_of(GEMM.format(kind="f32", backend="mkl"), 3e-3, [source("Speech")]),
        record_of(conv, 7e-3, [source("Speech", row=2)]),
        # The file has no case of row 2 in 8 bits: no library serves it.
        record_of(GEMM.format(kind="i8u8", backend="mkl"), 1e-5, [source("Speech")]),
    ]
    rows = {row["precision"]: row for row in views.by_application(summarize(records)).rows}

    assert "2 of 2 kernels" == rows["f32"]["coverage"]
    assert 1.0 == rows["f32"]["share"]
    assert "1 of 2 kernels" == rows["i8u8"]["coverage"]
    assert (2, 1) == (rows["i8u8"]["kernels"], rows["i8u8"]["measured"])
    assert {None} == {rows["i8u8"][name] for name in ("time", "±", "share", "of which")}
    table = views.by_application(summarize(records))
    assert "| i8u8 | 1 | – | – | 1 of 2 kernels | – | – |" in table.markdown()
    assert table.csv().splitlines()[0].endswith(",kernels,measured,disturbed,low,high,sum")


def test_kernels_of_the_suite_that_the_file_lacks_count_as_missing():
    """A run of one operation: the suite lists convolutions and recurrent layers of this application, too."""
    gemm = GEMM.format(kind="f32", backend="mkl")
    row = applications([record_of(gemm, 1e-3, [source("Speech Recognition")])])["Speech Recognition"]

    assert (1, None) == (row["measured"], row["share"])
    assert row["kernels"] > 50
    assert f"1 of {row['kernels']} kernels" == row["coverage"]


def test_one_process_each_shows_an_order_only_where_the_times_differ_by_ten_percent():
    def others(second_s, rounds=1):
        times = {"mkl": 1e-3, "onednn": second_s}
        records = [
            {**record_of(GEMM.format(kind="f32", backend=name), time_s), "round": number}
            for name, time_s in times.items()
            for number in range(1, rounds + 1)
        ]
        (ranking,) = cases.rankings(summarize(records))
        return [s.record["backend"] for s in ranking.ties]

    assert ["onednn"] == others(1.05e-3)
    assert [] == others(1.15e-3)
    assert [] == others(1.05e-3, rounds=3)


def test_the_share_of_an_application_needs_all_sums_of_its_suite():
    records = [
        record_of(GEMM.format(kind="f32", backend="mkl"), 3e-3, [source("Speech")]),
        record_of(CONV.format(direction="forward", backend="onednn"), 0, [source("Vision")], status="crashed"),
    ]

    assert applications(records)["Speech"]["share"] is None


def test_disturbed_times_are_marked_in_sums():
    gemm, conv = GEMM.format(kind="f32", backend="mkl"), CONV.format(direction="forward", backend="onednn")
    here = [record_of(gemm, 2e-3, [source("Speech")]), disturbed(conv, 80e-3, [source("Speech", row=2)])]
    table = views.by_application(summarize(here))

    assert "2 of 2 kernels, 1 disturbed" == table.rows[0]["coverage"]
    assert "1 of 2 times is an upper bound (≤, D), because other programs ran" in "\n".join(table.notes)


@pytest.mark.parametrize(
    ("records", "withheld"),
    [
        ([sparse(1e-3), samples.disturbed("mkl", 55e-3, text=DENSE)], "baseline disturbed"),
        ([samples.disturbed("mkl", 1e-3, text=SPARSE), dense(2e-3)], "this time disturbed"),
    ],
)
def test_a_ratio_to_a_disturbed_baseline_is_withheld(records, withheld):
    summaries = summarize(records)

    (only,) = baselines(summaries).values()

    assert (None, None, withheld) == (only.time_over_baseline, only.break_even_density, only.withheld)
    (row,) = [r for r in sections(summaries, Limits()).rows if "sparse_gemm" in r]
    assert f"no ratio to dense: {withheld}" == row["notes"]
    (row,) = [r for r in export.rows(summaries) if r["op"] == "sparse_gemm"]
    assert (None, withheld) == (row["time_over_baseline"], row["baseline_withheld"])


def test_a_library_is_not_compared_with_a_disturbed_one():
    text = "gemm m=2 n=3 k=4 forward f32 {} threads=1"
    records = [samples.disturbed("mkl", 1e-3, text=text.format("mkl")), record_of(text.format("onednn"), 3e-3)]

    found = sections(summarize(records), Limits())
    (row,) = found.rows
    assert ("MKL 1.0", "oneDNN 3.00 ms", "D") == tuple(row[name] for name in ("best", "next best", "flags"))
    assert "≤ 1.0 ms" in str(found)
    assert not {"±", "GFLOP/s", "share_of_limit"} & row.keys()
    assert any(
        line.startswith("D  disturbed by other programs: times with ≤ are upper bounds") for line in found.legend
    )
    first, second = cases.library_table(summarize(records), Limits()).rows
    assert ("", "no ratio: fastest is disturbed") == (first["than"], second["than"])
    ranked = cases.ranking_table(summarize(records))
    assert [None, None] == [row["time_over_fastest"] for row in ranked.rows]
    assert ["disturbed", None] == [row["notes"] for row in ranked.rows]
    undisturbed = summarize([record_of(text.format(n), t) for n, t in (("mkl", 1e-3), ("onednn", 3e-3))])
    assert "oneDNN 3.00×" == sections(undisturbed, Limits()).rows[0]["next best"]
    assert "3.00× slower" == cases.library_table(undisturbed, Limits()).rows[1]["than"]


def test_tables_by_backend_compare_undisturbed_times_only():
    text = "gemm m=2 n=3 k=4 forward f32 {} threads=1"
    view = views.by_backend(
        summarize([samples.disturbed("mkl", 3e-3, text=text.format("mkl")), record_of(text.format("torch"), 5e-3)])
    )

    assert view.rows[0]["PyTorch adds"] is None
    assert "disturbed: MKL" == view.rows[0]["notes"]
    assert not any("slower than the fastest" in note for note in view.notes)


def test_a_roofline_leaves_disturbed_times_out_and_says_so():
    one, two = ("gemm m=64 n=64 k=64 forward f32 mkl threads=1", "gemm m=128 n=64 k=64 forward f32 mkl threads=1")
    lines = plot.roofline(summarize([record_of(one, 1e-4), samples.disturbed("mkl", 1e-2, text=two)]), Limits(), 80)

    assert "1 of 2 problems are left out: other programs disturbed their times." in lines
