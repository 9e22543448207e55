"""Published results: all are present, their errors are marked, and ours are matched with them."""

import csv
from collections import Counter
from importlib import resources

import pytest

from deepbench.core.errors import BadInput
from deepbench.reporting import published as report
from deepbench.results import published
from deepbench.results.summary import summarize
from tests.help import samples


def test_every_row_of_every_workbook_is_present():
    assert 10729 == len(published.results())
    assert 18 == len(published.sheets())
    assert {
        "gemm": 2579,
        "conv": 5630,
        "recurrent": 2221,
        "sparse_gemm": 96,
        "all_reduce": 203,
    } == Counter(r.op for r in published.results())


def test_every_problem_is_that_of_its_row_in_the_suite():
    for op in ("gemm", "conv", "recurrent", "sparse_gemm"):
        for suite in {r.suite for r in published.results() if r.op == op}:
            path = resources.files("deepbench").joinpath("suites", suite, f"{op}.csv")
            listed = {r["row"]: r for r in csv.DictReader(path.read_text(encoding="utf-8").splitlines())}
            for r in published.results():
                if (r.op, r.suite) == (op, suite):
                    values = {n: str(v) for n, v in r.values.values.items() if n in listed[str(r.row)]}
                    assert {n: listed[str(r.row)][n] for n in values} == values, (op, suite, r.row)


def test_rates_that_contradict_their_times_are_marked():
    """All sparse rates are wrong, and one convolution in six sheets."""
    wrong = Counter(r.op for r in published.results() if r.wrong_rate)

    # Three products have another n in their sheet than was run.
    assert {"sparse_gemm": 96, "conv": 36, "gemm": 3} == wrong
    headline = next(
        r
        for r in published.of_machine("NVIDIA Tesla V100")
        if r.op == "gemm" and r.problem == "m=5124 n=9124 k=2560 a_t=1 b_t=0" and r.precision == "float16_mixed"
    )
    assert 2.598e-3 == pytest.approx(headline.time_s)
    assert 92.1e12 == pytest.approx(headline.flop_per_s, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("V100", "NVIDIA Tesla V100"),
        ("xeon phi", "Intel Xeon Phi 7250"),
        ("1080ti", "NVIDIA GTX 1080 Ti"),
        ("TitanXp", "NVIDIA TitanXp"),
        ("titan x pascal", "NVIDIA TitanX Pascal"),
        ("T4", "NVIDIA T4"),
        ("MI25", "AMD MI25"),
    ],
)
def test_a_part_of_its_name_identifies_a_machine(text, name):
    assert name == published.find(text)


@pytest.mark.parametrize("text", ["titan", "H100", "", "nvidia"])
def test_a_text_that_matches_no_machine_or_several_is_refused(text):
    with pytest.raises(BadInput, match="deepbench published list"):
        published.find(text)


def test_equal_work_is_matched():
    text = "gemm m=5124 n=700 k=2048 a_t=0 b_t=0 forward f32 {} threads=2"
    records = [
        samples.measured("mkl", 0.2, text=text.format("mkl")),
        samples.measured("openblas", 0.1, text=text.format("openblas")),
    ]
    eight = samples.measured("mkl", 0.3, text="gemm m=5124 n=700 k=2048 a_t=0 b_t=0 forward i8 mkl threads=2")
    cold = samples.measured("mkl", 0.01, text=text.format("mkl") + " cache=cold")
    summaries = summarize([*records, eight, cold])

    (found,) = published.match(summaries, "NVIDIA T4")  # int8 in the server suite, nothing of this in training
    assert ("i8", "int8") == (found.ours.record["precision"], found.theirs.precision)
    assert found.ratio == pytest.approx(0.999e-3 / 0.3, rel=0.01)
    assert any("zeros" in text for text in published.differences([found], "NVIDIA T4"))


def test_a_layer_in_training_matches_one_in_training():
    text = "recurrent cell={} hidden={} batch=16 timesteps={} forward f32 onednn threads=2{}"
    trains = samples.measured("onednn", 0.2, text=text.format("vanilla", 1760, 50, " mode=training"))
    infers = samples.measured("onednn", 0.1, text=text.format("lstm", 512, 25, ""))
    lstm = samples.measured("onednn", 0.1, text=text.format("lstm", 512, 25, " mode=training"))

    (found,) = published.match(summarize([trains, infers]), "NVIDIA Tesla V100")
    (other,) = published.match(summarize([lstm]), "NVIDIA Tesla V100")

    assert ("forward", "deepbench/train", "vanilla") == (
        found.theirs.direction, found.theirs.suite, found.theirs.values.cell,
    )  # fmt: skip
    assert "mode=training" in found.theirs.title
    assert any("overflow" in text for text in published.differences([found], "NVIDIA Tesla V100"))
    assert not any("overflow" in text for text in published.differences([other], "NVIDIA Tesla V100"))


def test_an_all_reduce_has_a_bandwidth_but_no_rate_of_flop():
    (first, *_) = published.all_reduces()

    assert first.flop_per_s is None
    assert first.bus_bytes_per_s == pytest.approx(
        4 * first.values.n / first.time_s * 2 * (first.values.ranks - 1) / first.values.ranks
    )
    assert {16777217} == {r.values.n for r in published.all_reduces() if "16777216" in r.note}


def test_a_published_result_counts_once():
    text = "gemm m=1760 n=16 k=1760 a_t=0 b_t=0 forward {} mkl threads=2"
    summaries = summarize(
        [samples.measured(seconds=s, text=text.format(p)) for p, s in (("f16", 2e-3), ("bf16", 1e-3))]
    )
    found = published.match(summaries, "NVIDIA Tesla V100")

    assert 2 == len(found)
    (best,) = published.best_matches(found)
    assert "bf16" == best.ours.record["precision"]
    assert any("over 2 %: 1" in text for text in published.differences(found, "NVIDIA Tesla V100"))


def test_the_gradients_of_a_layer_are_added_if_the_sheet_has_both():
    backward = [r for r in published.of_machine("NVIDIA Tesla V100") if r.direction == "backward"]
    parts = {
        (r.problem, r.precision, r.direction): r.time_s
        for r in published.of_machine("NVIDIA Tesla V100")
        if r.op == "recurrent"
    }

    assert 106 == len(backward)
    first = backward[0]
    both = [parts[first.problem, first.precision, d] for d in ("backward_data", "backward_weights")]
    assert first.time_s == pytest.approx(sum(both))
    assert not [r for r in published.of_machine("AMD MI25") if r.direction == "backward"]


def test_the_table_of_machines_lists_every_machine():
    names = [row["machine"] for row in report.machines().rows]

    assert 14 == len(names) == len(set(names))
    text = report.of_machine("Raspberry Pi 3").markdown()
    assert "| GFLOP/s | GFLOP/s in the sheet |" in text
    assert "gemmlowp" in text
