"""The tables by application and by backend, and sparse versus dense, from handmade records."""

import json
from pathlib import Path

import pytest

from deepbench.core.case import parse_case
from deepbench.judge.limits import Limits
from deepbench.report import cases, export, groups, notes, views
from deepbench.results.file import ResultFile
from deepbench.results.record import make_record
from deepbench.results.summary import baselines, summarize
from tests import samples

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


def applications(records, other=None):
    view = views.by_application(summarize(records), summarize(other) if other is not None else None)
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

    assert (2, 1) == (row["kernels"], row["measured"])
    assert 1e-3 == pytest.approx(row["time"], rel=1e-3)


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


def test_the_ratio_to_another_file_is_the_geometric_mean_over_common_kernels():
    text = GEMM.format(kind="f32", backend="mkl")
    conv = CONV.format(direction="forward", backend="onednn")
    here = [record_of(text, 2e-3, [source("Speech")]), record_of(conv, 8e-3, [source("Speech", row=2)])]
    there = [record_of(text, 1e-3, [source("Speech")]), record_of(conv, 1e-3, [source("Speech", row=2)])]

    assert 4 == pytest.approx(applications(here, there)["Speech"]["this_over_other"], rel=1e-3)
    alone = applications(here, there[:1])["Speech"]
    assert (1, 2) == (alone["compared"], pytest.approx(alone["this_over_other"], rel=1e-3))
    assert applications(here, [])["Speech"]["this_over_other"] is None


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

    assert "deepbench/train,'=A|B,f32,1,0.002001,1 of 1 kernels" in view.csv()
    assert "=A\\|B" in view.markdown()
    assert "=A|B" == json.loads(view.json())[0]["application"]


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
    assert "2.00× faster than dense, break-even density 20.0 %" in cases.fastest_table(summaries, Limits()).csv()
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
